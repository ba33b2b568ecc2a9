"""Progress announcements of long computations, for display on a terminal."""

import contextlib
from collections.abc import Callable, Iterator

Listener = Callable[[str], None]
"""Callback that receives a short description of each computation when it begins."""

_listeners: list[Listener] = []


def announce(words: str) -> None:
    """Report the current computation to the listener, if any: ``announce("searching 64 processors")``."""
    if _listeners:
        _listeners[-1](words)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Register a listener for announcements within a ``with`` block.

    >>> heard = []
    >>> with listening(heard.append):
    ...     announce("searching 64 processors")
    >>> heard
    ['searching 64 processors']
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
