"""Where time and memory go: a stacked bar for each result, memory against the capacity."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, known, significant
from calculon.declarations.statistics import AXIS_PARTS_OF_TIME, KINDS_OF_MEMORY
from calculon.documents.page import PARTS
from calculon.documents.result import EVERYTHING, Result
from calculon.render.bars import COLORS
from calculon.render.canvas import (
    BLACK,
    LIGHT,
    drawing,
    figure,
    note_edition,
    time_unit,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Look:
    """How a piece of a bar is drawn."""

    color: str
    hatch: str = ""


_AXES = ("....", "xxxx", "----")
"""Hatches of the traffic of further axes."""

LOOKS = {
    "fw_time": Look(COLORS["blue"]),
    "bw_time": Look("#4f9fd0"),
    "optim_step_time": Look("#a6cfe8"),
    "recompute_time": Look(COLORS["sky"], "////"),
    "tp_comm_exposed_time": Look(COLORS["vermilion"]),
    "pp_comm_exposed_time": Look("#e8955a", "\\\\\\\\"),
    "dp_comm_exposed_time": Look("#f4c6a5"),
    **{name: Look("#f4c6a5", hatch) for name, hatch in zip(AXIS_PARTS_OF_TIME, cycle(_AXES))},
    "recomm_exposed_time": Look(COLORS["vermilion"], "xxxx"),
    "fw_offload_exposed_time": Look(COLORS["purple"]),
    "bw_offload_exposed_time": Look("#e6bfd5", "...."),
    "bubble_time": Look(COLORS["orange"], "...."),
    "host_time": Look(LIGHT),
    "weights": Look(COLORS["blue"]),
    "weight gradients": Look("#7fb7dc", "////"),
    "optimizer state": Look("#c3ddee"),
    "activations": Look(COLORS["green"], "xxxx"),
    "checkpoints": Look("#8fd0bb", "\\\\\\\\"),
    "activation gradients": Look(COLORS["orange"], "...."),
    "gathered weights": Look(COLORS["sky"], "////"),
    "gradients being reduced": Look("#f4c6a5"),
    "fragments": Look(LIGHT, "xxxx"),
    "reserved": Look(LIGHT, "...."),
    EVERYTHING: Look(LIGHT),
}
"""Colours by family (computing blue, communicating vermilion, ...), shades and hatches within."""

_FAR = 20  # a capacity this many times the memory in use would leave nothing of the bars to be seen
_VISIBLE = 0.004  # share of the longest bar from which a piece is in the legend

assert set(LOOKS) == {*PARTS, *KINDS_OF_MEMORY, EVERYTHING}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: stacked bars in its unit, a text at the end of each, and for each the line not to be crossed."""

    title: str
    label: str
    stacks: Sequence[Mapping[str, float]]
    ends: Sequence[str]
    limits: Sequence[float | None]

    @property
    def kinds(self) -> list[str]:
        """The pieces that some bar has, in the order of the stack: that of :data:`LOOKS`."""
        return [name for name in LOOKS if any(stack.get(name, 0) > 0 for stack in self.stacks)]


def panels(results: Sequence[Result]) -> list[Panel]:
    """Return the panels: time, tier 1, and tier 2 where it is used; without zeros."""
    unit, factor = time_unit(max(result.value("total_time") for result in results))
    times = [_scaled(result.times(), factor) for result in results]
    ends = [_end_of_time(result, unit, factor) for result in results]
    found = [Panel("Time per iteration", f"Time ({unit})", times, ends, [None] * len(results))]
    for tier in (0, 1):
        stacks = [_scaled(result.memory()[tier], 1 / GIB) for result in results]
        sums = [sum(stack.values()) for stack in stacks]
        if tier == 1 and not any(sums):
            continue
        limits = [r.capacities[tier] / GIB if r.capacities else None for r in results]
        limits = [limit if limit and limit < _FAR * max(sums) else None for limit in limits]
        ends = [_end(result, tier, size) for result, size in zip(results, sums, strict=True)]
        title, label = f"Memory of a processor, tier {tier + 1}", "Memory (GiB)"
        found.append(Panel(title, label, stacks, ends, limits))
    return found


