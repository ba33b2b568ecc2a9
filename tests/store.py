"""Results that several tests look at, computed once in a run of the suite for all of its processes."""

import fcntl
import hashlib
import os
import pickle
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


STORE = "CALCULON_STORE"
"""The variable of the environment that names the folder of stored results; ``tests/conftest.py`` makes it."""


def stored(compute: Callable[P, T]) -> Callable[P, T]:
    """Compute the result of a function for some arguments once in a run; other processes wait for it and read it.

    Arguments must have a ``repr`` that says all of them, the result must be picklable, and tests must not change it.
    """

    @cache
    @wraps(compute)
    def known(*args: P.args, **kwargs: P.kwargs) -> T:
        call = f"{compute.__module__}.{compute.__qualname__} {args!r} {sorted(kwargs.items())!r}"
        path = Path(os.environ[STORE]) / hashlib.sha256(call.encode()).hexdigest()
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                found: Any = pickle.loads(path.read_bytes())
                return found
            result = compute(*args, **kwargs)
            path.write_bytes(pickle.dumps(result))
            return result

    return known
