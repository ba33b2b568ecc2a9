"""Announcements of long computations, for whoever waits for them."""

import contextlib
from collections.abc import Callable, Iterator

Listener = Callable[[str], None]
"""Function that is called with a few words on each computation that begins."""

_listeners: list[Listener] = []


def announce(words: str) -> None:
    """Tell the listener, if there is one, what is computed now: ``announce("searching 64 processors")``."""
    if _listeners:
        _listeners[-1](words)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let a function hear what is announced.

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
