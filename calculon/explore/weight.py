"""How much memory a result holds, about."""

import gc
import sys
from collections import deque
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

MOST_OBJECTS = 20_000
"""Objects that are looked at; of larger results what is left counts as :data:`SMALL`."""

SMALL = 64
"""Bytes of an object that is not looked at."""

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
"""What no result has for itself."""


def weight(result: Any) -> int:
    """Return the bytes of what a result refers to.

    What several results share counts for each of them, so that together they hold less than the sum.

    >>> weight(np.zeros(1_000_000)) // 1_000_000
    8
    """
    total, seen, waiting = 0, {id(result)}, deque([result])
    while waiting:
        one = waiting.popleft()
        total += one.nbytes if isinstance(one, np.ndarray) else sys.getsizeof(one, SMALL)
        if len(seen) > MOST_OBJECTS:
            return total + SMALL * len(waiting)
        for inner in gc.get_referents(one):
            if id(inner) not in seen and not isinstance(inner, _SHARED):
                seen.add(id(inner))
                waiting.append(inner)
    return total
