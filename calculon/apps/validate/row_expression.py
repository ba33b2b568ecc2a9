"""Expressions of study files: those of :mod:`calculon.expression`, with messages that show the values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calculon import expression
from calculon.errors import Problem
from calculon.spec.fields import shown


@dataclass(frozen=True, slots=True)
class Expression(expression.Expression):
    """An expression of a study file."""

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the text of a study file; see :class:`calculon.spec.decode.Decodable`."""
        if isinstance(raw, (int, float)):
            raw = repr(raw)
        try:
            if isinstance(raw, str):
                return cls.parse(raw)
            problems.append(Problem(path, expression.WANTED, shown(raw)))
        except expression.ExpressionError as error:
            problems.append(Problem(path, expression.WANTED, error.found))
        return None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the text."""
        return {"type": ["string", "number"]}

    def of(self, names: Mapping[str, Any]) -> Any:
        """Return the value for some values of the names; they may be arrays.

        Raises
        ------
        ValueError
            When the values do not go together: a division by zero, arithmetic with a blank cell or a text.
        """
        try:
            return self.value(names.__getitem__)
        except (TypeError, ArithmeticError):
            given = ", ".join(f"{name}={_cell(names[name])}" for name in self.names)
            raise ValueError(f"no value for {self.text}" + f" with {given}" * bool(given)) from None


def _cell(value: object) -> str:
    return "(blank)" if value is None else shown(value)
