"""Expressions of study files: arithmetic, comparisons and a choice over named values, and nothing else."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calculon.errors import Problem
from calculon.spec.fields import shown

_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
WANTED = (
    "an expression of names, numbers, 'texts', + - * / // %, comparisons, and, or, not, if else"
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes
    ----------
    text : str
        As it stands in the file.
    names : tuple of str
        The names it needs, in order of appearance.

    Examples
    --------
    >>> Expression.parse("num_gpus / (tp * pp)").value({"num_gpus": 64, "tp": 8, "pp": 4})
    2.0
    >>> Expression.parse("heads or 96").value({"heads": None})
    96
    """

    text: str
    names: tuple[str, ...]
    _tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> "Expression":
        """Parse an expression.

        Raises
        ------
        ValueError
            When it is not one, or asks for more than arithmetic; the message says what was found.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError):
            raise ValueError(repr(text)) from None
        for node in ast.walk(tree):
            _check(node)
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
        names = dict.fromkeys(node.id for node in found)
        return cls(text, tuple(names), tree)

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode the text of a study file; see :class:`calculon.spec.decode.Decodable`."""
        if isinstance(raw, (int, float)):
            raw = repr(raw)
        try:
            if isinstance(raw, str):
                return cls.parse(raw)
            problems.append(Problem(path, WANTED, shown(raw)))
        except ValueError as error:
            problems.append(Problem(path, WANTED, str(error)))
        return None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of the text."""
        return {"type": ["string", "number"]}

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return the value for some values of the names; they may be arrays.

        Raises
        ------
        ValueError
            When the values do not go together: a division by zero, arithmetic with a blank cell or a text.
        """
        try:
            return _value(self._tree, names)
        except (TypeError, ZeroDivisionError, OverflowError):
            given = ", ".join(f"{name}={_cell(names[name])}" for name in self.names)
            raise ValueError(f"no value for {self.text}" + f" with {given}" * bool(given)) from None


def _cell(value: object) -> str:
    return "(blank)" if value is None else shown(value)


def _check(node: ast.AST) -> None:
    """Refuse a node of the tree that is more than arithmetic."""
    if isinstance(node, ast.Constant):
        if not isinstance(node.value, (int, float, str)):
            raise ValueError(repr(node.value))
        return
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        raise ValueError("a chain of comparisons")
    plain = (ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp)
    if not isinstance(node, (*plain, ast.And, ast.Or, *_BINARY, *_UNARY)):
        raise ValueError(f"the unknown part {type(node).__name__}")


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names[name]
        case ast.BinOp(left, op, right) | ast.Compare(left, [op], [right]):
            return _BINARY[type(op)](_value(left, names), _value(right, names))
        case ast.UnaryOp(op, operand):
            return _UNARY[type(op)](_value(operand, names))
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.BoolOp(op, values):
            found: Any = None
            for one in values:
                found = _value(one, names)
                if bool(found) == isinstance(op, ast.Or):
                    break
            return found
    raise AssertionError(node)
