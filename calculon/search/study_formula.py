"""Arithmetic of a study file: ``gpu_price + 28 * mem1.GiB``; parsed once, never evaluated as Python.

>>> formula = Formula.parse("floor(budget / price)")
>>> formula.names
('budget', 'price')
>>> formula.value({"budget": 100.0, "price": 30.0}.__getitem__)
3.0
"""

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: np.float_power,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sqrt": np.sqrt,
    "log2": np.log2,
}
_WANTED = "numbers, names, + - * / // % **, parentheses and " + ", ".join(_FUNCTIONS)


@dataclass(frozen=True, slots=True)
class Formula:
    """A parsed formula: its text, the names it reads in order, and its tree."""

    text: str
    names: tuple[str, ...]
    tree: ast.expr

    @classmethod
    def parse(cls, text: str) -> "Formula":
        """Read a formula; a name may be a path such as ``networks[0].size``.

        Raises
        ------
        ValueError
            For anything that is not arithmetic: what was expected and what was found.
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            names: dict[str, None] = {}
            _check(tree, names)
        except SyntaxError as error:
            raise ValueError(_WANTED, f"{text!r}: {error.msg}") from None
        except (RecursionError, MemoryError):
            raise ValueError(_WANTED, "too long an expression") from None
        return cls(text, tuple(names), tree)

    def value(self, lookup: Callable[[str], Any]) -> Any:
        """Compute the formula on numbers or on columns.

        Raises
        ------
        ArithmeticError
            For a division by zero of plain numbers.
        """
        return _value(self.tree, lookup)


def _check(node: ast.expr, names: dict[str, None]) -> None:
    """Refuse what is not arithmetic, and collect the names."""
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            pass
        case ast.Name() | ast.Attribute() | ast.Subscript():
            names[ast.unparse(node)] = None
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            _check(operand, names)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            _check(left, names)
            _check(right, names)
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as arguments, keywords=[]) if (
            name in _FUNCTIONS and (len(arguments) == 1 or name in ("min", "max"))
        ):
            for argument in arguments:
                _check(argument, names)
        case _:
            raise ValueError(_WANTED, f"'{ast.unparse(node)}'")


def _value(node: ast.expr, lookup: Callable[[str], Any]) -> Any:
    """Compute a checked node."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(op=op, operand=operand):
            value = _value(operand, lookup)
            return -value if isinstance(op, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_value(argument, lookup) for argument in arguments))
        case _:
            return lookup(ast.unparse(node))
