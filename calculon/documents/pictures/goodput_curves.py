"""Goodput over processors, and what it follows from: the time between interruptions, and that between checkpoints."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.declarations.origin import stated_name
from calculon.render.canvas import (
    BLACK,
    GREY,
    MARKERS,
    SERIES,
    STYLES,
    count_axis,
    drawing,
    figure,
    logarithmic_ticks,
    note_edition,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

WORDS = (
    "Goodput over the number of processors for several times between failures, with the time between interruptions "
    "and between checkpoints"
)
"""The picture for those who do not see it."""

_MINUTE = 60.0
_SHADE = "#ededed"
_MARKS = ("*", "P", "X", "d", "p", "h", "8", "<", ">", "^")
"""Marks of published runs."""

_MORE = "more than"
"""What a published goodput is that is a bound."""


def draw(document: Document) -> "Figure":
    """Draw three panels over the processors: goodput, hours between interruptions, minutes between checkpoints.

    Sizes are grey where the time between failures is extrapolated, and published runs have black marks.

    Parameters
    ----------
    document : mapping
        :meth:`calculon.advise.runs.goodput_by_size.GoodputBySize.to_dict`.
    """
    question = document["question"]
    model, system = (stated_name(question[kind]) for kind in ("model", "system"))
    chosen = "Stated" if document["interval_stated"] else "Best"
    with drawing():
        picture = figure(6.4, 7.0)
        panels = picture.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
        upper, middle, lower = panels
        for number, curve in enumerate(document["curves"]):
            _curve(panels, document, curve, number)
        _limited(upper, document)
        _published(panels, document)
        count_axis(upper, document["num_procs"])
        _shade(panels, document)
        upper.set_ylabel("Goodput (%)")
        least = max(0.0, upper.get_ylim()[0])
        upper.set_ylim(least, 100 + 0.02 * (100 - least))
        for axes in panels:
            axes.axvline(document["plan_num_procs"], color=GREY, lw=0.9, ls=":", zorder=1)
        upper.plot([], [], color=GREY, lw=0.9, ls=":", label="processors of the plan")
        for axes, label in (
            (middle, "Between\ninterruptions (h)"),
            (lower, f"{chosen} checkpoint\ninterval (min)"),
        ):
            axes.set_yscale("log", base=10)
            _ticks(axes)
            axes.set_ylabel(label)
        lower.set_xlabel("Processors")
        upper.set_title(f"{model} on {system}: more replicas of a plan")
        note_edition(lower, [question["edition"]])
        picture.legend(loc="outside lower center", ncols=2)
    return picture


def _curve(panels: Sequence["Axes"], document: Document, curve: Document, number: int) -> None:
    """Draw one time between failures in each panel; what storage limits has hollow marks."""
    x = document["num_procs"]
    look: dict[str, Any] = {
        "color": SERIES[number % len(SERIES)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": STYLES[number % len(STYLES)],
        "markersize": 4.5,
    }
    upper, middle, lower = panels
    upper.plot(x, [100 * one for one in curve["goodput"]], label=_label(document, curve), **look)
    middle.plot(x, curve["mtbf_hours"], **look)
    minutes = [one / _MINUTE for one in curve["checkpoint_interval"]]
    lower.plot(x, minutes, **look)
    limited = [
        (n, y) for n, y, bound in zip(x, minutes, curve["storage_limits"], strict=True) if bound
    ]
    if limited:
        hollow = look | {"linestyle": "none", "markerfacecolor": "white", "zorder": 3}
        lower.plot(*zip(*limited, strict=True), **hollow)


def _limited(axes: "Axes", document: Document) -> None:
    """Explain hollow marks, if there are some."""
    if any(any(curve["storage_limits"]) for curve in document["curves"]):
        look: dict[str, Any] = {
            "color": GREY,
            "marker": "o",
            "linestyle": "none",
            "markerfacecolor": "white",
        }
        axes.plot([], [], label="storage takes no more checkpoints", markersize=4.5, **look)


def _label(document: Document, curve: Document) -> str:
    hours = curve["mtbf_processor"]
    own = " (campaign)" if hours == document["mtbf_of_campaign"] else ""
    return (
        f"a processor fails every {hours:,.0f} h{own}"
        if math.isfinite(hours)
        else f"no failures{own}"
    )


def _published(panels: Sequence["Axes"], document: Document) -> None:
    """Draw published runs of the sizes that are drawn, each with a mark of its own; projected ones hollow."""
    first, last = document["num_procs"][0], document["num_procs"][-1]
    near = [one for one in document["published"] if first <= one["num_procs"] <= last]
    for number, one in enumerate(near):
        values = (
            None if one["goodput"] is None else 100 * one["goodput"],
            one["mtbf_hours"],
            None if one["interval"] is None else one["interval"] / _MINUTE,
        )
        look: dict[str, Any] = {
            "marker": _MARKS[number % len(_MARKS)],
            "color": BLACK,
            "linestyle": "none",
            "markersize": 8,
            "zorder": 4,
        }
        if one["projected"]:
            look["markerfacecolor"] = "white"
        for axes, value in zip(panels, values, strict=True):
            if value is not None:
                axes.plot([one["num_procs"]], [value], clip_on=False, **look)
        if one["goodput_is"] == _MORE and values[0] is not None:
            _arrow(panels[0], (one["num_procs"], values[0]))
        evidence = "" if one["evidence"] == "read" else f" ({one['evidence']})"
        panels[0].plot([], [], label=one["run"] + evidence, **look)


def _arrow(axes: "Axes", base: tuple[float, float]) -> None:
    """Draw an arrow up from a bound."""
    look = {"arrowstyle": "<|-", "color": BLACK, "lw": 1.0, "shrinkA": 0, "shrinkB": 4}
    axes.annotate("", base, xytext=(0, 19), textcoords="offset points", arrowprops=look, zorder=5)


def _shade(panels: Sequence["Axes"], document: Document) -> None:
    """Shade the sizes for which no time between failures was measured."""
    least, most = document["measured_num_procs"]
    low, high = panels[0].get_xlim()
    spans = [(first, last) for first, last in ((low, least), (most, high)) if first < last]
    look: dict[str, Any] = {"color": _SHADE, "lw": 0, "zorder": 0}
    for axes in panels:
        for first, last in spans:
            axes.axvspan(max(first, low), min(last, high), **look)
        axes.set_xlim(low, high)
    if spans:
        panels[0].fill([], [], label="law of failures is extrapolated", **look)


def _ticks(axes: "Axes") -> None:
    low, high = axes.get_ylim()
    logarithmic_ticks(axes.yaxis, (1.0, 2.0, 5.0) if high / low < 50 else (1.0,))
