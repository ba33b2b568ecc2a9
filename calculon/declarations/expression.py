"""User expressions: arithmetic, comparisons and conditionals over named values, parsed once, never run as Python.

The same expression works on plain values and, name by name, on columns. Conditions of a search, quantities of a study
and columns of a table of measurements use it.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import reduce
from typing import Any, Self

import numpy as np

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown

Lookup = Callable[[str], Any]
"""Function that returns the value, or the column, of a name."""

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sqrt": np.sqrt,
    "log2": np.log2,
}
"""Functions of the language; only min and max take several values."""

WANTED = (
    "an expression of names, numbers, 'texts', + - * / // % **, comparisons, and, or, not, in, if else, "
    + ", ".join(FUNCTIONS)
)

_BINARY: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: np.float_power,
}
_COMPARE: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ExpressionError(ValueError):
    """Error for a text that is not an expression; ``found`` describes the text."""

    def __init__(self, found: str):
        self.found = found
        super().__init__(f"expected {WANTED}, found {found}")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: Text as written.
        names: Names that it reads, in order of appearance; a name may be a path such as ``networks[0].size``.

    Examples:
        >>> Expression.parse("num_gpus / (tp * pp)").value({"num_gpus": 64, "tp": 8, "pp": 4}.__getitem__)
        2.0
        >>> Expression.parse("heads or 96").value({"heads": None}.__getitem__)
        96
        >>> Expression.parse("time < 60 and tp <= 8").value({"time": np.array([50, 70]), "tp": 4}.__getitem__)
        array([ True, False])
    """

    text: str
    names: tuple[str, ...]
    _tree: ast.expr = field(repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an expression.

        Raises:
            ExpressionError: If the text is not an expression of this language.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            names: dict[str, None] = {}
            _check(tree, names)
        except SyntaxError as error:
            raise ExpressionError(f"{text!r}: {error.msg}") from None
        # Python's parser itself fails on deep nesting, before the check below can count levels.
        except (RecursionError, MemoryError):
            raise ExpressionError("too long an expression") from None
        except ValueError as error:
            if isinstance(error, ExpressionError):
                raise
            raise ExpressionError(f"{text!r}: {error}") from None
        return cls(text, tuple(names), tree)

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float = 1.0) -> Any:
        """Decode an expression (or a number) of a file; see :class:`calculon.declarations.decode.Decodable`."""
        text = repr(raw) if isinstance(raw, (int, float)) else raw
        try:
            if isinstance(text, str):
                return cls.parse(text)
            problems.append(Problem(path, WANTED, shown(raw)))
        except ExpressionError as error:
            problems.append(Problem(path, WANTED, error.found))
        return None

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of an expression of a file."""
        return {"type": ["string", "number"]}

    def of(self, values: Mapping[str, Any]) -> Any:
        """Compute the expression from values or columns by name.

        Raises:
            ValueError: For incompatible values: a division by zero, arithmetic with a blank cell or a text.
        """
        try:
            return self.value(values.__getitem__)
        except (TypeError, ArithmeticError):
            pairs = ((name, values[name]) for name in self.names)
            given = ", ".join(f"{n}={'(blank)' if v is None else shown(v)}" for n, v in pairs)
            raise ValueError(f"no value for {self.text}" + f" with {given}" * bool(given)) from None

    def value(self, lookup: Lookup) -> Any:
        """Compute the expression.

        Raises:
            ArithmeticError, TypeError: For a division of plain numbers by zero, or incompatible values.
        """
        # Columns may divide by zero in rows that another condition excludes; the caller checks the results.
        with np.errstate(all="ignore"):
            return _value(self._tree, lookup)


_DEEPEST = 200  # levels of a tree; a sum has one for each term


def _check(node: ast.expr, names: dict[str, None], level: int = 0) -> None:
    """Refuse a tree outside of the language, and collect its names."""
    if level == _DEEPEST:
        raise ExpressionError("too long an expression")
    children: list[ast.expr] = []
    match node:
        case ast.Name() | ast.Attribute() | ast.Subscript() if _is_path(node):
            names[ast.unparse(node)] = None
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd(), operand=operand):
            children = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARE for op in ops
        ):
            children = [left, *others]
        case ast.Compare(
            left=left,
            ops=[ast.In() | ast.NotIn()],
            comparators=[ast.Tuple(elts=members) | ast.List(elts=members)],
        ):
            children = [left, *members]
        case ast.BoolOp(values=children):
            pass
        case ast.IfExp(test=test, body=body, orelse=orelse):
            children = [body, test, orelse]
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as children, keywords=[]) if (
            name in FUNCTIONS and (len(children) == 1 or name in ("min", "max"))
        ):
            pass
        case _:
            raise ExpressionError(f"'{ast.unparse(node)}'")
    for child in children:
        _check(child, names, level + 1)


def _is_path(node: ast.expr) -> bool:
    """Return True if a node is a name, or a path of names and whole-number positions that starts with a name."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value):
            return _is_path(value)
        case ast.Subscript(value=value, slice=ast.Constant(value=int())):
            return _is_path(value)
    return False


