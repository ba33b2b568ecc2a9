"""A condition on statistics and execution fields, parsed once and applied to columns; never evaluated as Python.

>>> condition = Condition.parse("total_time < 60 and tensor_par <= 8")
>>> sorted(condition.names)
['tensor_par', 'total_time']
>>> condition.mask({"total_time": np.array([50.0, 70.0]), "tensor_par": np.array([4, 4])}.__getitem__)
array([ True, False])
"""

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from calculon.errors import Problem, SpecError, nearest
from calculon.plan.plan import FIELDS, NAMES
from calculon.records import columns
from calculon.statistics import Stats
from calculon.units import GIB, GIGA, MEGA, TERA, Array

CONSTANTS = {
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": GIB,
    "TiB": 2.0**40,
    "MB": MEGA,
    "GB": GIGA,
    "TB": TERA,
    "true": True,
    "false": False,
}
"""Names that stand for a number, so that ``proc_mem_tier1_cap_req < 70 * GiB`` can be written."""

Lookup = Callable[[str], Array]
"""Returns the column of a name."""

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: np.divide,
    ast.Mod: np.mod,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition: its text, the names it reads, and its tree."""

    text: str
    names: frozenset[str]
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read comparisons, arithmetic, ``and``, ``or``, ``not``, ``in`` and parentheses.

        Raises
        ------
        SpecError
            For anything else, and for names that are neither statistics nor execution fields (with the nearest).
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            message = getattr(error, "msg", None) or "too long an expression"
            raise _problem(text, "an expression such as 'total_time < 60'", message) from None
        names: set[str] = set()
        try:
            _check(tree, text, names)
            with np.errstate(all="ignore"):
                example = np.asarray(_value(tree, _example))
        except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            if isinstance(error, SpecError):
                raise
            raise _problem(text, "operations that fit their values", str(error)) from None
        except RecursionError:
            raise _problem(text, "a short expression", "too long an expression") from None
        if example.dtype != bool:
            raise _problem(text, "a condition, which is true or false", "another value")
        return cls(text, frozenset(names), tree)

    def mask(self, lookup: Lookup) -> Array:
        """Return which rows meet the condition; a comparison with not-a-number is false."""
        with np.errstate(all="ignore"):
            return np.asarray(_value(self.tree, lookup), bool)


def known_names() -> tuple[str, ...]:
    """Return the names that a condition may use."""
    return (*NAMES, *(column.name for column in columns(Stats)), *CONSTANTS)


def _example(name: str) -> Array:
    """Return a column of one row, to try an expression on."""
    field = next((field for field in FIELDS if field.name == name), None)
    if field is None:
        return np.ones(1)
    if choices := field.declaration.choices:
        return np.array(choices[:1])
    return np.ones(1, bool if field.annotation is bool else np.int64)


def _problem(text: str, wanted: str, found: str, hint: str = "") -> SpecError:
    return SpecError("where", Problem(text, wanted, found, hint))


def _check(node: ast.expr, text: str, names: set[str]) -> None:
    """Refuse what is not an expression on columns, and collect the names."""
    match node:
        case ast.Name(id=name):
            if name not in known_names():
                hint = nearest(name, known_names()) or "see: calculon describe stats"
                raise _problem(text, "a statistic or an execution field", repr(name), hint)
            if name not in CONSTANTS:
                names.add(name)
        case ast.Constant(value=bool() | int() | float() | str()):
            pass
        case ast.Compare(left=left, ops=ops, comparators=others):
            if any(type(op) not in (*_COMPARE, ast.In, ast.NotIn) for op in ops):
                raise _problem(text, "a comparison (<, <=, >, >=, ==, !=, in)", "another operator")
            children = [left, *others]
            if isinstance(ops[-1], ast.In | ast.NotIn):
                children[-1:] = _members(others[-1], text)
            if any(isinstance(op, ast.In | ast.NotIn) for op in ops[:-1]):
                raise _problem(text, "nothing compared after a list", f"'{ast.unparse(node)}'")
            for child in children:
                _check(child, text, names)
        case ast.BoolOp(values=values):
            for child in values:
                _check(child, text, names)
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            _check(operand, text, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            _check(left, text, names)
            _check(right, text, names)
        case _:
            found = f"'{ast.unparse(node)}'"
            raise _problem(text, "names, numbers, comparisons, and, or, not", found)


def _members(node: ast.expr, text: str) -> list[ast.expr]:
    """Return the members of the list that ``in`` looks into."""
    if isinstance(node, ast.Tuple | ast.List):
        return node.elts
    raise _problem(text, "a list such as (1, 2) after in", f"'{ast.unparse(node)}'")


def _number(value: Any) -> Array:
    """Return a value to compute with: true counts as 1."""
    array = np.asarray(value)
    return array.astype(np.int64) if array.dtype == bool else array


def _value(node: ast.expr, lookup: Lookup) -> Any:  # noqa: PLR0911 (one return a kind of node)
    """Compute a checked node on columns."""
    match node:
        case ast.Name(id=name):
            return CONSTANTS[name] if name in CONSTANTS else lookup(name)
        case ast.Constant(value=value):
            return value
        case ast.BoolOp(op=op, values=values):
            combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
            masks = [_value(value, lookup) for value in values]
            result = masks[0]
            for mask in masks[1:]:
                result = combine(result, mask)
            return result
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, lookup)
            return np.logical_not(value) if isinstance(op, ast.Not) else -_number(value)
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _number(_value(left, lookup)), _number(_value(right, lookup))
            return _ARITHMETIC[type(op)](first, second)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compare(left, ops, others, lookup)
        case ast.Tuple(elts=values) | ast.List(elts=values):
            return [_value(value, lookup) for value in values]
    raise AssertionError(ast.dump(node))


def _compare(
    left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr], lookup: Lookup
) -> Any:
    """Compute a chain of comparisons."""
    result: Any = True
    first = _value(left, lookup)
    for op, other in zip(operators, others, strict=True):
        second = _value(other, lookup)
        if isinstance(op, ast.In | ast.NotIn):
            mask: Any = False
            for member in second:
                mask = np.logical_or(mask, first == member)
            if isinstance(op, ast.NotIn):
                mask = np.logical_not(mask)
        else:
            mask = _COMPARE[type(op)](first, second)
        result = np.logical_and(result, mask)
        first = second
    return result
