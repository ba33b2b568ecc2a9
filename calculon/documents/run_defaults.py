"""The defaults of whole runs that nobody stated, each with its source, on pages whose subject is another."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from calculon.base.units import aged
from calculon.render.grids import indented
from calculon.render.text_tables import Column, Table
from calculon.render.texts import heading

Document = Mapping[str, Any]


def defaults_section(rows: Iterable[Document]) -> Iterator[RenderableType]:
    """Yield the defaults with an effect as a table.

    Parameters
    ----------
    rows : iterable of mapping
        Defaults with ``field``, ``value``, ``unit``, ``source`` and whether they count (``counts``).
    """
    cells = [
        {"field": one["field"], "value": value_of(one), "source": one["source"]}
        for one in rows
        if one["counts"]
    ]
    if not cells:
        return
    yield heading("Assumed of the run", "--set campaign.FIELD=VALUE states it")
    columns = (
        Column("field", "field"),
        Column("value", "value", right=True),
        Column("source", "source", fold=True),
    )
    yield indented(Table(columns, cells))


def defaults_line(rows: Iterable[Document], prices: Iterable[Document] = ()) -> Text:
    """Return the defaults with an effect in a paragraph, before them the prices of a processor-hour, by system."""
    told = [
        f"{one['field'].partition('.')[2]} {value_of(one)} ({one['source']})"
        for one in rows
        if one["counts"]
    ]
    priced = [
        " ".join(
            part
            for part in (
                "price",
                one.get("system"),
                f"{one['usd']:,.2f} USD/h ({price_words(one)})",
            )
            if part
        )
        for one in prices
        if one["source"]
    ]
    told = [*priced, *told]
    return Text(f"Assumed of the run: {'; '.join(told)}." if told else "", "dim")


def price_words(price: Document) -> str:
    """Write kind, date and source of a price."""
    kind = price["kind"].replace("_", " ")
    return ", ".join(part for part in (kind, aged(price["date"]), price["source"]) if part)


def value_of(one: Document) -> str:
    """Write the value of a default with its unit.

    >>> value_of({"value": 50677.0, "unit": "h"}), value_of({"value": "async", "unit": ""})
    ('50,677 h', 'async')
    """
    value = one["value"]
    text = value if isinstance(value, str) else f"{value:,.6g}"
    return f"{text} {one['unit']}".rstrip()
