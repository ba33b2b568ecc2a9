"""Request tracking: requests wait for computations, which are canceled when nobody waits for them any more."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Protocol

GRACE = 2.0
"""Seconds for which a computation continues after its request was asked to poll again."""


LINGER = 30.0
"""Seconds for which the last pending search continues, because users look at other pages and return."""


class Unfinished(Exception):
    """A computation without a result: not an error of the request, and never cached."""


class Canceled(Unfinished):
    """Nobody waits for the result any more."""


class Pending(Unfinished):
    """The result takes longer than the request waits.

    Attributes:
        looked_at: Number of executions searched so far.
    """

    def __init__(self, looked_at: int):
        super().__init__(looked_at)
        self.looked_at = looked_at


class Waiter(Protocol):
    """Something that waits for a computation: a request, or another computation."""

    def wanted(self) -> bool:
        """Return True if it still needs the result."""

    def patience(self) -> float | None:
        """Return the maximum seconds to wait; None for no limit."""


class PageRequest:
    """A request.

    Args:
        seconds: Maximum time to wait for shared computations once it has begun; unlimited by default.

    Attributes:
        left: True if the client has disconnected.
    """

    def __init__(self, seconds: float | None = None):
        self._seconds = seconds
        self._until: float | None = None
        self.left = False

    def begin(self) -> None:
        """Start the patience of the request."""
        self._until = None if self._seconds is None else monotonic() + self._seconds

    def wanted(self) -> bool:
        """Return True if the client is still connected."""
        return not self.left

    def patience(self) -> float | None:
        """Return the remaining seconds of patience; None for no limit."""
        return None if self._until is None else max(0.0, self._until - monotonic())


_ALWAYS = PageRequest()
_NOW: ContextVar[Waiter] = ContextVar("now", default=_ALWAYS)
"""The request or computation under way in a thread."""


def now() -> Waiter:
    """Return the request or computation under way in this thread."""
    return _NOW.get()


@contextmanager
def under_way(waiter: Waiter) -> Iterator[None]:
    """Set the request or computation under way in this thread."""
    token = _NOW.set(waiter)
    try:
        yield
    finally:
        _NOW.reset(token)


class Computation:
    """A computation.

    Args:
        of: The waiter whose thread computes it, and whose patience applies; by default a separate thread.

    Attributes:
        waiters: Requests and computations that wait for it.
        looked_at: Number of executions searched so far.
        on: Another computation that it waits for.
    """

    def __init__(self, of: Waiter | None = None) -> None:
        self.waiters: list[Waiter] = []
        self.looked_at = 0
        self.on: Computation | None = None
        self._of = of
        self._until = 0.0

    def wanted(self) -> bool:
        """Return True if somebody waits for it, or is expected to return."""
        # A copy, since other threads add and remove waiters meanwhile.
        return any(one.wanted() for one in tuple(self.waiters)) or monotonic() < self._until

    def patience(self) -> float | None:
        """Return the maximum seconds to wait for other computations; None for no limit."""
        return None if self._of is None else self._of.patience()

    def linger(self, seconds: float) -> None:
        """Continue for some seconds even if nobody waits."""
        self._until = monotonic() + seconds

    def pending(self) -> Pending:
        """Return the error of a request whose patience has ended; it is expected to return soon."""
        self.linger(GRACE)
        return Pending(self.looked_at + (self.on.looked_at if self.on else 0))


def count_searched(count: int = 0) -> None:
    """Count further searched executions of the computation under way in this thread.

    Raises:
        Canceled: If nobody waits for it any more.
    """
    work = _NOW.get()
    if isinstance(work, Computation):
        work.looked_at += count
    if not work.wanted():
        raise Canceled
