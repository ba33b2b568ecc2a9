"""Conditions as people write them, ``GiB < 60 and tp <= 8`` or ``MFU > 40 %``, as conditions on names and numbers."""

import ast
import re
from collections.abc import Collection

from calculon.base.errors import Problem, SpecError
from calculon.declarations.short_names import STATISTICS, field_name
from calculon.search.objective import statistic_name

_UNITS = {"%": "0.01", "s": "1", "ms": "1e-3"}
"""Units behind a number; those of memory are constants of the language."""

_TEXT = r"'[^']*'|\"[^\"]*\""
_NUMBER = r"(?<![\w.])(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_UNIT = r"(?P<unit>(?:[KMGT]iB|[MGT]B|ms|s)\b|%(?=\s*(?:$|\)|,|<|>|=|!|and\b|or\b|else\b|if\b|\])))"
_WITH_UNIT = re.compile(rf"{_TEXT}|{_NUMBER}\s*{_UNIT}")

_GIB = "GiB"
_MEMORY = tuple(short for short, name in STATISTICS.items() if name == STATISTICS["memory"])

_SMALLEST = 2**20
"""Bytes below which a number beside memory is taken for one whose unit is missing."""


def plain(text: str, known: Collection[str]) -> str:
    """Return a condition with the full names of fields and statistics, and without units behind numbers.

    Args:
        text: The condition; what is no expression is returned as it is.
        known: Names that stand for themselves.

    Raises:
        SpecError: Where ``memory`` is compared with fewer bytes than any plan needs: a unit is missing.

    Examples:
        >>> plain("GiB < 60 and TP <= 8", ["GiB", "tensor_par"])
        'proc_mem_tier1_cap_req / GiB < 60 and tensor_par <= 8'
        >>> plain("memory < 60 GiB and MFU > 40 %", ["GiB", "mfu"])
        'proc_mem_tier1_cap_req < 60 * GiB and mfu > 40 * 0.01'
    """
    with_factors = _WITH_UNIT.sub(_factor, text.strip())
    names = _Names(text, known)
    try:
        tree = names.visit(ast.parse(with_factors, mode="eval"))
        changed = names.changed or with_factors != text.strip()
        return ast.unparse(tree) if changed else text
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SpecError):
            raise
        return text  # which is told where it is read


def _factor(found: "re.Match[str]") -> str:
    """Return a number with a unit as a product."""
    unit = found["unit"]
    return found[0] if unit is None else f"({found['number']} * {_UNITS.get(unit, unit)})"


class _Names(ast.NodeTransformer):
    """Puts the full names of fields and statistics in the place of others."""

    def __init__(self, text: str, known: Collection[str]):
        self._text, self._known = text, known
        self.changed = False

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the full name that a short one means."""
        if node.id in self._known:
            return node
        found = field_name(node.id)
        return self._named(statistic_name(node.id) if found == node.id else found, node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Read ``GiB`` beside a number as the memory needed, as tables call it, and ask for a unit beside memory."""
        sides = [node.left, *node.comparators]
        numbers = [
            one.value
            for one in sides
            if isinstance(one, ast.Constant) and isinstance(one.value, int | float)
        ]
        if numbers:
            node.left, *node.comparators = (self._beside(one, numbers) for one in sides)
        return self.generic_visit(node)

    def _beside(self, side: ast.expr, numbers: list[int | float]) -> ast.expr:
        """Return a side of a comparison with numbers."""
        name = side.id if isinstance(side, ast.Name) else ""
        if name == _GIB:
            needed = self._named(STATISTICS["memory"], side)
            return ast.copy_location(ast.BinOp(needed, ast.Div(), side), side)
        if name.lower() in _MEMORY and (few := [one for one in numbers if 0 < one < _SMALLEST]):
            hint = f"write {few[0]:g} GiB"
            raise SpecError(
                "where", Problem(self._text, f"{name} with a unit", f"{few[0]:g}", hint)
            )
        return side

    def _named(self, name: str, node: ast.expr) -> ast.expr:
        self.changed = self.changed or not (isinstance(node, ast.Name) and node.id == name)
        return ast.copy_location(ast.Name(name, ast.Load()), node)
