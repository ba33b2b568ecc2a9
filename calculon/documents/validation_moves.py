"""Tables of changes of errors since an earlier ``calculon lv --format json``."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from calculon.render.text_tables import Column, Table
from calculon.validate.baseline import MOVED_ROWS, Moves

Rows = Sequence[dict[str, Any]]


def _written(form: str, value: float | None) -> str:
    return "" if value is None else format(value, form)


_percent, _points = partial(_written, ".1f"), partial(_written, "+.1f")

EDITION = Column("edition", "edition", drop=1)
CHANGE = (
    Column("before", "before", right=True, text=_percent),
    Column("now", "now", right=True, text=_percent),
    Column("change", "change", right=True, text=_points),
)


def move_tables(moves: Moves) -> Iterator[tuple[str, Table, str]]:
    """Yield title, table and an empty note for the classes, the studies, and the rows with the largest changes."""
    studies = (Column("study", "study"), Column("quantity", "quantity", fold=True), EDITION)
    forms: tuple[tuple[str, tuple[Column, ...], Rows], ...] = (
        (
            "Since the baseline: median absolute error by class and source, in percent and points",
            (Column("heading", "class, source", fold=True), EDITION, *CHANGE),
            [one | {"heading": _heading(one)} for one in moves.classes],
        ),
        (
            "Since the baseline: median absolute error by study",
            (*studies, *CHANGE),
            moves.studies,
        ),
        (
            f"Since the baseline: the {MOVED_ROWS} rows whose errors changed most",
            (*studies, Column("row", "row", fold=True), *CHANGE),
            moves.rows[:MOVED_ROWS],
        ),
    )
    for title, columns, rows in forms:
        yield title, Table(columns, rows, "--format markdown"), ""


def _heading(one: dict[str, Any]) -> str:
    return f"  {one['name']}" if one["name"] else str(one["class"])
