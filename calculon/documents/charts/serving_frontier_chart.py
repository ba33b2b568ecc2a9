"""Chart of tokens/s per processor by tokens/s per user: the frontier of deployments on each machine."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby

from calculon.base.frozen import dataclass
from calculon.base.records import Plain
from calculon.declarations.named_values import CORRECTED
from calculon.documents.serving_frontier_page import all_types, counts_words, pools_words
from calculon.documents.serving_page import duration_of, rate, requests_words
from calculon.render.chart import Chart, Line, Mark, Notes, Panel, Rule, dots, line_look
from calculon.render.chart_axes import value_axis
from calculon.render.label_places import place_labels

_WIDTH, _HEIGHT = 6.4, 4.2  # inches
_SPREAD = 20.0  # ratio of values from which on their axis is logarithmic
_LEAST = 3  # successive points with the same split whose first one is marked
_MARKS = "marks: ends, and changes of the split; B: sequences per replica"


def serving_frontier(
    document: Plain,
    link: Callable[[Plain], str] | None = None,
    here: tuple[float, float] | None = None,
) -> Chart:
    """Return the frontier of each machine, with marks at changes of the deployment.

    Args:
        link: Function that returns the address of a point; with it, every point has a mark and a tooltip.
        here: Tokens/s per user and per processor of a marked deployment.
        document: ``model``, ``num_procs``, ``workload``, and ``curves``: each with its ``system``, and its ``points``
            by decreasing ``interactivity`` with ``output_rate_per_proc``, ``batch`` and ``deployment``; without points,
            ``none`` is the reason.
    """
    load, types = document["workload"], all_types(document)
    curves = [curve for curve in document["curves"] if curve["points"]]
    users, rates = _places([point for curve in curves for point in curve["points"]])
    if here is not None:
        users, rates = [*users, here[0]], [*rates, here[1]]
    marks: list[Mark] = []
    if (limit := load.tpot_limit) is not None:
        name = f"TPOT {limit * 1e3:,g} ms"
        # A TPOT limit is a lower bound of tokens/s per user.
        marks.append(Rule(name=name, at=1 / limit, dash="dash", width=0.9))
        users.append(1 / limit)
    x = value_axis("Tokens/s per user", "", users, ratio=_SPREAD, padding=0.1)
    y = value_axis("Generated tokens/s per processor", "", rates, ratio=_SPREAD, padding=0.1)
    labels: list[_Label] = []
    for number, curve in enumerate(curves):
        color, marker, _ = line_look(number)
        own = _labels(curve["points"], color, typed=len(types) > 1)
        labels += own
        across, up = _places(curve["points"])
        marks.append(Line(x=across, y=up, color=color))
        if link is not None:
            marks.append(_linked(curve["points"], color, link))
        ends = zip(*_places([one.point for one in own]), strict=True)
        marks.append(dots(ends, marker, name=curve["system"], color=color))
    if here is not None:
        marks.append(dots([here], "star", name="this deployment", sizes=(9.0,), color="orange"))
    marks += [
        Line(name=f"{curve['system']}: {curve['none']}", x=(), y=(), dash="none")
        for curve in document["curves"]
        if not curve["points"]
    ]
    labels.sort(key=lambda one: one.rank)
    across, up = _places([one.point for one in labels])
    colors = [one.color for one in labels]
    notes = Notes(x=across, y=up, texts=[one.text for one in labels], color=colors, size=6.5)
    marks.append(place_labels(notes, x, y, (_WIDTH, _HEIGHT), marks))
    asked = [requests_words(load), *(types if len(types) == 1 else ())]
    return Chart(
        title=f"{document['model']} on {counts_words(document['num_procs'])}",
        subtitle="; ".join([*asked, _MARKS]),
        terms=[CORRECTED],
        rows=((Panel(x=x, y=y, marks=marks, height=_HEIGHT),),),
        width=_WIDTH,
    )


def _linked(points: Sequence[Plain], color: str, link: Callable[[Plain], str]) -> Mark:
    """Return a mark for every point of a frontier, with its figures and its address."""
    words = [
        f"{pools_words(one['deployment'])}, batch {one['batch']:,.0f}\n"
        f"{rate(one['interactivity'])} tokens/s per user, {rate(one['output_rate_per_proc'])} per processor\n"
        f"first token after {duration_of(one['ttft'])}"
        for one in points
    ]
    at = zip(*_places(points), strict=True)
    return dots(at, sizes=(4.0,), color=color, words=words, links=[*map(link, points)])


@dataclass(frozen=True, slots=True)
class _Label:
    """Labeled point, with deployment and batch; labels of lower rank are placed first."""

    point: Plain
    text: str
    color: str
    rank: float


def _labels(points: Sequence[Plain], color: str, *, typed: bool) -> list[_Label]:
    """Return the ends of a frontier, and the points at which the split changes for several points."""

    def split(one: Plain) -> str:
        deployment = one["deployment"]
        return ", ".join([pools_words(deployment), *([deployment.weights_dtype] * typed)])

    runs = [list(run) for _, run in groupby(points, key=split)]
    # Short runs of a split would crowd the chart with labels.
    inner = [(run[0], -len(run)) for run in runs[1:] if len(run) >= _LEAST]
    return [
        _Label(one, f"{split(one)}, B {one['batch']:,.0f}", color, rank)
        for one, rank in ((points[0], -math.inf), *inner, (points[-1], -math.inf))
    ]


def _places(points: Sequence[Plain]) -> tuple[list[float], list[float]]:
    """Return the coordinates of points."""
    users, rates = (
        [one[name] for one in points] for name in ("interactivity", "output_rate_per_proc")
    )
    return users, rates
