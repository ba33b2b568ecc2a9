"""Selection of catalog rows: by name, by family, and by a condition on columns."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.expression import Expression, ExpressionError
from calculon.render.text_tables import Table


def chosen(table: Table, words: Sequence[str]) -> Table:
    """Return the rows whose name contains one of some words, ignoring case; all rows if there are no words."""
    rows = [
        row
        for row in table.rows
        if not words or any(word.lower() in row["name"].lower() for word in words)
    ]
    return replace(table, rows=rows)


def filtered(
    tables: Mapping[str, Table], family: str | None, where: str | None, option: str = ""
) -> dict[str, Table]:
    """Return the tables with the rows of a family that meet a condition; drop tables that lack its columns.

    `option` is the prefix of argument names in messages.

    Raises:
        SpecError: For an unknown family, an invalid condition, and names that no table has.
    """
    chosen = dict(tables)
    if family:
        rows = {
            name: [row for row in table.rows if family.lower() in row.get("family", "").lower()]
            for name, table in tables.items()
        }
        if not any(rows.values()):
            known = {
                row["family"]: 0
                for table in tables.values()
                for row in table.rows
                if row.get("family")
            }
            hint = (
                "families are " + ", ".join(sorted(known))
                if known
                else "models and systems have families"
            )
            # A family that matches nothing is a typing error: an empty list would hide it.
            raise SpecError(
                f"{option}family",
                Problem("", "a family, or a part of its name", repr(family), hint),
            )
        chosen = {
            name: replace(table, rows=rows[name]) for name, table in tables.items() if rows[name]
        }
    return _meeting(chosen, where, option) if where else chosen


def _meeting(tables: Mapping[str, Table], where: str, option: str) -> dict[str, Table]:
    """Return the tables that have all columns of a condition, with the rows that meet it."""
    wanted = "a condition on columns, such as 'memory >= 100'"
    try:
        condition = Expression.parse(where)
    except ExpressionError as error:
        raise SpecError(f"{option}where", Problem("", wanted, error.found)) from None
    keys = {name: [column.key for column in table.columns] for name, table in tables.items()}
    able = [name for name, known in keys.items() if set(condition.names) <= set(known)]
    if not able or not condition.names:
        known = list(dict.fromkeys(key for some in keys.values() for key in some))
        strange = next((name for name in condition.names if name not in known), "")
        hint = (strange and nearest(strange, known)) or "see: calculon catalog systems --format csv"
        raise SpecError(f"{option}where", Problem("", wanted, repr(where), hint))

    def meets(row: Mapping[str, Any]) -> bool:
        try:
            return bool(condition.value(row.__getitem__))
        except (TypeError, ValueError, ArithmeticError):
            problem = Problem("", wanted, "values of incompatible types")
            raise SpecError(f"{option}where", problem) from None

    return {name: replace(tables[name], rows=[*filter(meets, tables[name].rows)]) for name in able}
