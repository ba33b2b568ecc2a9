"""Reading budget of a launch file: limits of text, values, statements and time.

Launch files are untrusted, and a short file can describe any amount of data: YAML aliases, shell variables that contain
themselves twice, functions that call each other. All readers spend from one budget, which also covers the files that a
launch file refers to.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from calculon.base.errors import Problem, SpecError

TEXT = 1_000_000
CHARACTERS = 2_000_000
VALUES = 200_000
STATEMENTS = 100_000
SECONDS = 1.2
"""Limits of one budget; every public launch file of the tests needs at most 2 % of them, and 10 % of the time."""

LARGEST_NUMBER = 10**18
"""Least number that is no valid setting; Python refuses to print very long numbers."""

_BETWEEN_CHECKS = 100
_TOKEN = re.compile(r"\w+|[^\w\s]")
_HINT = "write out fewer values, or leave out what does not concern the launch"


class ExhaustedError(SpecError):
    """Error of a file that exceeds its budget."""


class Budget:
    """Remaining budget for reading a launch file.

    Args:
        file: Name of the file, for messages.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._text, self._characters = TEXT, CHARACTERS
        self._values, self._statements = VALUES, STATEMENTS
        self._unchecked = 0
        # Processor time: other programs on a busy machine do not use it up.
        self._end = time.thread_time() + SECONDS

    def spend_text(self, text: str) -> None:
        """Spend the characters of a file."""
        self._text -= len(text)
        if self._text < 0:
            raise self._exhausted(f"text of at most {TEXT:,} characters")

    def spend_tokens(self, text: str) -> None:
        """Spend a value for each word and sign of a text: for parsers that cannot be interrupted."""
        self.spend_values(sum(1 for _ in _TOKEN.finditer(text)))

    def spend_characters(self, count: int) -> None:
        """Spend characters of texts that the reader assembles."""
        self._characters -= count
        if self._characters < 0:
            raise self._exhausted(f"texts of at most {CHARACTERS:,} characters after expansion")
        self.check_time(count)

    def spend_values(self, count: int) -> None:
        """Spend values: words, elements of lists, settings."""
        self._values -= count
        if self._values < 0:
            raise self._exhausted(f"at most {VALUES:,} values after expansion")
        self.check_time(count)

    def spend_statement(self) -> None:
        """Spend one evaluated statement."""
        self._statements -= 1
        if self._statements < 0:
            raise self._exhausted(f"at most {STATEMENTS:,} statements to evaluate")
        self.check_time(_BETWEEN_CHECKS // 10)

    def check_time(self, steps: int) -> None:
        """Raise if the processor time is used up; check it only every few steps, since the check itself is slow."""
        self._unchecked += steps
        if self._unchecked < _BETWEEN_CHECKS:
            return
        self._unchecked = 0
        if time.thread_time() > self._end:
            raise self._exhausted(f"a file that is read within {SECONDS} s")

    def _exhausted(self, wanted: str) -> ExhaustedError:
        return ExhaustedError(self.file, Problem("", wanted, "more", _HINT))


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def reading(file: str) -> Iterator[Budget]:
    """Yield the budget of a file: a new one, or the budget of the file that refers to it.

    Raises:
        SpecError: If the budget is exhausted, or the file is nested too deeply for the readers.
    """
    # Files that refer to others share one budget: otherwise a chain of files could evade it.
    if (budget := _current.get()) is not None:
        yield budget
        return
    budget = Budget(file)
    token = _current.set(budget)
    try:
        yield budget
    except RecursionError:
        problem = Problem("", "a less deeply nested file", "too many levels")
        raise SpecError(file, problem) from None
    finally:
        _current.reset(token)


def check_numbers(value: object, place: str, setting: str) -> None:
    """Raise for a setting with a number of at least :data:`LARGEST_NUMBER`, possibly in lists."""
    # An explicit stack: untrusted lists may be nested deeper than Python's recursion limit.
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, int) and abs(one) >= LARGEST_NUMBER:
            raise too_large(place, setting)
        if isinstance(one, (list, dict)):
            left += one.values() if isinstance(one, dict) else one


def too_large(place: str, setting: str) -> SpecError:
    """Return the error of a setting with a number of at least :data:`LARGEST_NUMBER`."""
    wanted = f"numbers below {LARGEST_NUMBER:.0e}"
    return SpecError(place, Problem(setting, wanted, "a larger number"))
