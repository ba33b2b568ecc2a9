"""Cache of results: each is computed once, even if several threads request it simultaneously."""

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
from calculon.explore.request_tracking import (
    GRACE,
    LINGER,
    Computation,
    Pending,
    Unfinished,
    Waiter,
    count_searched,
    now,
    under_way,
)

# Approximate memory of a result

MAX_OBJECTS = 20_000
"""Maximum number of objects that are measured; the remaining objects of larger results count :data:`SMALL` each."""

SMALL = 64
"""Bytes assumed for an object that is not measured."""

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)
"""Types of objects shared by the whole program, which belong to no result."""


def object_size(result: Any) -> int:
    """Return the bytes of all objects that a result refers to.

    Objects shared by several results count for each of them, so the total of the cache is an upper bound.

    >>> object_size(np.zeros(1_000_000)) // 1_000_000
    8
    """
    total, seen, waiting = 0, {id(result)}, deque([result])
    while waiting:
        one = waiting.popleft()
        total += one.nbytes if isinstance(one, np.ndarray) else sys.getsizeof(one, SMALL)
        if len(seen) > MAX_OBJECTS:
            return total + SMALL * len(waiting)
        for inner in gc.get_referents(one):
            if id(inner) not in seen and not isinstance(inner, _SHARED):
                seen.add(id(inner))
                waiting.append(inner)
    return total


# Memory of the process: freed results are returned to the operating system

ARENAS = 2
"""Number of malloc arenas for the threads of the page. By default each thread gets one and retains its peak size."""

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of ``mallopt`` in the GNU C library."""


def share_heaps() -> None:
    """Make threads started from now on share few malloc arenas, if the C library supports it."""
    _call("mallopt", _ARENA_MAX, ARENAS)


def trim_memory() -> None:
    """Collect garbage, and return free memory to the operating system if the C library supports it."""
    gc.collect()
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    """Call a function of the GNU C library; do nothing on other systems."""
    function = _function(name)
    if function is not None:
        function(*values)


def _function(name: str) -> Callable[..., Any] | None:
    try:
        result: Callable[..., Any] | None = getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # no such library, for example on Windows
        return None
    return result


SEARCHES = 3
"""Simultaneous searches: several, so that an abandoned search does not block the next one before it ends."""

WORKED = 2.0
"""Seconds of computing between two returns of memory."""

SPARED = 20
"""Minimum seconds of computing per second spent on returning memory, which limits the overhead to 5 %."""


class _Entry(Computation):
    """Cache entry: a result, or its computation."""

    def __init__(self, of: Waiter | None):
        super().__init__(of)
        self.future: Future[Any] = Future()
        self.bytes = 0

    def result(self, waiter: Waiter) -> Any:
        """Return the result, or raise its error; raise Pending if the waiter's patience ends first."""
        if not self.future.done():
            if isinstance(waiter, Computation):
                waiter.on = self
            wait([self.future], waiter.patience())
            if not self.future.done():
                raise self.pending()
        if (error := self.future.exception()) is not None:
            # Each waiter raises a copy, since raising one error in several threads would mix their tracebacks.
            raise copy(error) if isinstance(error, CalculonError) else error
        return self.future.result()


class ResultCache:
    """Least-recently-used cache of results by key.

    Errors of requests are cached, too. A computation that nobody waits for is canceled and leaves nothing; only the
    search last reported as pending continues for a while, in case its user returns.

    Args:
        max_results: Maximum number of results; the least recently used one is evicted first.
        max_bytes: Approximate maximum of their bytes.
    """

    def __init__(self, max_results: int = 4_096, max_bytes: int = 256 * 2**20):
        self._max_results, self._max_bytes = max_results, max_bytes
        self._known: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._bytes = 0
        self._worked = 0.0
        self._lingering: _Entry | None = None
        self._lock = Lock()
        self._searches = ThreadPoolExecutor(SEARCHES, "search")

    def __call__(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of a key, computed in this thread if it is unknown; raise its error."""
        return self._result(key, compute, elsewhere=False)

    def search(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of a long computation, which runs in another thread and outlives requests.

        Raises:
            Pending: If it takes longer than the request waits.
        """
        return self._result(key, compute, elsewhere=True)

    @property
    def bytes(self) -> int:
        """Approximate bytes of all cached results."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._known)

    def close(self) -> None:
        """Start no further searches."""
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
            count_searched()  # its other waiters left and it was canceled: start again

    def _linger(self, entry: _Entry) -> None:
        """Let a search continue for a while, and end the previous one that did."""
        with self._lock:
            if self._lingering not in (None, entry):
                self._lingering.linger(GRACE)
            self._lingering = entry
            entry.linger(LINGER)

    def _entry(self, key: Hashable, waiter: Waiter, elsewhere: bool) -> tuple[_Entry, bool]:
        """Return the entry of a key, registering the waiter, and True if it must be computed."""
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
                count_searched()
                found = compute()
        except CalculonError as error:
            entry.future.set_exception(error.with_traceback(None))
            self._keep(entry, 0)
        except BaseException as error:
            self._forget(key)
            entry.future.set_exception(error)
        else:
            entry.future.set_result(found)
            self._keep(entry, object_size(found))
        if self._lingering is entry:
            self._lingering = None  # do not keep its result alive
        self.tidy(perf_counter() - began)

    def tidy(self, seconds: float) -> None:
        """Record computing time; return memory to the system after some seconds of it."""
        with self._lock:
            self._worked += seconds
            if self._worked < WORKED:
                return
            self._worked = 0.0
        began = perf_counter()
        trim_memory()
        with self._lock:
            # A slow collection postpones the next one: the balance goes negative and must be worked off first.
            self._worked -= SPARED * (perf_counter() - began)

    def _keep(self, entry: _Entry, size: int) -> None:
        """Record the size of a result, and evict the least recently used results beyond the limits."""
        with self._lock:
            entry.bytes = size
            self._bytes += size
            if len(self._known) <= self._max_results and self._bytes <= self._max_bytes:
                return
            for key in [key for key, one in self._known.items() if one.future.done()]:
                self._bytes -= self._known.pop(key).bytes
                if len(self._known) <= self._max_results and self._bytes <= self._max_bytes:
                    return

    def known(self, key: Hashable) -> Any:
        """Return a cached result; None if it is unknown, failed, or still being computed."""
        with self._lock:
            entry = self._known.get(key)
        if entry is None or not entry.future.done() or entry.future.exception() is not None:
            return None
        return entry.future.result()

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._known.pop(key, None)
