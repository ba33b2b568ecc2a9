"""Results that are kept: each is computed once, also when several threads ask for it at the same time."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any


class Memo:
    """The last results by key.

    Parameters
    ----------
    most : int
        Results that are kept; the one that was asked for the longest time ago goes first.
    """

    def __init__(self, most: int = 256):
        self._most = most
        self._known: OrderedDict[Hashable, Future[Any]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the result of a key, computed where it is not known; an error is raised, and kept likewise."""
        with self._lock:
            future = self._known.get(key)
            first = future is None
            if future is None:
                future = self._known[key] = Future()
                while len(self._known) > self._most:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
        if first:
            try:
                future.set_result(compute())
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._forget(key)
                future.set_exception(error)
        return future.result()

    def known(self, key: Hashable) -> Any:
        """Return a result that was computed before; None where it was not, where it failed, or is under way."""
        with self._lock:
            future = self._known.get(key)
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._known.pop(key, None)
