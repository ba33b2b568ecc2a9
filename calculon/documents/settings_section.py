"""Table of changes to a launch file."""

from calculon.base.errors import printable
from calculon.base.records import Plain
from calculon.estimate.comparison_confidence import MAX_TIED
from calculon.render.document import Section, dim
from calculon.render.text_tables import Column, Table


def settings_section(
    difference: Plain,
    names: tuple[str, str],
    longer: float | None = None,
    margin: float | None = None,
) -> Section:
    """Return the changes of settings as a table, followed by sentences on fields that cannot be expressed.

    Args:
        difference: The difference as plain data.
        names: Names of the two plans.
        longer: Relative excess of the second plan's time over the first's.
        margin: Relative difference of times above which the order of the plans is certain.
    """
    rows = [_row(change) for change in difference["changes"]]
    columns = (
        Column("kind", "do"),
        Column("setting", "setting", fold=True),
        Column("value", "to", fold=True),
        Column("place", "where", drop=1),
    )
    return Section(
        f"Settings of {difference['title']}, from {names[0]} to {names[1]}",
        (Table(columns, rows), *map(dim, _notes(difference))),
        "" if longer is None else gained(longer, margin),
    )


def gained(longer: float, margin: float | None = None) -> str:
    """Write the time saved by another plan, and the certainty; the margin is converted to a share of time saved.

    >>> gained(-0.079), gained(0.5, 0.35)
    ('-7.9 %', '+50.0 % (tie margin 10.0 %)')
    >>> gained(-0.079, 0.025), gained(-0.079, 0.25)
    ('-7.9 % (tie margin 2.4 %)', '-7.9 %, too close to call (tie margin 9.1 %)')
    """
    said = f"{longer * 100:+.1f} %"
    if margin is None:
        return said
    margin = min(margin, MAX_TIED)
    sure = max(1 + longer, 1 / (1 + longer)) > 1 + margin
    if longer < 0:
        margin = 1 - 1 / (1 + margin)
    return f"{said}{'' if sure else ', too close to call'} (tie margin {margin * 100:.1f} %)"


def _row(change: Plain) -> dict[str, str]:
    """Return a change as a row."""
    words = printable(str(change["words"]).removeprefix(f"{change['kind']} "))
    setting, _, value = words.rpartition(" to ") if change["kind"] == "change" else (words, "", "")
    return {
        "kind": change["kind"],
        "setting": setting,
        "value": value,
        "place": printable(change["place"]),
    }


def _notes(difference: Plain) -> list[str]:
    """Return sentences on fields of the other plan that cannot be expressed, and their replacements."""
    return [
        f"{difference['title']} cannot express {one['field']} {one['found']}: expected {one['expected']}"
        for one in difference["refused"]
    ]
