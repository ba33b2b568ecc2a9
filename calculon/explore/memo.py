"""Results that are kept: each is computed once, also when several threads ask for it at the same time."""

import ctypes
import gc
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from threading import Lock
from time import perf_counter
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from calculon.base.errors import CalculonError
from calculon.explore.visits import (
    GRACE,
    LINGER,
    Pending,
    Unfinished,
    Waiter,
    Work,
    now,
    seen,
    under_way,
)

# How much memory a result holds, about.

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


# The memory of the process: what results leave behind goes back to the operating system.

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


SEARCHES = 3
"""Searches that are under way at the same time: those that nobody waits for any more do not keep others waiting."""

WORKED = 2.0
"""Seconds of computing after which the memory that it took is given back."""

SPARED = 20
"""Seconds of computing for each second that giving back took, at least."""


class _Entry(Work):
    """What is known of a key, or computed."""

    def __init__(self, of: Waiter | None):
        super().__init__(of)
        self.future: Future[Any] = Future()
        self.bytes = 0

    def result(self, waiter: Waiter) -> Any:
        """Return the result once it is there; its error is raised, and Pending where the waiter waits no longer."""
        if not self.future.done():
            if isinstance(waiter, Work):
                waiter.on = self
            wait([self.future], waiter.patience())
            if not self.future.done():
                raise self.pending()
        if (error := self.future.exception()) is not None:
            raise copy(error) if isinstance(error, CalculonError) else error  # each its own trace
        return self.future.result()


class Memo:
    """The last results by key.

    Errors of a request are kept as well. A computation that nobody waits for any more ends, and leaves nothing; the
    search of which somebody heard last that it is not done goes on for a while, for who comes back to it.

    Args:
        most: Results that are kept; the one that was asked for the longest time ago goes first.
        most_bytes: Bytes of all that are kept, about.
    """

    def __init__(self, most: int = 4_096, most_bytes: int = 256 * 2**20):
        self._most, self._most_bytes = most, most_bytes
        self._known: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._worked = 0.0
        self._lingering: _Entry | None = None
        self._lock = Lock()
        self._searches = ThreadPoolExecutor(SEARCHES, "search")

    def __call__(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of a key, computed here where it is not known; an error of it is raised."""
        return self._result(key, compute, elsewhere=False)

    def search(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the same of what may take long: it is computed elsewhere, while requests come and go.

        Raises:
            Pending: When that takes longer than the request waits.
        """
        return self._result(key, compute, elsewhere=True)

    @property
    def bytes(self) -> int:
        """Bytes of all that is kept, about."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Begin nothing more that takes long."""
        self._searches.shutdown(wait=False, cancel_futures=True)

    def _result(self, key: Hashable, compute: Callable[[], Any], *, elsewhere: bool) -> Any:
        waiter = now()
        while True:
            entry, first = self._entry(key, waiter, elsewhere)
            try:
                if first and elsewhere:
                    self._searches.submit(self._compute, key, entry, compute)
                elif first:
                    self._compute(key, entry, compute)
                return entry.result(waiter)
            except Unfinished as error:
                if elsewhere and isinstance(error, Pending):
                    self._linger(entry)
                if (first and not elsewhere) or not entry.future.done():
                    raise
            finally:
                entry.waiters.remove(waiter)
            seen()  # others waited for it, and wait no longer: it begins again

    def _linger(self, entry: _Entry) -> None:
        """Let a search go on for a while, and the one before no longer."""
        with self._lock:
            if self._lingering not in (None, entry):
                self._lingering.linger(GRACE)
            self._lingering = entry
            entry.linger(LINGER)

    def _entry(self, key: Hashable, waiter: Waiter, elsewhere: bool) -> tuple[_Entry, bool]:
        """Return the entry of a key, for which the waiter waits from now on, and whether it is to be computed."""
        with self._lock:
            entry = self._known.get(key)
            first = entry is None
            if entry is None:
                entry = self._known[key] = _Entry(None if elsewhere else waiter)
            self._known.move_to_end(key)
            entry.waiters.append(waiter)
        return entry, first

    def _compute(self, key: Hashable, entry: _Entry, compute: Callable[[], Any]) -> None:
        """Compute the result of an entry."""
        began = perf_counter()
        try:
            with under_way(entry):
                seen()
                found = compute()
        except CalculonError as error:
            entry.future.set_exception(error.with_traceback(None))
            self._keep(entry, 0)
        except BaseException as error:
            self._forget(key)
            entry.future.set_exception(error)
        else:
            entry.future.set_result(found)
            self._keep(entry, weight(found))
        if self._lingering is entry:
            self._lingering = None  # which holds its result
        self.tidy(perf_counter() - began)

    def tidy(self, seconds: float) -> None:
        """Note that something was computed; after some seconds of that memory is given back."""
        with self._lock:
            self._worked += seconds
            if self._worked < WORKED:
                return
            self._worked = 0.0
        began = perf_counter()
        give_back()
        with self._lock:
            self._worked -= SPARED * (perf_counter() - began)

    def _keep(self, entry: _Entry, size: int) -> None:
        """Note how large a result is, and forget the oldest as far as there are too many."""
        with self._lock:
            entry.bytes = size
            self._bytes += size
            if len(self._known) <= self._most and self._bytes <= self._most_bytes:
                return
            for key in [key for key, one in self._known.items() if one.future.done()]:
                self._bytes -= self._known.pop(key).bytes
                if len(self._known) <= self._most and self._bytes <= self._most_bytes:
                    return

    def known(self, key: Hashable) -> Any:
        """Return a result that was computed before; None where it was not, where it failed, or is under way."""
        with self._lock:
            entry = self._known.get(key)
        if entry is None or not entry.future.done() or entry.future.exception() is not None:
            return None
        return entry.future.result()

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._known.pop(key, None)
