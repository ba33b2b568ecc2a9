"""The memory of the process: what results leave behind goes back to the operating system."""

import ctypes
import gc
from collections.abc import Callable
from typing import Any

ARENAS = 2
"""Heaps that the threads of the page share. Each thread has its own otherwise, and keeps what it once needed."""

_ARENA_MAX = -8
"""The parameter of ``mallopt`` in the C library of GNU."""


def share_heaps() -> None:
    """Let all threads that begin from now on share few heaps, where the C library can do so."""
    _call("mallopt", _ARENA_MAX, ARENAS)


def give_back() -> None:
    """Free what nothing refers to any more, and return it to the system where the C library keeps it."""
    gc.collect()
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    """Call a function of the C library of GNU; others do without it."""
    function = _function(name)
    if function is not None:
        function(*values)


def _function(name: str) -> Callable[..., Any] | None:
    try:
        found: Callable[..., Any] | None = getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # there is no library of that kind, as on Windows
        return None
    return found
