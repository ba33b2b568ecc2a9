"""Chart of goodput by processor count, with the times between interruptions and between checkpoints."""

import math
from collections.abc import Iterator, Sequence

from calculon.base.records import Plain
from calculon.declarations.origin import stated_name
from calculon.render.chart import (
    Axis,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    Rule,
    Span,
    dots,
    line_look,
)
from calculon.render.chart_axes import count_axis, log_axis, widened

WORDS = (
    "Goodput by processor count for several failure rates, with the time between interruptions "
    "and between checkpoints"
)
"""Description of the chart for readers who cannot see it (alt text)."""

_MINUTE = 60.0
_FIGURES = (
    ("goodput", "goodput", 100.0),
    ("mtbf_hours", "mtbf_hours", 1.0),
    ("checkpoint_interval", "interval", 1 / _MINUTE),
)
"""For each panel: the figure of a curve, the figure of a published run, and the factor to the unit of the axis."""

_PUBLISHED = ("star", "plus", "cross", "diamond", "down", "square", "triangle")
_MORE = "more than"
"""Mark of a published goodput that is a lower bound."""


def goodput_curves(document: Plain) -> Chart:
    """Return three panels by processor count: goodput, hours between interruptions, minutes between checkpoints.

    Ranges with extrapolated failure rates are gray, and published runs have black marks.

    Args:
        document: :meth:`calculon.advise.runs.goodput_by_size.GoodputBySize.to_dict`.
    """
    question = document["question"]
    model, system = (stated_name(question[kind]) for kind in ("model", "system"))
    x = count_axis("Processors", document["num_procs"])
    backs = [*_extrapolated(document, x)]
    plan = Rule(
        name="processors of the plan", at=document["plan_num_procs"], color="gray", dash="dot"
    )
    marks = [_curves(document, place) + _runs(document, place) for place in range(len(_FIGURES))]
    hours, minutes = ([y for line in marks[place] for y in line.y] or [1.0] for place in (1, 2))
    chosen = "Stated" if document["interval_stated"] else "Best"
    axes = (
        _goodput_axis([y for line in marks[0] for y in line.y]),
        log_axis("Between\ninterruptions", "h", hours),
        log_axis(f"{chosen} checkpoint\ninterval", "min", minutes),
    )
    arrows = [_arrows(document), (), ()]
    rows = zip(axes, marks, arrows, (2.6, 1.8, 1.9), strict=True)
    return Chart(
        title=f"{model} on {system}: more replicas of a plan",
        terms=[question["edition"]],
        rows=[
            (Panel(x=x, y=y, marks=[*backs, *lines, *more, plan], height=height),)
            for y, lines, more, height in rows
        ],
        width=6.4,
        shared=True,
    )


def _goodput_axis(percents: Sequence[float]) -> Axis:
    """Return the axis of goodput, which ends at 100 %."""
    # The axis starts near the data: differences of a few percent matter.
    low = max(0.0, widened([*percents, 100.0])[0])
    return Axis(label="Goodput", unit="%", limits=(low, 100 + 0.02 * (100 - low)))


def _curves(document: Plain, place: int) -> list[Line]:
    """Return the curves of a panel; checkpoint intervals limited by storage have hollow marks."""
    name, _, factor = _FIGURES[place]
    result, limited = [], False
    for number, curve in enumerate(document["curves"]):
        color, marker, dash = line_look(number)
        bounds = curve["storage_limits"]
        limited = limited or any(bounds)
        points = [
            (x, factor * y, hollow)
            for x, y, hollow in zip(document["num_procs"], curve[name], bounds, strict=True)
            if math.isfinite(y)
        ]
        result.append(
            Line(
                name=_label(document, curve),
                x=[x for x, _, _ in points],
                y=[y for _, y, _ in points],
                color=color,
                marker=marker,
                dash=dash,
            )
        )
        hollow = [(x, y) for x, y, bound in points if bound and name == "checkpoint_interval"]
        if hollow:
            result.append(dots(hollow, marker, color=color, hollow=True))
    if limited:
        result.append(dots([], name="limited by storage bandwidth", color="gray", hollow=True))
    return result


def _label(document: Plain, curve: Plain) -> str:
    hours = curve["mtbf_processor"]
    stated = " (campaign)" if hours == document["mtbf_of_campaign"] else ""
    words = f"a processor fails every {hours:,.0f} h" if math.isfinite(hours) else "no failures"
    return words + stated


def _shown(document: Plain) -> list[Plain]:
    """Return the published runs within the drawn range of processor counts."""
    first, last = document["num_procs"][0], document["num_procs"][-1]
    return [one for one in document["published"] if first <= one["num_procs"] <= last]


def _runs(document: Plain, place: int) -> list[Line]:
    """Return the published runs in a panel; projected ones are hollow."""
    _, name, factor = _FIGURES[place]
    result = []
    for number, one in enumerate(_shown(document)):
        evidence = "" if one["evidence"] == "read" else f" ({one['evidence']})"
        points = [] if one[name] is None else [(one["num_procs"], factor * one[name])]
        look = {"color": "black", "sizes": (8.0,), "hollow": one["projected"], "clip": False}
        marker = _PUBLISHED[number % len(_PUBLISHED)]
        result.append(dots(points, marker, name=one["run"] + evidence, **look))
    return result


def _arrows(document: Plain) -> list[Mark]:
    """Return an upward arrow for each published goodput that is a lower bound."""
    bounds = [
        one for one in _shown(document) if one["goodput_is"] == _MORE and one["goodput"] is not None
    ]
    if not bounds:
        return []
    x, y = [one["num_procs"] for one in bounds], [100 * one["goodput"] for one in bounds]
    return [Notes(x=x, y=y, texts=["↑"] * len(bounds), side="above", size=13.0)]


def _extrapolated(document: Plain, x: Axis) -> Iterator[Span]:
    """Yield the ranges without measured times between failures."""
    least, most = document["measured_num_procs"]
    low, high = x.limits or (least, most)
    for first, last in ((low, min(least, high)), (max(most, low), high)):
        if first < last:
            yield Span(name="failure rate is extrapolated", low=first, high=last)
