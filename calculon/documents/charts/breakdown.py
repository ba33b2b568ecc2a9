"""Breakdown of time and memory: the parts of one result, or a stacked bar for each of several, with the capacity."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, known, significant
from calculon.declarations.statistics import AXIS_PARTS_OF_TIME, KINDS_OF_MEMORY, MEMORIES
from calculon.documents.page import PARTS
from calculon.documents.result import EVERYTHING, Result
from calculon.render.canvas import wrapped
from calculon.render.chart import (
    Axis,
    Bars,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    Rule,
    categories,
    stacked,
)
from calculon.render.chart_axes import time_unit


@dataclass(frozen=True, slots=True)
class Look:
    """Color and hatch of a segment of a bar."""

    color: str
    hatch: str = ""


LOOKS = {
    "fw_time": Look("blue"),
    "bw_time": Look("blue+30"),
    "optim_step_time": Look("blue+60"),
    "recompute_time": Look("sky", "/"),
    "tp_comm_exposed_time": Look("vermilion"),
    "pp_comm_exposed_time": Look("vermilion+35", "\\"),
    "dp_comm_exposed_time": Look("vermilion+60"),
    **{
        name: Look("vermilion+60", hatch)
        for name, hatch in zip(AXIS_PARTS_OF_TIME, cycle((".", "x", "-")), strict=False)
    },
    "recomm_exposed_time": Look("vermilion", "x"),
    "fw_offload_exposed_time": Look("purple"),
    "bw_offload_exposed_time": Look("purple+50", "."),
    "bubble_time": Look("orange", "."),
    "host_time": Look("silver"),
    "weights": Look("azure"),
    "weight gradients": Look("cyan", "/"),
    "optimizer state": Look("violet"),
    "activations": Look("leaf", "x"),
    "checkpoints": Look("teal", "\\"),
    "activation gradients": Look("amber", "."),
    "gathered weights": Look("pink", "/"),
    "gradients being reduced": Look("plum"),
    "fragments": Look("gray", "x"),
    "reserved": Look("slate", "."),
    EVERYTHING: Look("silver"),
}
"""Colors of parts of the time by family (compute blue, communication vermilion), with shades and hatches.

