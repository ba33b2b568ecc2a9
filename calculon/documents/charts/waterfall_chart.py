"""Waterfall chart: a bar for each change between the times of two plans, and the memory of each plan in between."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.documents.waterfall_section import signed, steps_with_effect
from calculon.render.canvas import wrapped
from calculon.render.chart import Axis, Bars, Chart, Line, Notes, Panel, Rule, categories
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits

SAVED, ADDED, WHOLE, SIZE = "blue", "vermilion", "black+30", "sky"
"""Colors of time saved and added, of both ends, and of the memory of plans in between."""


@dataclass(frozen=True, slots=True)
class WaterfallData:
    """Waterfall with the labels of its chart.

    Attributes:
        waterfall: Plain data (:meth:`calculon.Waterfall.to_dict`).
        names: Names of the first and the last plan.
        title, terms: Model and machine of both plans, and the edition with its preset.
        digits: Digits of the times.
        capacity: Usable bytes of tier 1.
    """

    waterfall: Mapping[str, Any]
    names: tuple[str, str]
    title: str
    terms: str
    digits: Digits
    capacity: float | None = None

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        """Changes with an effect."""
        return steps_with_effect(self.waterfall)

    @property
    def times(self) -> list[float]:
        """Seconds of the first plan, and after each change with an effect."""
        return [self.waterfall["mine"]["seconds"], *(step["time_after"] for step in self.steps)]


_LABEL = 34
"""Characters per line of a label."""

_NEAR = 0.2
"""Relative spread of times below which the axis does not start at 0, because changes would be invisible."""

_FAR = 20
"""Ratio of capacity to memory in use above which the capacity is not drawn, because bars would be too short."""

_NUMBER = 0.32
"""Space for the text of a size, as a share of the axis."""

_AROUND, _LINE, _GAP = 0.75, 0.16, 0.17
"""Inches: title and axis; a line of a label; the gap between two labels."""


def waterfall(several: Sequence[WaterfallData]) -> Chart:
    """Return the chart of one or several waterfalls, one below the other."""
    titles = {one.title for one in several}
    rows = [(_times(one, titled=len(several) > 1), _memory(one)) for one in several]
    return Chart(
        title=titles.pop() if len(titles) == 1 else "One change at a time",
        terms=[one.terms for one in several],
        rows=rows,
        width=8.4,
    )


def change_waterfall(one: WaterfallData) -> Chart | None:
    """Return the times of a waterfall only; None if no change has an effect."""
    if not one.steps:
        return None
    return Chart(title=one.title, terms=[one.terms], rows=((_times(one),),))


def _labels(one: WaterfallData) -> list[str]:
    steps = [step["change"] for step in one.steps]
    return [wrapped(label, _LABEL) for label in (one.names[0], *steps, one.names[1])]


def _height(one: WaterfallData) -> float:
    labels = _labels(one)
    lines = max(label.count("\n") + 1 for label in labels)
    return _AROUND + (_GAP + _LINE * lines) * len(labels)


def _bars_of_times(one: WaterfallData) -> Iterator[tuple[float, float, str, str]]:
    """Yield start, end, color and text of each bar, in seconds; NaN stands for the start of the axis."""
    times, last = one.times, one.waterfall["best"]["seconds"]
    largest = max(*times, last)
    first_text, last_text = one.digits.seconds([times[0], last], largest)
    yield math.nan, times[0], WHOLE, first_text
    for before, after in pairwise(times):
        text = signed(after - before, one.digits.seconds([abs(after - before)], largest)[0])
        yield before, after, SAVED if after <= before else ADDED, text
    yield math.nan, last, WHOLE, last_text


def _times(one: WaterfallData, *, titled: bool = False) -> Panel:
    """Return the times of both plans, and between them the time that each change saves or adds."""
    bars = list(_bars_of_times(one))
    low, high = min(end for _, end, _, _ in bars), max(end for _, end, _, _ in bars)
    unit, factor = time_unit(high)
    # Small changes of a long time would be invisible on an axis from 0.
    start = 0.0 if high - low >= _NEAR * high else max(0.0, low - 0.6 * (high - low))
    start = 0.0 if high == low else start
    labels, rows = _labels(one), range(len(bars))
    ends = [
        (factor * (start if math.isnan(first) else first), factor * last)
        for first, last, _, _ in bars
    ]
    reached = [factor * time for time in one.times]
    per = {"step": "iteration"}.get(one.waterfall["per"], one.waterfall["per"])
    return Panel(
        title=f"From {one.names[0]} to {one.names[1]}" if titled else "",
        x=Axis(
            label=f"Time per {per}",
            unit=f"{unit}, not from 0" if start else unit,
            limits=(factor * start, factor * (high + 0.22 * ((high - start) or high))),
        ),
        y=categories(labels),
        marks=(
            Line(
                x=[x for time in reached for x in (time, time, math.nan)],
                y=[y for row in rows[:-1] for y in (row, row + 1, math.nan)],
                color="gray",
                width=0.7,
            ),
            Bars(
                at=rows,
                starts=[min(pair) for pair in ends],
                lengths=[max(pair) - min(pair) for pair in ends],
                color=[color for _, _, color, _ in bars],
                words=[f"{label}: {text}" for label, (*_, text) in zip(labels, bars, strict=True)],
            ),
            Notes(x=[max(pair) for pair in ends], y=rows, texts=[text for *_, text in bars]),
        ),
        height=_height(one),
        share=2.4,
    )


def _memory(one: WaterfallData) -> Panel:
    """Return the tier-1 memory of each plan, with the capacity."""
    points = [one.waterfall["mine"], *one.steps, one.waterfall["best"]]
    sizes = [point.get("bytes_after", point["bytes"]) / GIB for point in points]
    limit = None if one.capacity is None else one.capacity / GIB
    limit = limit if limit and limit < _FAR * max(sizes) else None
    widest = max([*sizes, limit or 0.0])
    last = len(points) - 1
    texts = [
        (
            f"{size:.1f}"
            if row in (0, last)
            else signed(point["bytes"], f"{abs(point['bytes']) / GIB:.1f}")
        )
        + ("" if point["fits"] else " !")
        for row, (size, point) in enumerate(zip(sizes, points, strict=True))
    ]
    beyond = [limit if limit and 0 <= limit - size < _NUMBER * widest else size for size in sizes]
    rows = range(len(points))
    bars = Bars(
        at=rows,
        lengths=sizes,
        color=[WHOLE if row in (0, last) else SIZE for row in rows],
        hatch="/",
        hatched=[not point["fits"] for point in points],
        words=[f"{label}: {size:.1f} GiB" for label, size in zip(_labels(one), sizes, strict=True)],
    )
    rule = [Rule(name="capacity", at=limit)] if limit else []
    return Panel(
        x=Axis(label="Memory per processor", unit="GiB", limits=(0.0, 1.42 * widest)),
        y=replace(categories(_labels(one)), shown=False),
        marks=(bars, *rule, Notes(x=beyond, y=rows, texts=texts)),
        height=_height(one),
    )
