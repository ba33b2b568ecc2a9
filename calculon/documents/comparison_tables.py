"""A comparison as tables for users: inputs that differ, sums and their parts, and statistics."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from calculon.base.units import Unit, duration, scaled
from calculon.documents.comparison import SECONDS, Comparison, Line
from calculon.documents.settings_section import settings_section
from calculon.documents.waterfall_section import digits_of_differences, waterfall_section
from calculon.render.digits import Digits
from calculon.render.text_tables import EARLY, Column, Section, Table
from calculon.render.texts import gib, seconds

_DROPPED = {"-": EARLY + 1, "/": EARLY, "": 1}
"""What a narrow screen leaves out of comparisons: differences first, then ratios, then the values of later results."""

_MORE = "--format csv"


class Lettered(Protocol):
    """Results side by side, each under a letter."""

    @property
    def letters(self) -> str:
        """One letter per result."""

    @property
    def headings(self) -> Sequence[str]:
        """The heading of the values of each result."""


def sections(comparison: Comparison, *, everything: bool = False) -> list[Section]:
    """Return a comparison as tables for users; `everything` also lists the statistics that are equal."""
    found = []
    if comparison.inputs:
        rows = [
            {"field": name} | dict(zip(comparison.letters, map(input_word, values), strict=True))
            for name, values in comparison.inputs
        ]
        table = Table((Column("field"), *value_columns(comparison)), rows, _MORE)
        found.append(Section("Asked differently", table))
    title, parts = (
        _headline(comparison, "total_time", "Time"),
        parts_table(comparison, comparison.time),
    )
    found.append(Section(title, parts, tuple(comparison.sureness)))
    for tier in (0, 1):
        if lines := comparison.memory(tier):
            name = f"proc_mem_tier{tier + 1}_cap_req"
            title = _headline(comparison, name, f"Memory, tier {tier + 1}")
            found.append(Section(title, parts_table(comparison, lines)))
    found += [
        waterfall_section(
            told, _digits(comparison, number), (comparison.letters[0], comparison.letters[number])
        )
        for number, told in comparison.waterfalls.items()
    ]
    mine = comparison.launched
    found += [
        settings_section(
            told,
            (comparison.letters[mine], comparison.letters[number]),
            comparison.longer(mine, number),
            comparison.margin(mine, number),
        )
        for number, told in comparison.settings.items()
        if told["changes"] or told["refused"]
    ]
    equal = comparison.equal
    shown = [line for line in comparison.statistics if everything or line.differs]
    zero = sum(not any(line.values) for line in equal)
    title = f"Statistics: {len(comparison.statistics) - len(equal)} differ, {len(equal)} are equal"
    title += f" ({zero} of them 0)" if zero else ""
    if shown:
        found.append(Section(title, figures_table(comparison, shown)))
    else:
        found[-1] = replace(found[-1], title=f"{found[-1].title}\n\n{title}")
    return found


def _digits(comparison: Comparison, number: int) -> Digits:
    """Return the digits of what differs between the first result and another."""
    return digits_of_differences(comparison.results[i].digits for i in (0, number))


def value_columns(comparison: Lettered) -> list[Column]:
    """Return the columns of the values, under the letters of the results."""
    return [
        Column(letter, heading, right=True, drop=0 if letter == "A" else _DROPPED[""])
        for letter, heading in zip(comparison.letters, comparison.headings, strict=True)
    ]


def input_word(value: Any) -> str:
    """Write an input: switches as files have them, a dash for an unknown one."""
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _headline(comparison: Comparison, name: str, words: str) -> str:
    """Return a sum of each result, of all but the first with its change."""
    line = next(line for line in comparison.statistics if line.name == name)
    write = duration if line.unit == SECONDS else gib
    texts = [f"A {write(line.values[0] or 0.0)}"]
    for letter, value, ratio in zip(
        comparison.letters[1:], line.values[1:], line.ratios, strict=True
    ):
        change = "" if ratio is None else f" ({(ratio - 1) * 100:+.1f} %)"
        texts.append(f"{letter} {write(value or 0.0)}{change}")
    return f"{words}: {', '.join(texts)}"


def parts_table(comparison: Lettered, lines: Sequence[Line]) -> Table:
    """Return parts of a sum, each with its values and differences, and the sum."""
    whole = tuple(
        sum(v or 0.0 for v in values) for values in zip(*(x.values for x in lines), strict=True)
    )
    total = Line("total", "", lines[0].unit, whole)
    letters = comparison.letters
    names = [f"{letter} - A" for letter in letters[1:]]
    largest = max(abs(value) for value in whole)
    rows = []
    for line in (*lines, total):
        differences = [value or 0.0 for value in line.differences]
        values = [value or 0.0 for value in line.values]
        if line.unit == SECONDS:
            texts = seconds(values, largest)
            signed = [_signed(d, seconds([abs(d)], largest)[0]) for d in differences]
        else:
            texts = [gib(value) for value in values]
            signed = [_signed(d, gib(abs(d))) for d in differences]
        row = {"part": line.name} | dict(zip(letters, texts, strict=True))
        rows.append(row | dict(zip(names, signed, strict=True)))
    changes = (Column(name, name, right=True, drop=_DROPPED["-"]) for name in names)
    return Table((Column("part"), *value_columns(comparison), *changes), rows, _MORE)


def _signed(value: float, text: str) -> str:
    return f"{'-' if value < 0 else '+'}{text}" if value else "="


def figures_table(comparison: Lettered, lines: Sequence[Line]) -> Table:
    """Return statistics with values, differences and ratios."""
    letters = comparison.letters
    rows = []
    for line in lines:
        row = {"name": line.name}
        for letter, value in zip(letters, line.values, strict=True):
            row[letter] = _quantity(value, line.unit)
        compared = zip(letters[1:], line.differences, line.ratios, strict=True)
        for letter, difference, ratio in compared:
            size = None if difference is None else _quantity(abs(difference), line.unit)
            row[f"{letter} - A"] = "" if size is None else _signed(difference or 0.0, size)
            row[f"{letter} / A"] = "" if ratio is None else f"{ratio:.4g}"
        rows.append(row)
    others = ((f"{letter} {sign} A", sign) for letter in letters[1:] for sign in "-/")
    changes = (Column(name, name, right=True, drop=_DROPPED[sign]) for name, sign in others)
    return Table((Column("name", "statistic"), *value_columns(comparison), *changes), rows, _MORE)


def _quantity(value: float | None, unit: Unit) -> str:
    """Write a value in the prefix that suits it."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if unit == SECONDS:
        return duration(value)
    if unit.symbol in ("fraction", ""):
        return f"{value:.4g}"
    return scaled(value, unit.symbol, binary=unit.binary)