Colors of kinds of memory contrast with light and dark pages, and neighboring kinds differ in hue.
"""

_FAR = 20  # a capacity further away would make the bars too short
_VISIBLE = 0.004  # smallest share of the longest bar in the legend
_ROOM = 1.34  # times the longest bar, with space for the text at its end
_AROUND, _ROW = 0.85, 0.3  # inches: title and axis of a panel; a bar

assert set(LOOKS) == {*PARTS, *KINDS_OF_MEMORY, EVERYTHING}


def breakdown(results: Sequence[Result]) -> Chart:
    """Return time and memory of results: the parts of a single result, or else a bar for each, the first at the top."""
    if len(results) == 1:
        (result,) = results
        tiers = [_memory_parts(result, tier) for tier in (0, 1) if sum(_sizes(result, tier))]
        return result_chart(result, _time_panel(result), *tiers)
    titles = {result.title for result in results}
    stacks = [_time_stack(results)]
    stacks += [_memory_stack(results, tier) for tier in (0, 1) if _used(results, tier)]
    return Chart(
        title=titles.pop() if len(titles) == 1 else f"Time and memory of {len(results)} plans",
        terms=[result.terms for result in results],
        rows=[(panel,) for panel in stacks],
        legends="rows",
    )


def time_parts(result: Result) -> Chart:
    """Return the parts of the iteration time of a result: a bar for each of :func:`parts_of_time`."""
    panel = _time_panel(result)
    return result_chart(result, replace(panel, title=""))  # the page states the total already


def parts_of_time(result: Result) -> list[str]:
    """Return the names of the parts of the iteration time, largest first."""
    times = {name: time for name, time in result.times().items() if time > 0}
    return sorted(times, key=lambda name: -times[name])


def result_chart(result: Result, *panels: Panel) -> Chart:
    """Return a column of panels, with the title of a result."""
    named = "" if result.label == result.title else result.label
    return Chart(
        title=result.title,
        subtitle=": ".join(filter(None, (named, result.split))),
        terms=[result.terms],
        rows=[(panel,) for panel in panels],
    )


def _time_panel(result: Result) -> Panel:
    """Return the parts of the iteration time, largest first; each bar starts at the end of the previous one."""
    total = result.value("total_time")
    unit, factor = time_unit(total)
    times, names = result.times(), parts_of_time(result)
    texts = result.digits.seconds([times[name] for name in names], total)
    axis = Axis(label="Time", unit=unit)
    title = f"Time per iteration: {_time_text(result, unit, factor)}"
    return parts_panel(title, axis, {name: times[name] * factor for name in names}, texts)


def _memory_parts(result: Result, tier: int) -> Panel:
    """Return the kinds of memory of a tier, largest first, with the capacity."""
    sizes = {kind: size for kind, size in result.memory()[tier].items() if size > 0}
    kinds = sorted(sizes, key=lambda kind: -sizes[kind])
    texts = [result.digits.gib(sizes[kind]) for kind in kinds]
    (limit,) = _limits([result], tier)
    title = f"{_memory_title(tier)}: {_memory_text(result, tier)}"
    axis = Axis(label="Memory", unit="GiB")
    return parts_panel(title, axis, {kind: sizes[kind] / GIB for kind in kinds}, texts, limit)


def parts_panel(
    title: str,
    axis: Axis,
    parts: Mapping[str, float],
    texts: Sequence[str],
    limit: float | None = None,
) -> Panel:
    """Return the parts of a sum: a bar for each, which starts at the end of the previous one."""
    starts, end = [], 0.0
    for size in parts.values():
        starts.append(end)
        end += size
    labels = [PARTS[name][0] if name in PARTS else name for name in parts]
    bars = Bars(
        at=range(len(parts)),
        starts=starts,
        lengths=list(parts.values()),
        color=[LOOKS[name].color for name in parts],
        words=[f"{label}: {text}" for label, text in zip(labels, texts, strict=True)],
    )
    ends = [start + size for start, size in zip(starts, parts.values(), strict=True)]
    marks: list[Mark] = [bars, Notes(x=ends, y=range(len(parts)), texts=texts)]
    if limit:
        marks.insert(0, Rule(name="capacity", at=limit))
    limits = (0.0, max(1.14 * end, limit or 0.0))
    return Panel(
        title=title,
        x=replace(axis, limits=limits),
        y=categories(labels),
        marks=marks,
        height=_AROUND + _ROW * len(parts),
    )


def _time_stack(results: Sequence[Result]) -> Panel:
    unit, factor = time_unit(max(result.value("total_time") for result in results))
    stacks = [{name: time * factor for name, time in result.times().items()} for result in results]
    texts = [_time_text(result, unit, factor) for result in results]
    axis = Axis(label="Time", unit=unit)
    return stack_panel("Time per iteration", axis, _labels(results), stacks, texts)


def _memory_stack(results: Sequence[Result], tier: int) -> Panel:
    stacks = [
        {kind: size / GIB for kind, size in result.memory()[tier].items()} for result in results
    ]
    texts = [_memory_text(result, tier) for result in results]
    axis = Axis(label="Memory", unit="GiB")
    limits = _limits(results, tier)
    return stack_panel(_memory_title(tier), axis, _labels(results), stacks, texts, limits)


def stack_panel(
    title: str,
    axis: Axis,
    labels: Sequence[str],
    stacks: Sequence[Mapping[str, float]],
    texts: Sequence[str],
    limits: Sequence[float | None] = (),
) -> Panel:
    """Return stacked bars: segments in the order of :data:`LOOKS`, a text at the end of each bar, and its limit."""
    sums = [sum(stack.values()) for stack in stacks]
    marks: list[Mark] = [*_pieces(labels, stacks, max(sums), axis.unit)]
    longest = max([*sums, *(limit for limit in limits if limit)])
    ends = list(sums)
    for place, limit in enumerate(limits):
        if limit:
            ys = [place - 0.42, place + 0.42]
            marks.append(Line(name="capacity", x=[limit, limit], y=ys, color="black"))
            # The text would overlap the capacity line, so it moves to its right.
            if 0 <= limit - ends[place] < 0.3 * longest:
                ends[place] = limit
    marks.append(Notes(x=ends, y=range(len(labels)), texts=texts))
    lines = max(label.count("\n") + 1 for label in labels)
    return Panel(
        title=title,
        x=replace(axis, limits=(0.0, _ROOM * longest)),
        y=categories(labels),
        marks=marks,
        height=_AROUND + max(0.42, 0.17 * lines + 0.12) * len(labels),
    )


def _pieces(
    labels: Sequence[str], stacks: Sequence[Mapping[str, float]], longest: float, unit: str
) -> list[Bars]:
    """Return the bars of each segment that any stack has."""
    found = []
    for name, look in LOOKS.items():
        sizes = [stack.get(name, 0.0) for stack in stacks]
        if not any(sizes):
            continue
        words = PARTS[name][0] if name in PARTS else name
        texts = [
            f"{label.splitlines()[0]}: {words} {significant(size)} {unit}"
            for label, size in zip(labels, sizes, strict=True)
        ]
        found.append(
            Bars(
                # Invisible segments would only lengthen the legend.
                name=words if max(sizes) >= _VISIBLE * longest else "",
                at=range(len(stacks)),
                lengths=sizes,
                color=look.color,
                hatch=look.hatch,
                words=texts,
            )
        )
    return stacked(found)


def _labels(results: Sequence[Result]) -> list[str]:
    """Return name and split of each result."""
    pairs = ((wrapped(result.label, 30), result.split) for result in results)
    return ["\n".join(filter(None, pair)) for pair in pairs]


def _time_text(result: Result, unit: str, factor: float) -> str:
    """Write the iteration time, its interval if known, and the rate."""
    time, rate, digits = result.value("total_time"), result.value("sample_rate"), result.digits
    if not digits.spread:
        return f"{significant(time * factor)} {unit}, {significant(rate)} samples/s"
    error = digits.spread * time * factor
    interval = result.interval or {}
    ends = (known(interval[name] * factor, error) for name in ("low", "high") if interval)
    between = " to ".join(ends)
    text = f"{known(time * factor, error)} {unit}" + (f" ({between})" if between else "")
    return f"{text}, {digits.rate(rate)} samples/s"


def _memory_title(tier: int) -> str:
    return f"{MEMORIES[tier].capitalize()} per processor"


def _memory_text(result: Result, tier: int) -> str:
    """Write the memory in use, and the capacity if known."""
    text = f"{sum(_sizes(result, tier)) / GIB:,.1f} GiB"
    if not result.capacities:
        return text
    return f"{text} of {result.digits.capacity(result.capacities[tier])}"


def _sizes(result: Result, tier: int) -> list[float]:
    return list(result.memory()[tier].values())


def _used(results: Sequence[Result], tier: int) -> float:
    """Return the largest memory in use of some results."""
    return max(sum(_sizes(result, tier)) for result in results)


def _limits(results: Sequence[Result], tier: int) -> list[float | None]:
    """Return the capacities that are close enough to the memory in use to be drawn, in GiB."""
    most = _FAR * _used(results, tier)
    # Files of statistics have no capacities.
    found = [result.capacities[tier] if result.capacities else None for result in results]
    return [limit / GIB if limit and limit < most else None for limit in found]
