"""Results that several tests look at, computed once: in a process, or in a run of the suite for all of its processes.

What such a result took counts as time of each test that uses it (:func:`owed`): any of them may be the first.
"""

import fcntl
import hashlib
import os
import pickle
import resource
from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T")


STORE = "CALCULON_STORE"
"""The variable of the environment that names the folder of stored results; ``tests/conftest.py`` makes it."""

_saved = 0.0
_counted: dict[int, object] = {}
"""The shared results that the running test has used, by identity."""


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its ended children."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def owed() -> float:
    """Return the CPU time of this process so far, had nothing that it used been computed before."""
    return cpu_seconds() + _saved


def cache(compute: Callable[P, T], key_of: Callable[[Any], Any] = tuple) -> Callable[P, T]:
    """Compute the result of a function for some arguments once in this process."""
    known: dict[Any, tuple[T, float]] = {}

    @wraps(compute)
    def result(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of((args, tuple(kwargs.items())))
        if key in known:
            return used(known[key])
        known[key] = timed(compute, *args, **kwargs)
        _counted[id(known[key])] = known[key]
        return known[key][0]

    return result


cache_by_repr = partial(cache, key_of=repr)
"""The same for arguments that have no hash, but a ``repr`` that says all of them."""


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
                return used(pickle.loads(path.read_bytes()))
            found = timed(compute, *args, **kwargs)
            path.write_bytes(pickle.dumps(found))
            return found[0]

    return known


def timed(compute: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> tuple[T, float]:
    """Return the result of a function, and the CPU seconds that it took."""
    begin = owed()
    result = compute(*args, **kwargs)
    return result, owed() - begin


def used(known: tuple[T, float]) -> T:
    """Return a result that is known, and count what it took, once in a test."""
    global _saved  # noqa: PLW0603
    result, seconds = known
    if id(known) not in _counted:
        _counted[id(known)] = known
        _saved += seconds
    return result


def begin_test() -> None:
    """Count what the next test uses, whatever tests before it have used."""
    _counted.clear()


def fixtures_of(item: pytest.Item) -> Iterable[Sequence[Any]]:
    """Return the definitions of the fixtures that a test needs, directly or not."""
    info = getattr(item, "_fixtureinfo", None)  # examples of docstrings have none
    return info.name2fixturedefs.values() if info else ()
