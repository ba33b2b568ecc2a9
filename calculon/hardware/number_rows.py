"""Lists of short rows of numbers in system files: steps of a curve, tiles, measured kernels."""

from collections.abc import Sequence
from typing import Any

from calculon.base.errors import Problem
from calculon.declarations.fields import Declaration, shown


def decode_rows(
    raw: object, path: str, problems: list[Problem], row: str, rules: Sequence[Declaration]
) -> list[tuple[float, ...]] | None:
    """Decode a list of at least one row, each number by the rule of its column.

    Args:
        raw: The list as the parser gave it.
        path: Its field, for messages.
        problems: Gets everything that is wrong; then nothing is returned.
        row: A row in words, such as ``pair [threshold, efficiency]``.
        rules: One for each column.
    """
    if not isinstance(raw, (list, tuple)) or not raw:
        noun, _, columns = row.partition(" ")
        problems.append(Problem(path, f"a list of {noun}s {columns}", shown(raw)))
        return None
    before = len(problems)
    for i, one in enumerate(raw):
        place = f"{path}[{i}]"
        if not isinstance(one, (list, tuple)) or len(one) != len(rules):
            problems.append(Problem(place, f"a {row}", shown(one)))
            continue
        for j, (rule, value) in enumerate(zip(rules, one, strict=True)):
            if problem := rule.problem(float, value, f"{place}[{j}]"):
                problems.append(problem)
    return None if len(problems) > before else [tuple(map(float, one)) for one in raw]


def row_schema(*columns: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a row from those of its columns."""
    length = {"items": False, "minItems": len(columns), "maxItems": len(columns)}
    return {"type": "array", "prefixItems": list(columns), **length}


def rows_schema(*rules: Declaration) -> dict[str, Any]:
    """Return the JSON Schema of a list of at least one row."""
    row = row_schema(*(rule.schema(float) for rule in rules))
    return {"type": "array", "minItems": 1, "items": row}
