"""Ctrl-C, and the polite SIGTERM of batch systems: both undo what is unfinished."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM: someone else's Ctrl-C."""


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program that was stopped by a signal: 128 and its number."""
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


def word(error: KeyboardInterrupt) -> str:
    """Say how it was stopped."""
    return "terminated" if isinstance(error, Terminated) else "interrupted"


def leave(code: int) -> NoReturn:
    """End the process now that all is cleared up: threads of native libraries may be busy, and abort in their end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` at the first SIGTERM; later ones do not disturb the clearing up."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_IGN)
        raise Terminated

    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
