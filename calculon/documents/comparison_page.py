"""Page of a comparison: inputs that differ, totals and their parts, and statistics or serving figures."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from calculon.base.units import GIB, Unit, chance, duration, gib, scaled, significant
from calculon.declarations.statistics import MEMORIES
from calculon.documents.comparison import SECONDS, Comparison, Line
from calculon.documents.page_title import lettered_notes
from calculon.documents.served_comparison import ServedComparison
from calculon.documents.serving_page import NOT_VALIDATED, PASSES
from calculon.documents.settings_section import settings_section
from calculon.documents.waterfall_section import digits_of_differences, waterfall_section
from calculon.render.digits import Digits
from calculon.render.document import Document, Section, dim, labeled
from calculon.render.text_tables import EARLY, Column, Table
from calculon.render.texts import counted

_DROPPED = {"-": EARLY + 1, "/": EARLY, "": 1}
"""Order in which a narrow terminal hides columns: differences, then ratios, then values of later results."""

_MORE = "--format csv"

_THREE = Digits(0.1)
"""Digits of parts: three for the total."""

Compared = Comparison | ServedComparison


def comparison_page(
    comparison: Compared,
    *,
    statistics: bool = True,
    everything: bool = False,
    most: int | None = None,
) -> Document:
    """Return the page of a comparison.

    Args:
        comparison: Results of training or inference, or deployments.
        statistics: List statistics of training after the totals and their parts.
        everything: List equal statistics, or equal serving figures, too.
        most: List only this number of statistics, those that differ most; by default all that differ.
    """
    if isinstance(comparison, ServedComparison):
        parts = [*_inputs(comparison), *_served(comparison, everything=everything)]
    else:
        parts = [*_inputs(comparison), *_sums(comparison), *_ways(comparison)]
        parts += [_statistics(comparison, everything=everything, most=most)] * statistics
    named = dict(zip(comparison.letters, comparison.names, strict=True))
    return Document("", lead=(labeled(named),), parts=tuple(parts))


def _inputs(comparison: Compared) -> Iterator[Section]:
    word_of = {"stage_blocks": _blocks_word}
    if rows := [
        {"field": name}
        | dict(zip(comparison.letters, map(word_of.get(name, _input_word), values), strict=True))
        for name, values in comparison.inputs
    ]:
        table = Table((Column("field"), *_value_columns(comparison)), rows, _MORE)
        yield Section("Inputs that differ", (table,), opened=True)


def _sums(comparison: Comparison) -> Iterator[Section]:
    """Yield the time and the memory of each tier, with their parts."""
    time = _parts_table(comparison, comparison.time)
    said = _headline(comparison, "total_time")
    yield Section("Time", (*comparison.sureness, time), said, opened=True)
    for tier in (0, 1):
        if lines := comparison.memory(tier):
            said = _headline(comparison, f"proc_mem_tier{tier + 1}_cap_req")
            blocks = (*_fits(comparison) * (tier == 0), _parts_table(comparison, lines))
            yield Section(MEMORIES[tier].capitalize(), blocks, said)


def _fits(comparison: Comparison) -> tuple[str, ...]:
    """Return the probabilities that executions fit in memory; empty if none is known."""
    several = [one.fits for one in comparison.results]
    if all(one is None for one in several):
        return ()
    texts = ("not known" if one is None else chance(one) for one in several)
    return (f"fits with a probability of {_lettered(comparison, texts)}",)


def _ways(comparison: Comparison) -> Iterator[Section]:
    """Yield the changes between plans: of the execution, and of the settings of a launch file."""
    letters, launched = comparison.letters, comparison.launched
    for number, waterfall in comparison.waterfalls.items():
        names = letters[0], letters[number]
        yield waterfall_section(waterfall, _digits(comparison, number), names)
    for number, difference in comparison.settings.items():
        if difference["changes"] or difference["refused"]:
            yield settings_section(
                difference,
                (letters[launched], letters[number]),
                comparison.longer(launched, number),
                comparison.margin(launched, number),
            )


def _statistics(comparison: Comparison, *, everything: bool, most: int | None) -> Section:
    equal = comparison.equal
    shown = [line for line in comparison.statistics if everything or line.differs]
    zero = sum(not any(line.values) for line in equal)
    said = f"{len(comparison.statistics) - len(equal)} differ, {len(equal)} are equal"
    said += f" ({zero} of them 0)" if zero else ""
    if most is not None and not everything and len(shown) > most:
        shown = sorted(shown, key=_difference, reverse=True)[:most]
        said += f"; the {most} that differ most, -v shows all"
    tables = (_figures_table(comparison, shown),) if shown else ()
    return Section("Statistics", tables, said, flush=True)


def _difference(line: Line) -> float:
    """Return the largest difference from the first result, as a share of the larger of both values."""
    first = line.values[0] or 0.0
    pairs = (
        (value or 0.0, difference or 0.0)
        for value, difference in zip(line.values[1:], line.differences, strict=True)
    )
    return max((abs(d) / max(abs(first), abs(v)) for v, d in pairs if d), default=0.0)


def _served(comparison: ServedComparison, *, everything: bool) -> Iterator[Section]:
    """Yield figures of deployments, and time per pass and memory per rank with their parts."""
    letters, results = comparison.letters, comparison.results
    shown = [line for line in comparison.figures if everything or line.differs]
    differ = sum(line.differs for line in comparison.figures)
    equal = len(comparison.figures) - differ
    said = f"{differ} differ, {equal} {'is' if equal == 1 else 'are'} equal"
    if shown:
        missed = (
            f"{letter} misses {' and '.join(one.missed)}."
            for letter, one in zip(letters, results, strict=True)
            if one.missed
        )
        machines = (one.record.provenance for one in results)
        notes = (*missed, *lettered_notes(letters, machines))
        table = _figures_table(comparison, shown)
        blocks = (*notes, table, *map(dim, _ranges(comparison)))
        yield Section("Figures", blocks, said, opened=True, flush=True)
    for name, title in PASSES.items():
        times = [duration(getattr(one.record.passes, name).time) for one in results]
        if name == "decode":
            batches = (counted(one.record.batch, "sequence") for one in results)
            times = [f"{time} of {batch}" for time, batch in zip(times, batches, strict=True)]
        table = _parts_table(comparison, comparison.causes(name))
        yield Section(title, (table,), _lettered(comparison, times))
    used = [f"{one.record.figures['mem_used'] / GIB:.1f} GiB" for one in results]
    table = _parts_table(comparison, comparison.memory)
    yield Section("Memory per rank", (table,), _lettered(comparison, used))


def _ranges(comparison: ServedComparison) -> Iterator[str]:
    """Yield the ranges of figures from published rows, each with those of all deployments."""
    several = [one.record.ranges for one in comparison.results]
    for name in dict.fromkeys(name for ranges in several for name in ranges):
        texts = []
        for one in (ranges.get(name) for ranges in several):
            if one is None or not one.validates:
                texts.append("none" if one is None else NOT_VALIDATED)
                continue
            digits = Digits(one.spread)
            write = digits.rate if name == "output_rate" else digits.duration
            texts.append(f"{write(one.low, one.value)} to {write(one.high, one.value)}")
        yield f"90 % range of {name}: {_lettered(comparison, texts)}"


def _lettered(comparison: Compared, texts: Iterable[str]) -> str:
    """Return a text for each result, preceded by its letter."""
    pairs = zip(comparison.letters, texts, strict=True)
    return ", ".join(f"{letter} {text}" for letter, text in pairs)


def _digits(comparison: Comparison, number: int) -> Digits:
    """Return the digits for differences between the first result and another."""
    return digits_of_differences(comparison.results[i].digits for i in (0, number))


def _value_columns(comparison: Compared) -> list[Column]:
    """Return the columns of the values, titled by the letters of the results."""
    return [
        Column(letter, heading, right=True, drop=0 if letter == "A" else _DROPPED[""])
        for letter, heading in zip(comparison.letters, comparison.headings, strict=True)
    ]


def _input_word(value: Any) -> str:
    """Write an input: switches as in files, a dash if unknown."""
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _blocks_word(value: Any) -> str:
    """Write the blocks of stages with equal neighbors as one: ``3, 29 x 2, 0m, 0``.

    Layouts of many chunks would otherwise be wider than the page, which then hides the other results.
    """
    text = _input_word(value)
    if "-" not in text.strip("-"):
        return text
    runs = ((blocks, len(list(several))) for blocks, several in groupby(text.split("-")))
    return ", ".join(f"{n} x {blocks}" if n > 1 else blocks for blocks, n in runs)


def _headline(comparison: Comparison, name: str) -> str:
    """Return a total of each result, with the relative change of all but the first."""
    line = next(line for line in comparison.statistics if line.name == name)
    texts = [
        one.digits.duration(value or 0.0) if line.unit == SECONDS else gib(value or 0.0)
        for one, value in zip(comparison.results, line.values, strict=True)
    ]
    ratios = (None, *line.ratios)
    changes = ("" if ratio is None else f" ({_change(ratio - 1)})" for ratio in ratios)
    return _lettered(comparison, map(str.__add__, texts, changes))


def _change(share: float) -> str:
    """Write a relative difference with two digits.

    >>> _change(-0.1245), _change(0.0043), _change(1.52)
    ('-12 %', '+0.4 %', '+152 %')
    """
    return f"{100 * share:+.{0 if abs(share) >= 0.1 else 1}f} %"


def _parts_table(comparison: Compared, lines: Sequence[Line]) -> Table:
    """Return the parts of a total with values and differences, and the total."""
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
            texts = _THREE.seconds(values, largest)
            signed = [_signed(d, _THREE.seconds([abs(d)], largest)[0]) for d in differences]
        else:
            texts = [gib(value) for value in values]
            signed = [_signed(d, gib(abs(d))) for d in differences]
        row = {"part": line.name} | dict(zip(letters, texts, strict=True))
        rows.append(row | dict(zip(names, signed, strict=True)))
    changes = (Column(name, name, right=True, drop=_DROPPED["-"]) for name in names)
    return Table((Column("part"), *_value_columns(comparison), *changes), rows, _MORE)


def _signed(value: float, text: str) -> str:
    return f"{'-' if value < 0 else '+'}{text}" if value else "="


def _figures_table(comparison: Compared, lines: Sequence[Line]) -> Table:
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
            row[f"{letter} / A"] = "" if ratio is None else f"{ratio:.3g}"
        rows.append(row)
    others = ((f"{letter} {sign} A", sign) for letter in letters[1:] for sign in "-/")
    changes = (Column(name, name, right=True, drop=_DROPPED[sign]) for name, sign in others)
    return Table((Column("name", "statistic"), *_value_columns(comparison), *changes), rows, _MORE)


def _quantity(value: float | None, unit: Unit) -> str:
    """Write a value with three digits and a suitable unit prefix.

    >>> _quantity(0.0034, SECONDS), _quantity(435_941_376.0, Unit("B", binary=True))
    ('3.40 ms', '416 MiB')
    """
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if unit.symbol == "fraction":
        return f"{value:.3g}"
    text = duration(value) if unit == SECONDS else scaled(value, unit.symbol, binary=unit.binary)
    number, _, name = text.partition(" ")
    return f"{significant(float(number), 3)} {name}".rstrip()
