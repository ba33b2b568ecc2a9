"""A tornado: how far a statistic goes with each figure of a machine lower and higher, the longest bar first."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.base.units import significant
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.documents.sensitivity_page import (
    KINDS,
    SHOWN,
    capped,
    change,
    folded,
    stated,
    whole,
)
from calculon.render.bars import COLORS
from calculon.render.canvas import BLACK, drawing, figure, note_edition
from calculon.render.chart_axes import Quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

MOST = 12
"""Bars of a panel."""

_LOOKS: Mapping[str, Mapping[str, Any]] = {
    "low": {"facecolor": "#f4c6a5", "hatch": "////"},
    "high": {"facecolor": COLORS["blue"]},
}
_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3))
_LONGEST = 34  # letters of a line of a label
_LINE, _BAR, _PANEL, _AROUND = 0.15, 0.13, 0.55, 1.05
"""Inches: of a line of a label, around a bar, around those of a panel, and around the picture."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Figures of one kind, the largest change first."""

    title: str
    rows: Sequence[Document]


def panels(document: Document) -> list[Panel]:
    """Return the panels of a sensitivity as plain data: one for each kind of figures that matter."""
    now = document["value"]
    rows = [
        row
        for row in document["figures"]
        if _swing(row, now) > SHOWN * whole(now, document["unit"])
    ]
    rows.sort(key=lambda row: -_swing(row, now))
    found = [(KINDS[kind], [row for row in rows if row["kind"] == kind]) for kind in KINDS]
    return [Panel(title, some[:MOST]) for title, some in found if some]


def _swing(row: Document, now: float) -> float:
    ends = [row.get(f"{kind}at_{end}") for kind in ("", "replanned_") for end in ("low", "high")]
    known: list[float] = [now, *(one for one in ends if one is not None)]
    return max(known) - min(known)


def draw(document: Document) -> "Figure":
    """Draw the tornado of a sensitivity (:meth:`calculon.advise.dependence.Sensitivity.to_dict`).

    Every bar begins at the statistic of now. Where the plan was searched again, diamonds are the best plans.
    """
    shown = panels(document) or [Panel("No figure of the machine has an effect", ())]
    labels = [[_label(row) for row in panel.rows] for panel in shown]
    lines = [max((one.count("\n") + 1 for one in some), default=1) for some in labels]
    heights = [
        _PANEL + (_BAR + _LINE * most) * max(1, len(some))
        for most, some in zip(lines, labels, strict=True)
    ]
    asked = document["question"]
    fields = asked["execution"]["fields"]
    machine = f"{fields['num_procs']:,} x {stated_name(asked['system'])}"
    with drawing():
        picture = figure(7.6, _AROUND + sum(heights))
        picture.suptitle(f"{stated_name(asked['model'])} on {machine}", x=0.01, ha="left", size=10)
        parts = picture.subplots(len(shown), 1, squeeze=False, sharex=True, height_ratios=heights)
        for axes, panel, some in zip(parts[:, 0], shown, labels, strict=True):
            _panel(axes, panel, some, document)
        last = parts[-1, 0]
        _scale(last, document)
        last.set_xlabel(_words(document))
        note_edition(last, [asked["edition"]])
        picture.legend(handles=_legend(document), loc="outside lower center", ncols=3)
    return picture


def _scaled(document: Document) -> tuple[str, float]:
    """Return the words of the statistic with its unit, and the factor to that unit: thousands, millions of many."""
    quantity = Quantity(document["statistic"])
    size = abs(document["value"] * quantity.factor)
    prefix, times = next(((name, one) for name, one in _PREFIXES if size >= 10 * one), ("", 1.0))
    quantity.unit = f"{prefix} {quantity.unit}".strip()
    return quantity.label, quantity.factor / times


def _panel(axes: "Axes", panel: Panel, labels: Sequence[str], document: Document) -> None:
    """Draw the bars of a panel, and say the values of figures at their ends."""
    (_, factor), now = _scaled(document), document["value"]
    for place, row in enumerate(panel.rows):
        again = (row.get(f"replanned_at_{end}") for end in _LOOKS)
        best = [one for one in again if one is not None]
        for end, look in _LOOKS.items():
            value = row[f"at_{end}"]
            if row[end] is None or value == now:
                continue
            to = now if value is None else value
            left, width = now * factor, (to - now) * factor
            axes.barh(place, width, left=left, height=0.58, edgecolor="white", lw=0.6, **look)
            right = end == "low" if value is None else value > now
            said = f"{_figure(row, end)}: {change(value, now)}"
            beyond = (
                max([to, *best]) if right else min([to, *best])
            )  # diamonds would cover the text
            _say(axes, beyond * factor, place, said, right=right)
        found = [one * factor for one in best]
        axes.plot(found, [place] * len(found), marker="D", color=BLACK, ls="none", ms=3.2, zorder=4)
    axes.axvline(now * factor, color=BLACK, linewidth=0.8, zorder=3)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(max(1, len(labels)) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_title(panel.title, fontsize=9)


def _say(axes: "Axes", x: float, y: float, text: str, *, right: bool) -> None:
    """Write a text beside the end of a bar."""
    offset, side = (5, "left") if right else (-5, "right")
    axes.annotate(
        text,
        (x, y),
        xytext=(offset, 0),
        textcoords="offset points",
        va="center",
        ha=side,
        fontsize=7,
        color="#444444",
    )


def _figure(row: Document, end: str) -> str:
    """Write the value of a figure at an end of its range, without its unit but for times."""
    return stated(row[end], "s" if row["unit"] == "s" else "")


def _label(row: Document) -> str:
    """Write the path of a figure and its unit, in lines that end at dots."""
    said = row["unit"] in ("", "s") or row["path"].endswith(row["unit"])
    unit = "" if said else f" ({row['unit']})"
    return "\n".join(folded(row["path"], _LONGEST)) + unit


def _scale(axes: "Axes", document: Document) -> None:
    """Leave room for the texts at the ends of the longest bars."""
    low, high = axes.get_xlim()
    room = 0.16 * (high - low)
    axes.set_xlim(low - room, high + room)


def _words(document: Document) -> str:
    label, factor = _scaled(document)
    digits = 4 if document["question"]["edition"] == PUBLISHED else 3
    return f"{label}: {significant(document['value'] * factor, digits)} now"


def _legend(document: Document) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    share = document["range"]["share"]
    words = {"low": f"figure {100 * share:g} % lower", "high": f"{100 * share:g} % higher"}
    if any(capped(row, share) for panel in panels(document) for row in panel.rows):
        words["high"] += ", shares at most 1"
    if document["range"]["calibrated"]:
        words = {"low": "lower end of its range", "high": "higher end"}
    handles: list[Any] = [
        Patch(label=words[end], edgecolor="white", **look) for end, look in _LOOKS.items()
    ]
    if "replanned" in document:
        again = Line2D([], [], color=BLACK, marker="D", ms=3.2, ls="none", label="planned again")
        handles.append(again)
    return handles
