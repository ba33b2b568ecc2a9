"""Progress on standard error: a bar with rate and remaining time, in terminals only and only when it takes a while."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 1.0
"""Seconds before there is anything to see."""


@contextlib.contextmanager
def progress(
    total: int, *, done: int = 0, what: str = "searches", quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show the progress of a number of tasks; yield a function to call with how many more are finished.

    Nothing is shown outside a terminal, with `quiet`, or within the first second.

    Args:
        total, done: Tasks in all, and those that were finished before: they do not count for the rate.
        what: Noun for the tasks, in the plural.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    bar = _bar()
    task = bar.add_task(what, total=total, completed=done, rate="")
    begin, before = time.monotonic(), done

    def advance(count: int) -> None:
        nonlocal done
        done += count
        rate = (done - before) / max(time.monotonic() - begin, 1e-9)
        left = _clock((total - done) / rate) if rate else "?"
        bar.update(task, completed=done, rate=f"{_rate(rate)}  {left} left")

    appear = threading.Timer(PATIENCE, bar.start)
    appear.daemon = True
    appear.start()
    try:
        yield advance
    finally:
        appear.cancel()
        appear.join()
        bar.stop()


def _bar() -> "Progress":
    """Return the bar, not yet on the screen."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )


def _rate(rate: float) -> str:
    """Write the tasks finished in a second or, where that is few, in a minute."""
    return f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"


def _clock(seconds: float) -> str:
    """Write a remaining time: minutes and seconds, or hours and minutes.

    >>> _clock(75), _clock(7_400)
    ('1:15', '2 h 03 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes}:{rest:02}"