def _end_of_time(result: Result, unit: str, factor: float) -> str:
    """Say how long an iteration takes, its interval where that is known, and the rate."""
    time, rate, digits = result.value("total_time"), result.value("sample_rate"), result.digits
    if not digits.spread:
        return f"{significant(time * factor)} {unit}, {significant(rate)} samples/s"
    error = digits.spread * time * factor
    interval = result.interval or {}
    ends = (known(interval[name] * factor, error) for name in ("low", "high") if interval)
    told = " to ".join(ends)
    text = f"{known(time * factor, error)} {unit}" + (f" ({told})" if told else "")
    return f"{text}, {digits.rate(rate)} samples/s"


def _scaled(values: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: value * factor for name, value in values.items() if value > 0}


def _end(result: Result, tier: int, size: float) -> str:
    """Say how much memory is used, of how much."""
    text = f"{size:,.1f} GiB"
    return (
        f"{text} of {result.digits.capacity(result.capacities[tier])}"
        if result.capacities
        else text
    )


def draw(results: Sequence[Result]) -> "Figure":
    """Draw a bar for each result in every panel, the first at the top.

    Parameters
    ----------
    results : sequence of Result
        At least one.
    """
    from matplotlib.lines import Line2D

    shown = panels(results)
    labels = [wrapped(result.label, 30) for result in results]
    splits = [result.split for result in results]
    texts = ["\n".join(filter(None, pair)) for pair in zip(labels, splits, strict=True)]
    lines = max(text.count("\n") + 1 for text in texts)
    bar = max(0.42, 0.17 * lines + 0.12)
    heights = [0.85 + bar * len(results) + 0.19 * _legend_rows(one) for one in shown]
    with drawing():
        picture = figure(7.6, sum(heights))
        parts = picture.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, one in zip(parts, shown, strict=True):
            axes = part.subplots()
            _panel(axes, one, texts)
            handles, _ = axes.get_legend_handles_labels()
            handles.sort(key=lambda handle: isinstance(handle, Line2D))  # the capacity last
            part.legend(handles=handles, loc="outside lower center", ncols=_LEGEND_COLUMNS)
        note_edition(axes, [result.terms for result in results])
    return picture


_LEGEND_COLUMNS = 3


def _legend_rows(one: Panel) -> int:
    return -(-(len(one.kinds) + any(one.limits)) // _LEGEND_COLUMNS)


def _panel(axes: "Axes", one: Panel, labels: Sequence[str]) -> None:
    """Draw one panel."""
    places = range(len(labels))
    longest = max(sum(stack.values()) for stack in one.stacks)
    left = [0.0] * len(labels)
    for name in one.kinds:
        sizes = [stack.get(name, 0.0) for stack in one.stacks]
        look, words = LOOKS[name], PARTS[name][0] if name in PARTS else name
        axes.barh(
            places,
            sizes,
            left=left,
            height=0.62,
            color=look.color,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0.8,
            label=words if max(sizes) >= _VISIBLE * longest else None,
        )
        left = [a + b for a, b in zip(left, sizes, strict=True)]
    longest = max([longest, *(limit for limit in one.limits if limit)])
    label: str | None = "capacity"
    for place, limit in zip(places, one.limits, strict=True):
        if limit:
            axes.plot([limit] * 2, [place - 0.42, place + 0.42], color=BLACK, lw=1.6, label=label)
            label = None
    for place, (end, limit, text) in enumerate(zip(left, one.limits, one.ends, strict=True)):
        beyond = max(end, limit or 0.0) if limit and limit - end < 0.3 * longest else end
        axes.annotate(
            text,
            (beyond, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axes.set_xlim(0, longest * 1.34)
    axes.set_ylim(len(labels) - 0.45, -0.55)
    axes.set_yticks(list(places), labels)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(one.title)
    axes.set_xlabel(one.label)
