"""Quantities in campaign files: numbers in the unit of their field, or text such as ``15T``, ``60d`` and ``4M``."""

import math
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import LARGEST_NUMBER, Declaration, shown
from calculon.declarations.spellings import dollars, duration, global_batch, sequence_length, tokens

CHINCHILLA = 20.0
"""Compute-optimal tokens per parameter. Source: Hoffmann et al., arXiv:2203.15556, table 3."""

_CHINCHILLA = "chinchilla"

NEVER = "never"
"""The word for the mean time between events that do not happen."""


class TimeSpan(float):
    """A time in seconds; in files a number in the unit of its field, or text such as ``60d`` and ``90 min``."""

    __slots__ = ()
    limits: ClassVar[Declaration] = Declaration(help="", at_least=0)
    EXAMPLES: ClassVar[str] = "60d, 12h or 90min"
    WANTED: ClassVar[str] = f"a time of at least 0, such as {EXAMPLES}"

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Self:
        """Decode a time."""
        number: Any = raw
        if isinstance(raw, str):
            # text carries its own unit, so the scale of the field does not apply to it
            zero = cls.limits.above is None
            read = partial(duration, raw, zero=zero, examples=cls.EXAMPLES)
            number, scale = _read(read, path, problems), 1.0
        if cls.limits.problem(float, number, path) is not None:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
            return cls(1.0)
        return cls(number * scale)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a time."""
        return {**cls.limits.schema(float), "type": ["number", "string"]}


class Interval(TimeSpan):
    """A time between events, above 0."""

    __slots__ = ()
    limits: ClassVar[Declaration] = Declaration(help="", above=0)
    WANTED: ClassVar[str] = "a time above 0, such as 60d, 12h or 90min"


class Latency(Interval):
    """A limit of a latency, above 0."""

    __slots__ = ()
    EXAMPLES: ClassVar[str] = "1s or 50ms"
    WANTED: ClassVar[str] = f"a time above 0, such as {EXAMPLES}"


class MeanTime(Interval):
    """A mean time between events; infinite if it is ``never``."""

    __slots__ = ()
    WANTED: ClassVar[str] = "a time above 0, such as 5000h or 60d, or never"

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> Self:
        """Decode a mean time."""
        if isinstance(raw, str) and raw.strip().lower() == NEVER:
            return cls(math.inf)
        return super().decode(raw, path, problems, scale)


class Money(float):
    """An amount in US dollars; in files a number, or text such as ``5M`` and ``500k``."""

    __slots__ = ()
    WANTED: ClassVar = "US dollars above 0, such as 5M or 500k"

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "Money":
        """Decode an amount above 0."""
        if isinstance(raw, str):
            return cls(_read(lambda: dollars(raw), path, problems))
        problem = Declaration(help="", above=0).problem(float, raw, path)
        if problem is not None:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
            return cls(1.0)
        number: Any = raw
        return cls(number)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of an amount."""
        return {
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "maximum": LARGEST_NUMBER,
        }


@dataclass(frozen=True, slots=True)
class TokenGoal:
    """Number of training tokens: absolute, or per parameter of the model.

    Attributes:
        tokens: Number of tokens; 0 if it follows from the number of parameters.
        per_parameter: Tokens per parameter; 0 if the number of tokens is stated.
    """

    WANTED: ClassVar = "tokens such as 15T, chinchilla, or tokens per parameter such as 100x"

    tokens: float = 0.0
    per_parameter: float = 0.0

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "TokenGoal":
        """Decode ``15e12``, ``15T``, ``chinchilla`` (20 per parameter) or ``100x``."""
        wanted = cls.WANTED
        if not isinstance(raw, str):
            if Declaration(help="", at_least=0).problem(float, raw, path) is not None:
                problems.append(Problem(path, wanted, shown(raw)))
                return cls()
            number: Any = raw
            return cls(tokens=float(number))
        if raw.strip().lower() == _CHINCHILLA:
            return cls(per_parameter=CHINCHILLA)
        if raw.strip().lower().endswith("x"):
            try:
                factor = float(raw.strip()[:-1])
            except ValueError:
                factor = 0.0
            if not 0 < factor < LARGEST_NUMBER:
                problems.append(Problem(path, wanted, shown(raw)))
            return cls(per_parameter=factor)
        return cls(tokens=_read(lambda: tokens(raw), path, problems))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of tokens."""
        return {"type": ["number", "string"], "minimum": 0}

    def of(self, parameters: float) -> float:
        """Return the number of tokens for a model with the given number of parameters."""
        return self.tokens or self.per_parameter * parameters


@dataclass(frozen=True, slots=True)
class BatchGoal:
    """A global batch: sequences as a number, or tokens as text (``4M``), divided by the sequence length."""

    WANTED: ClassVar = "sequences as a number, or tokens such as 4M"

    text: str

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "BatchGoal":
        """Decode a batch."""
        problem = None
        if not isinstance(raw, str):
            problem = Declaration(help="", at_least=1).problem(int, raw, path)
        if problem is not None:
            problems.append(problem)
            return cls("1")
        result = cls(str(raw))
        # the sequence length is not known yet: a length of 1 checks the spelling only
        _read(lambda: result.sequences(1), path, problems)
        return result

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a batch."""
        return {"type": ["integer", "string"], "minimum": 1}

    def sequences(self, seq_size: int, path: str = "batch") -> int:
        """Return the batch in sequences of the given length.

        Raises:
            SpecError: For less than half a sequence.
        """
        return global_batch(self.text, seq_size, path).sequences


class Length(int):
    """Sequence length in tokens; in files a number, or text such as ``8k``."""

    __slots__ = ()
    WANTED: ClassVar = "integer >= 1, or text such as 8k"

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "Length":
        """Decode a length."""
        if isinstance(raw, str):
            return cls(_read(lambda: sequence_length(raw), path, problems))
        problem = Declaration(help="", at_least=1).problem(int, raw, path)
        if problem is not None:
            problems.append(problem)
            return cls(1)
        number: Any = raw
        return cls(number)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a length."""
        return {"type": ["integer", "string"], "minimum": 1}


def _read(read: Any, path: str, problems: list[Problem]) -> Any:
    """Return the value that a text parser reads; if the parser refuses, add its problems to the list and return 1."""
    try:
        return read()
    except SpecError as error:
        problems += [replace(one, field=path) for one in error.problems]
        return 1
