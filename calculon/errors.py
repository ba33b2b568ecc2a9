"""What can go wrong, in two words: the request is malformed, or it does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches


class CalculonError(Exception):
    """Base of all errors that this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input: where it is, what was expected there, what was found."""

    field: str
    expected: str
    found: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.field}: " if self.field else ""
        text += f"expected {self.expected}, found {self.found}"
        return f"{text}. Hint: {self.hint}" if self.hint else text


class SpecError(CalculonError, ValueError):
    """A malformed request: a file, field or value that means nothing (exit code 2).

    Attributes
    ----------
    file : str
        Where the input came from: a path, a catalog name, ``<stdin>`` or a word such as ``execution``.
    problems : tuple of Problem
        All that was found wrong, in the order of the input.
    field, expected, found, hint : str
        Those of the first problem.
    """

    def __init__(self, file: str, problems: Sequence[Problem] | Problem):
        self.file = file
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in self.problems))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[str, tuple[Problem, ...]]]:
        return type(self), (self.file, self.problems)  # errors cross processes

    @property
    def field(self) -> str:
        """Path of the first wrong field, such as ``networks[1].efficiency``."""
        return self.problems[0].field

    @property
    def expected(self) -> str:
        """What the first wrong field should hold."""
        return self.problems[0].expected

    @property
    def found(self) -> str:
        """What the first wrong field holds."""
        return self.problems[0].found

    @property
    def hint(self) -> str:
        """What to do about the first problem; may be empty."""
        return self.problems[0].hint


class Infeasible(CalculonError):
    """A well-formed execution that cannot run on this system (exit code 1).

    Attributes
    ----------
    reason : str
        Short stable identifier of the rule that failed, such as ``mem1_capacity``.
    needed, available : float or None
        Bytes of memory that the execution needs and that there are, where memory is what it lacks.
    tier : int or None
        The memory, 1 or 2.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        needed: float | None = None,
        available: float | None = None,
        tier: int | None = None,
    ):
        self.reason, self.needed, self.available, self.tier = reason, needed, available, tier
        super().__init__(message)

    def __reduce__(
        self,
    ) -> tuple[type["Infeasible"], tuple[str, str, float | None, float | None, int | None]]:
        numbers = self.needed, self.available, self.tier
        return type(self), (self.reason, str(self), *numbers)  # errors cross processes


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint that names the nearest known spelling, or an empty string.

    >>> nearest("hiden", ["hidden", "seq_size"])
    "did you mean 'hidden'?"
    """
    matches = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean '{matches[0]}'?" if matches else ""
