"""Kinds of the values in a condition: comparisons that can never hold are refused."""

import ast
from collections.abc import Mapping
from typing import Literal, NoReturn

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.fields import SpecField
from calculon.plan.columns import FIELDS

Kind = Literal["number", "switch", "text"]

_FIELDS: Mapping[str, SpecField] = {field.name: field for field in FIELDS}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def check_kinds(text: str, fields: Mapping[str, SpecField] = _FIELDS) -> None:
    """Check that texts are compared with texts only, and fields of named values with their values only.

    Args:
        text: A condition that :class:`~calculon.declarations.expression.Expression` has read, with known names only.
        fields: Fields by name; by default those of executions.

    Raises:
        SpecError: Otherwise, with what to write instead.
    """
    _Kinds(text, fields).of(ast.parse(text.strip(), mode="eval").body)


class _Kinds:
    """Finds the kind of every part of one condition."""

    def __init__(self, text: str, fields: Mapping[str, SpecField]):
        self.text, self._fields = text, fields
        self._known: dict[ast.expr, Kind] = {}

    def of(self, node: ast.expr) -> Kind:
        """Return the kind of a part, each part looked at once."""
        if node not in self._known:
            self._known[node] = self._find(node)
        return self._known[node]

    def _find(self, node: ast.expr) -> Kind:  # noqa: PLR0911 (one return a kind of node)
        match node:
            case ast.Constant(value=value):
                return _kind(type(value))
            case ast.Name(id=name):
                return _kind_of_name(name, self._fields)
            case ast.Compare(left=left, ops=ops, comparators=others):
                self._compare(left, ops, others)
                return "switch"
            case ast.UnaryOp(op=op, operand=operand):
                self._no_text(operand)
                return "switch" if isinstance(op, ast.Not) else "number"
            case ast.BoolOp(values=values):
                self._no_text(*values)
                return "switch"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._no_text(test)
                self._alike(body, orelse)
                return self.of(body)
            case ast.BinOp(left=left, right=right):
                self._no_text(left, right)
            case ast.Call(args=arguments):
                self._no_text(*arguments)
        return "number"

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], others: list[ast.expr]) -> None:
        for op, other in zip(ops, others, strict=True):
            members = other.elts if isinstance(other, (ast.Tuple, ast.List)) else [other]
            if isinstance(op, _ORDER):
                self._no_text(left, *members)
            for member in members:
                self._alike(left, member)
                self._takes(left, member)
                self._takes(member, left)
            left = other

    def _alike(self, one: ast.expr, other: ast.expr) -> None:
        """Refuse to compare a text with a number."""
        if (self.of(one) == "text") != (self.of(other) == "text"):
            found = f"{ast.unparse(one)} and {ast.unparse(other)}"
            hint = _unquoted(one, other) or _quoted(one, other, self._fields)
            hint = hint or _quoted(other, one, self._fields)
            self._refuse("two texts or two numbers to compare", found, hint)

    def _takes(self, name: ast.expr, value: ast.expr) -> None:
        """Refuse a text that a field never holds."""
        match name, value:
            case ast.Name(id=field), ast.Constant(value=str(text)):
                choices = self._fields[field].declaration.choices
                if text not in choices:
                    wanted = f"a value of {field}: {', '.join(getattr(choices, 'usual', choices))}"
                    self._refuse(wanted, repr(text), nearest(text, choices))

    def _no_text(self, *nodes: ast.expr) -> None:
        """Refuse a text where a number is needed."""
        for node in nodes:
            if self.of(node) == "text":
                self._refuse("texts with ==, != and in only", ast.unparse(node), _unquoted(node))

    def _refuse(self, expected: str, found: str, hint: str) -> NoReturn:
        raise SpecError("where", Problem(self.text, expected, found, hint))


def _kind(kind: type) -> Kind:
    return "switch" if kind is bool else "text" if kind is str else "number"


def _kind_of_name(name: str, fields: Mapping[str, SpecField]) -> Kind:
    """Return the kind of a statistic, a field or a constant."""
    if name in ("true", "false"):
        return "switch"
    return _kind(fields[name].annotation) if name in fields else "number"


def _quoted(name: ast.expr, value: ast.expr, fields: Mapping[str, SpecField]) -> str:
    """Return the hint to quote a number that is a named value of a field."""
    match name, value:
        case ast.Name(id=field), ast.Constant(value=number):
            if field in fields and str(number) in fields[field].declaration.choices:
                return f"write {str(number)!r}"
    return ""


def _unquoted(*nodes: ast.expr) -> str:
    """Return the hint to leave quotes away where a text reads as something else."""
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)):
                try:
                    float(text)
                except ValueError:
                    if text.lower() not in ("true", "false"):
                        continue
                return f"write {text} without quotes"
    return ""
