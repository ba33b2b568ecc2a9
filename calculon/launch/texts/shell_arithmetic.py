"""Integer arithmetic and comparisons of numbers and texts in shell scripts."""

import ast
import operator
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from calculon.launch.texts.reading_budget import Budget

_COMPARE: dict[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "gt", "ge", "lt", "le")
}


def evaluate_integer(text: str, number: Callable[[str], int]) -> int:
    """Return the value of an integer expression.

    Args:
        text: The expression.
        number: Function from the name of a variable to its integer value.

    Raises:
        ValueError, SyntaxError, ZeroDivisionError: For anything else.
    """
    text = text.strip()
    mark = text.find("?", 1)
    colon = text.find(":", mark + 2) if mark > 0 else -1
    if 0 < colon < len(text) - 1:  # C's conditional expression
        holds = evaluate_integer(text[:mark], number)
        return evaluate_integer(text[mark + 1 : colon] if holds else text[colon + 1 :], number)
    # Shell arithmetic and Python share operators and precedence for the supported subset.
    return _value(ast.parse(text, mode="eval").body, number)


def _value(node: ast.AST, number: Callable[[str], int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return number(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, number)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        found = _COMPARISONS.get(type(node.ops[0]))
        if found:
            return int(found(_value(node.left, number), _value(node.comparators[0], number)))
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left, number), _value(node.right, number))
    raise ValueError(node)


def _divided(a: int, b: int) -> int:
    """Return a quotient rounded towards 0, as in C and shells."""
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


_ARITHMETIC: dict[Any, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divided,
    ast.Mod: lambda a, b: a - b * _divided(a, b),
}
_COMPARISONS: dict[Any, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def comparison_result(first: str, sign: str, second: str, budget: Budget) -> bool | None:
    """Return the value of a comparison in ``[ ]``; None for an unknown operator."""
    if sign in ("=", "==", "!="):
        return alike(first, second, budget) is not (sign == "!=")
    if sign in ("<", ">"):
        return first < second if sign == "<" else first > second
    try:
        return _COMPARE[sign](int(first or 0), int(second or 0))
    except (KeyError, ValueError):
        return None


def alike(text: str, pattern: str, budget: Budget) -> bool:
    """Return true if a text matches a shell pattern; the pattern spends from the budget, as it is compiled."""
    if not re.search(r"[*?\[]", pattern):
        return text == pattern
    budget.spend_values(len(pattern))
    return fnmatchcase(text, pattern.replace("[^", "[!"))


def literal(pattern: str, word: str) -> str:
    """Return a word as a pattern; in a quoted word, special characters stand for themselves.

    >>> literal("a*", "a*"), literal("a*", "'a*'")
    ('a*', 'a[*]')
    """
    return re.sub(r"([*?\[])", r"[\1]", pattern) if word[:1] in ("'", '"') else pattern
