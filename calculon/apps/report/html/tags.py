"""Just enough HTML: elements whose texts are escaped, and tables that a small script can sort."""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calculon.apps.report.text_tables import Table


class Html(str):
    """Text that is HTML already; any other text is escaped when it becomes part of an element."""

    __slots__ = ()


VOID = {"meta", "br"}
"""Elements without content."""


def element(tag: str, /, *content: str, **attributes: str | float | None) -> Html:
    """Return an element; a trailing ``_`` of an attribute's name is dropped, others become ``-``.

    >>> element("td", "a < b", class_="right", data_value=1)
    '<td class="right" data-value="1">a &lt; b</td>'
    """
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{joined(content)}</{tag}>")


def joined(parts: Iterable[str], between: str = "") -> Html:
    """Join parts, escaping those that are plain text."""
    return Html(between.join(p if isinstance(p, Html) else html.escape(p) for p in parts))


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, and the number or text that it is sorted by."""

    text: str
    value: float | str | None = None


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    numbers: Sequence[bool],
    sortable: bool = False,
    footer: Sequence[str] = (),
) -> Html:
    """Return a table; columns of `numbers` are set to the right."""
    align = ["right" if number else None for number in numbers]
    head = [
        element("th", title, class_=side, scope="col")
        for title, side in zip(titles, align, strict=True)
    ]
    body = [
        element(
            "tr",
            *(
                element("td", cell.text, class_=side, data_value=_key(cell) if sortable else None)
                for cell, side in zip(row, align, strict=True)
            ),
        )
        for row in rows
    ]
    foot = [element("td", text, class_=side) for text, side in zip(footer, align, strict=False)]
    parts = [
        element("thead", element("tr", *head)),
        element("tbody", joined(body, "\n")),
        *([element("tfoot", element("tr", *foot))] if foot else []),
    ]
    inner = element("table", joined(parts, "\n"), class_="sortable" if sortable else None)
    return element("div", inner, class_="scroll")


def _key(cell: Cell) -> str | float:
    return cell.text if cell.value is None else cell.value


def plain_table(one: Table, *, sortable: bool = False) -> Html:
    """Return a table of plain values."""
    shown = [column for column in one.columns if column.for_people]
    rows = []
    for row in one.rows:
        raw = [row[column.key] for column in shown]
        rows.append(
            [
                Cell(column.text(value), value if isinstance(value, int | float) else None)
                for column, value in zip(shown, raw, strict=True)
            ]
        )
    return table(
        [column.title or column.key for column in shown],
        rows,
        numbers=[column.right for column in shown],
        sortable=sortable,
    )
