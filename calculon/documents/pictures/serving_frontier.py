"""What a processor generates against what a user sees: the frontier of deployments, a curve for each machine."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from calculon.declarations.named_values import CORRECTED
from calculon.documents.serving_frontier_page import all_types, counts_words, pools_words
from calculon.documents.serving_page import requests_words
from calculon.render.canvas import (
    BLACK,
    GREY,
    MARKERS,
    SERIES,
    drawing,
    figure,
    logarithmic_ticks,
    note_edition,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

_SPREAD = 20.0
"""Ratio of the largest to the smallest value from which an axis is logarithmic."""

_MARKS = "marks: ends, and where another split begins; B: sequences of a replica"

_LEAST = 3
"""Points that follow each other with one split from which its begin has a mark."""

_SIDES: tuple[tuple[int, int, str], ...] = (
    (5, 4, "left"),
    (-5, 4, "right"),
    (5, -10, "left"),
    (-5, -10, "right"),
    (5, 12, "left"),
)
"""Offsets of a label from its mark in points, and its alignment, tried in this order until there is room."""

_ROOM = 1.5
"""Dots that are free around a label."""


def draw(document: Document) -> "Figure":
    """Draw the frontier of each machine; a mark stands where another deployment begins, with its split beside.

    Parameters
    ----------
    document : mapping
        ``model``, ``num_procs``, ``workload``, and ``curves``: each with its ``system``, and its ``points`` in order
        of falling ``interactivity`` with ``output_rate_per_proc``, ``batch`` and ``deployment``; where it has none,
        ``none`` says why.
    """
    curves = [curve for curve in document["curves"] if curve["points"]]
    types = all_types(document)
    with drawing():
        picture = figure(6.4, 4.8)
        axes = picture.subplots()
        for number, curve in enumerate(curves):
            color = SERIES[number % len(SERIES)]
            marker = MARKERS[number % len(MARKERS)]
            x, y = _places(curve["points"])
            axes.plot(x, y, color=color, lw=1.4)
            starts = [own[0] for own in _splits(curve["points"], typed=len(types) > 1)]
            axes.plot(
                *_places([*starts, curve["points"][-1]]), color=color, marker=marker, ls="none"
            )
            axes.plot([], [], color=color, marker=marker, label=curve["system"])
        for curve in document["curves"]:
            if not curve["points"]:
                axes.plot([], [], ls="none", label=f"{curve['system']}: {curve['none']}")
        _scale(axes, curves)
        _limit(axes, document["workload"])
        picture.draw_without_rendering()
        _names(axes, curves, typed=len(types) > 1)
        axes.set_xlabel("Tokens/s of a user")
        axes.set_ylabel("Generated tokens/s of a processor")
        title = f"{document['model']} on {counts_words(document['num_procs'])}"
        picture.suptitle(title, x=0.02, ha="left", fontsize=10)
        asked = [requests_words(document["workload"]), *(types if len(types) == 1 else ())]
        axes.set_title(f"{'; '.join(asked)}\n{_MARKS}", fontsize=7, color=GREY)
        note_edition(axes, [CORRECTED])
        picture.legend(loc="outside lower center", ncols=3)
    return picture


def _places(points: Sequence[Document]) -> tuple[list[float], list[float]]:
    """Return where points stand."""
    return tuple(  # type: ignore[return-value]
        [one[name] for one in points] for name in ("interactivity", "output_rate_per_proc")
    )


def _splits(points: Sequence[Document], *, typed: bool) -> list[list[Document]]:
    """Return points that follow each other with one split, together; those with few points are left out."""
    every = [list(own) for _, own in groupby(points, key=lambda one: _split(one, typed=typed))]
    first, *others = every
    return [first, *(own for own in others if len(own) >= _LEAST)]


def _scale(axes: "Axes", curves: Sequence[Document]) -> None:
    """Scale axes of values that are many times apart by powers, others from 0."""
    every = [point for curve in curves for point in curve["points"]]
    for values, axis, scale, limits in (
        (_places(every)[0], axes.xaxis, axes.set_xscale, axes.set_xlim),
        (_places(every)[1], axes.yaxis, axes.set_yscale, axes.set_ylim),
    ):
        low, high = min(values), max(values)
        if high > _SPREAD * low:
            scale("log", base=10)
            logarithmic_ticks(axis, (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,))
            limits(low / 1.15, high * 1.3)
        else:
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            limits(0, 1.1 * high)


def _limit(axes: "Axes", workload: Document) -> None:
    """Draw the limit of TPOT, which is one of what a user sees."""
    if (limit := workload.get("tpot_limit")) is not None:
        axes.axvline(1 / limit, color=BLACK, lw=0.9, ls="--", label=f"TPOT {limit * 1e3:,g} ms")


def _split(one: Document, *, typed: bool) -> str:
    """Name the split of a point, with the type of its weights where these differ."""
    d = one["deployment"]
    return ", ".join([pools_words(d), *([d["weights_dtype"]] if typed else [])])


def _names(axes: "Axes", curves: Sequence[Document], *, typed: bool) -> None:
    """Write splits with their batch beside their marks, as far as there is room: ends first, then long ones."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.0, foreground="white")]
    every = [(number, _splits(curve["points"], typed=typed)) for number, curve in enumerate(curves)]
    marks = [(number, several[0][0], _SIDES) for number, several in every]
    marks += [(number, curves[number]["points"][-1], _SIDES) for number, _ in every]
    inner = [(number, own) for number, several in every for own in several[1:]]
    inner.sort(key=lambda one: -len(one[1]))
    marks += [(number, own[0], _SIDES[:1]) for number, own in inner]
    taken: list[Any] = []
    panel = axes.bbox
    for number, one, sides in marks:
        for right, up, side in sides:
            label = axes.annotate(
                f"{_split(one, typed=typed)}, B {one['batch']:,.0f}",
                (one["interactivity"], one["output_rate_per_proc"]),
                xytext=(right, up),
                textcoords="offset points",
                ha=side,
                fontsize=6.5,
                color=SERIES[number % len(SERIES)],
                path_effects=halo,
            )
            box = label.get_window_extent().padded(_ROOM)
            inside = panel.x0 <= box.x0 and box.x1 <= panel.x1 and box.y0 >= panel.y0
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()
