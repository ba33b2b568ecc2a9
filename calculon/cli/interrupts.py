"""Ctrl-C, the polite SIGTERM of batch systems, and SIGHUP of a closed terminal: all undo what is unfinished."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: someone else's Ctrl-C."""

    def __init__(self, number: int = signal.SIGTERM):
        super().__init__()
        self.number = number


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a program that was stopped by a signal: 128 and its number."""
    return 128 + (error.number if isinstance(error, Terminated) else signal.SIGINT)


def word(error: KeyboardInterrupt) -> str:
    """Say how it was stopped."""
    return "terminated" if isinstance(error, Terminated) else "interrupted"


def leave(code: int) -> NoReturn:
    """End the process at once, now that all is cleared up.

    Threads of native libraries may be busy and abort when Python ends in its own way, which takes as long as a tenth of
    an estimate besides.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def caught() -> list[signal.Signals]:
    """Return the signals that end the program: those of :data:`ENDINGS` that its caller does not ignore."""
    return [number for number in ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Raise :class:`Terminated` at the first SIGTERM or SIGHUP; later ones do not disturb the clearing up.

    A signal that the caller ignores (SIGHUP under nohup) stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = caught()
    before = {number: signal.getsignal(number) for number in numbers}

    def stop(number: int, _: FrameType | None) -> NoReturn:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Terminated(number)

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
