"""Whole runs on pages about other subjects: their figures, and their defaults."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from calculon.base.units import aged
from calculon.documents.setup import Row, interval_row
from calculon.render.digits import Digits
from calculon.render.document import Section
from calculon.render.text_tables import Column, Table


def run_rows(
    figures: Mapping[str, Any], labels: Mapping[str, str], digits: Digits
) -> Iterator[Row]:
    """Yield the known figures of a run by label, each with the relative interval of the days."""
    for label, name in labels.items():
        if (value := figures[name]) is not None:
            days = (figures["days_low"], figures["days_high"])
            low, high = (None if end is None else end / figures["days"] * value for end in days)
            yield interval_row(label, value, (low, high), digits.rate)


def defaults_section(rows: Iterable[Mapping[str, Any]]) -> Section | None:
    """Return the defaults with an effect as a table; None if there are none.

    Args:
        rows: Defaults with ``field``, ``value``, ``unit``, ``source`` and ``counts`` (True if it has an effect).
    """
    counting = [one for one in rows if one["counts"]]
    if not counting:
        return None
    table = defaults_table(counting, value_of)
    return Section("Assumed for the run", (table,), "change with --set campaign.FIELD=VALUE")


def defaults_table(
    rows: Iterable[Mapping[str, Any]], write: Callable[[Mapping[str, Any]], str]
) -> Table:
    """Return defaults with their values, as `write` formats them, and their sources."""
    columns = (
        Column("field", "field"),
        Column("value", "value", right=True),
        Column("source", "source", fold=True),
    )
    cells = [{"field": o["field"], "value": write(o), "source": o["source"]} for o in rows]
    return Table(columns, cells)


def defaults_line(
    rows: Iterable[Mapping[str, Any]], prices: Iterable[Mapping[str, Any]] = ()
) -> str:
    """Return the prices of a processor-hour by system, and the defaults with an effect, in a paragraph."""
    known = [
        *(
            " ".join(filter(None, ("price", one.get("system"), f"{one['usd']:,.2f} USD/h")))
            + f" ({price_words(one)})"
            for one in prices
            if one["source"]
        ),
        *(
            f"{one['field'].rpartition('.')[2]} {value_of(one)} ({one['source']})"
            for one in rows
            if one["counts"]
        ),
    ]
    return f"Assumed for the run: {'; '.join(known)}." if known else ""


def price_words(price: Mapping[str, Any]) -> str:
    """Write kind, date and source of a price."""
    kind = price["kind"].replace("_", " ")
    return ", ".join(filter(None, (kind, aged(price["date"]), price["source"])))


def value_of(one: Mapping[str, Any]) -> str:
    """Write the value of a default with its unit.

    >>> value_of({"value": 50677.0, "unit": "h"}), value_of({"value": "async", "unit": ""})
    ('50,677 h', 'async')
    """
    value = one["value"]
    text = value if isinstance(value, str) else f"{value:,.6g}"
    return f"{text} {one['unit']}".rstrip()
