"""Who waits for what: requests, and the computations that they wait for, which end when nobody waits any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol

GRACE = 2.0
"""Seconds for which a computation goes on after a request was told that it is not done: it is expected to ask again."""


LINGER = 30.0
"""Seconds for which the last such search goes on: people look elsewhere, and come back."""


class Unfinished(Exception):
    """There is no result: it is none of the errors of a request, and never kept."""


class Cancelled(Unfinished):
    """Nobody waits for the result any more."""


class Pending(Unfinished):
    """The result takes longer than the request waits.

    Attributes:
        looked_at: Executions that the search has looked at until now.
    """

    def __init__(self, looked_at: int):
        super().__init__(looked_at)
        self.looked_at = looked_at


class Waiter(Protocol):
    """What waits for a computation: a request, or another computation."""

    def wanted(self) -> bool:
        """Return whether somebody still waits for it."""

    def patience(self) -> float | None:
        """Return how many seconds it waits for others; None for as long as they take."""


class Visit:
    """A request.

    Args:
        seconds: How long it waits for what others compute, once it has begun; by default as long as it takes.

    Attributes:
        left: The client has left.
    """

    def __init__(self, seconds: float | None = None):
        self._seconds = seconds
        self._until: float | None = None
        self.left = False

    def begin(self) -> None:
        """Note that its answer is made from now on."""
        self._until = None if self._seconds is None else monotonic() + self._seconds

    def wanted(self) -> bool:
        """Return whether the client is still there."""
        return not self.left

    def patience(self) -> float | None:
        """Return the seconds that are left of its patience; None where it has no end."""
        return None if self._until is None else max(0.0, self._until - monotonic())


_ALWAYS = Visit()
_NOW: ContextVar[Waiter] = ContextVar("now", default=_ALWAYS)
"""The request or computation that is under way in a thread."""


def now() -> Waiter:
    """Return the request or computation that is under way in this thread."""
    return _NOW.get()


@contextmanager
def under_way(waiter: Waiter) -> Iterator[None]:
    """Say what is under way in this thread."""
    token = _NOW.set(waiter)
    try:
        yield
    finally:
        _NOW.reset(token)


class Work:
    """A computation.

    Args:
        of: What computes it, and waits for others no longer than that; by default a thread of its own.

    Attributes:
        waiters: What waits for it.
        looked_at: Executions that it has looked at until now.
        on: Another that it waits for.
    """

    def __init__(self, of: Waiter | None = None) -> None:
        self.waiters: list[Waiter] = []
        self.looked_at = 0
        self.on: Work | None = None
        self._of = of
        self._until = 0.0

    def wanted(self) -> bool:
        """Return whether somebody waits for it, or is expected to come again."""
        return any(one.wanted() for one in tuple(self.waiters)) or monotonic() < self._until

    def patience(self) -> float | None:
        """Return the seconds that it waits for others; None for as long as they take."""
        return None if self._of is None else self._of.patience()

    def linger(self, seconds: float) -> None:
        """Go on for so long though nobody waits."""
        self._until = monotonic() + seconds

    def pending(self) -> Pending:
        """Return the error of a request that waits no longer; it is expected to come again soon."""
        self.linger(GRACE)
        return Pending(self.looked_at + (self.on.looked_at if self.on else 0))


def seen(count: int = 0) -> None:
    """Note that so many more executions were looked at, for the computation that is under way in this thread.

    Raises:
        Cancelled: When nobody waits for it any more.
    """
    work = _NOW.get()
    if isinstance(work, Work):
        work.looked_at += count
    if not work.wanted():
        raise Cancelled