def _value(node: ast.expr, lookup: Lookup) -> Any:  # noqa: PLR0911 (one return a kind of node)
    """Compute a checked tree."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, _value(operand, lookup))
        case ast.BinOp(left=left, op=op, right=right):
            operands = _number(_value(left, lookup)), _number(_value(right, lookup))
            return _BINARY[type(op)](*operands)
        case ast.Compare():
            return _compare(node, lookup)
        case ast.BoolOp(op=op, values=values):
            return _join(isinstance(op, ast.And), values, lookup)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen = _value(test, lookup)
            if _is_column(chosen):
                # Rows of a column take different branches, so both are computed.
                return np.where(chosen, _value(body, lookup), _value(orelse, lookup))
            return _value(body if chosen else orelse, lookup)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(_value(argument, lookup) for argument in arguments))
    return lookup(ast.unparse(node))


def _is_column(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _number(value: Any) -> Any:
    """Return a number to compute with, so that True in a column counts as 1.

    Text is refused: repeating it (``'a' * 10**9``) could fill the memory.
    """
    if isinstance(value, str):
        raise TypeError("arithmetic with a text")
    return value.astype(np.int64) if _is_column(value) and value.dtype == bool else value


def _unary(op: ast.unaryop, value: Any) -> Any:
    if isinstance(op, ast.Not):
        return np.logical_not(value) if _is_column(value) else not value
    return -_number(value) if isinstance(op, ast.USub) else value


def _join(every: bool, nodes: list[ast.expr], lookup: Lookup) -> Any:
    """Compute ``and`` or ``or``: row by row on columns, and as Python does on plain values."""
    result = _value(nodes[0], lookup)
    for node in nodes[1:]:
        # Plain values short-circuit as in Python, so that `x and 1 / x` is safe.
        if not _is_column(result) and bool(result) != every:
            return result
        following = _value(node, lookup)
        if _is_column(result) or (_is_column(following) and result is not None):
            result = (np.logical_and if every else np.logical_or)(result, following)
        else:
            result = following
    return result


def _compare(node: ast.Compare, lookup: Lookup) -> Any:
    """Compute a chain of comparisons, or a membership test."""
    first = _value(node.left, lookup)
    match node.ops[0], node.comparators[0]:
        case ast.In() | ast.NotIn() as op, (ast.Tuple(elts=members) | ast.List(elts=members)):
            found: Any = np.zeros(np.shape(first), bool)
            for member in members:
                found = np.logical_or(found, first == _value(member, lookup))
            return found if isinstance(op, ast.In) else np.logical_not(found)
    result: Any = None
    for comparison, other in zip(node.ops, node.comparators, strict=True):
        second = _value(other, lookup)
        holds = _COMPARE[type(comparison)](first, second)
        result = holds if result is None else np.logical_and(result, holds)
        first = second
    return result
