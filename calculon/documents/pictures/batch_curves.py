"""Time per token, throughput and time to the first token over the batch, and where each bound cuts."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.declarations.named_values import CORRECTED
from calculon.documents.batch_page import CUTS
from calculon.documents.serving_page import CAUSES, deployment_words, requests_words
from calculon.render.bars import COLORS
from calculon.render.canvas import BLACK, GREY, LIGHT, count_axis, drawing, figure, note_edition
from calculon.render.chart_axes import time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

WORDS = "Time per token, throughput and time to the first token of a deployment over its batch, with its bounds"
"""The picture for those who do not see it."""

_LOOKS = {
    "weights": (COLORS["blue"], ""),
    "cache": (COLORS["sky"], "////"),
    "activations": ("#c3ddee", ""),
    "arithmetic": (COLORS["green"], "...."),
    "network": (COLORS["vermilion"], "\\\\\\\\"),
    "floors": (COLORS["orange"], "xxxx"),
    "host": (LIGHT, ""),
}
"""Colours and hatches of what a decode pass takes: memory blue, communicating vermilion."""

_PROMPTS = ("#f3e4ec", "")
_SHADE = "#ededed"
_FEW = 4

_ROUNDING = 1e-9
_NEAR = 0.3
"""Share of the width within which labels of bounds do not stand in one line."""

_LINE = 9
"""Points of a line of these labels."""

_LIMIT = "limit of the workload"
_BEYOND = 1.2
"""Batches that are drawn, over the most."""


def draw(document: Document) -> "Figure":
    """Draw three panels over the batch, its axis by powers of two.

    Parameters
    ----------
    document : mapping
        :meth:`calculon.serving.by_batch.ByBatch.to_dict`.
    """
    columns = {name: np.array(one) for name, one in document["columns"].items()}
    with drawing():
        picture = figure(6.4, 7.6)
        panels = picture.subplots(3, 1, sharex=True, height_ratios=(5, 3, 2))
        upper, middle, lower = panels
        _times(upper, columns)
        middle.plot(columns["batch"], columns["output_rate_per_proc"], color=COLORS["blue"])
        middle.set_ylabel("Generated tokens/s\nof a processor")
        middle.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        middle.set_ylim(0, 1.08 * columns["output_rate_per_proc"].max())
        unit, factor = time_unit(float(columns["ttft"].max()))
        lower.plot(columns["batch"], columns["ttft"] * factor, color=COLORS["blue"])
        lower.set_ylabel(f"First token ({unit})")
        lower.set_ylim(0, 1.15 * factor * columns["ttft"].max())
        lower.set_xlabel("Batch: sequences of a replica")
        _batches(panels, columns["batch"])
        _limits(upper, lower, document, columns)
        rows = _cuts(panels, document)
        _point(panels, document, columns)
        d = document["deployment"]
        picture.suptitle(
            f"{document['model']} on {d['num_procs']:,} x {document['system']}",
            x=0.02,
            ha="left",
            fontsize=10,
        )
        told = requests_words(document["workload"])
        upper.set_title(
            f"{deployment_words(d)}\n{told}", fontsize=7, color=GREY, pad=6 + _LINE * rows
        )
        note_edition(lower, [CORRECTED])
        handles, labels = upper.get_legend_handles_labels()
        known = dict(zip(labels, handles, strict=True))
        picture.legend(known.values(), known.keys(), loc="outside lower center", ncols=2)
    return picture


def _times(axes: "Axes", columns: Mapping[str, Any]) -> None:
    """Stack what a decode pass takes, and on it what prompts of others add to the time of a token."""
    unit, factor = time_unit(float(columns["tpot"].max()))
    bottom = np.zeros_like(columns["batch"])
    bands = [(CAUSES[name], *look, columns[f"decoding_{name}"]) for name, look in _LOOKS.items()]
    added = columns["tpot"] - sum(columns[f"decoding_{name}"] for name in _LOOKS)
    for label, color, hatch, values in (*bands, ("prompts of other requests", *_PROMPTS, added)):
        if values.max() <= _ROUNDING * columns["tpot"].max():
            continue
        look: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white", "lw": 0.4}
        top = bottom + values * factor
        axes.fill_between(columns["batch"], bottom, top, label=label, **look)
        bottom = top
    axes.plot(columns["batch"], columns["tpot"] * factor, color=BLACK, lw=1.2)
    axes.set_ylabel(f"Time per token ({unit})")
    axes.set_ylim(0, 1.08 * factor * columns["tpot"].max())


def _batches(panels: Any, batch: Any) -> None:
    """Scale the axis of batches by powers of two, and shade those for which there is no room."""
    most = float(batch[-1])
    powers = [2.0**n for n in range(int(np.log2(most)) + 1)]
    count_axis(panels[0], powers if most >= _FEW else batch.tolist())
    for axes in panels:
        axes.set_xlim(1, _BEYOND * most)
        axes.axvspan(most, _BEYOND * most, color=_SHADE, lw=0, zorder=0)


def _limits(upper: "Axes", lower: "Axes", document: Document, columns: Mapping[str, Any]) -> None:
    """Draw the limits of times as lines across, where they are within the panel."""
    from matplotlib.patheffects import withStroke

    w = document["workload"]
    for axes, name, times in ((upper, "tpot", columns["tpot"]), (lower, "ttft", columns["ttft"])):
        limit = w.get(f"{name}_limit")
        factor = time_unit(float(times.max()))[1]
        if limit is None or limit * factor >= axes.get_ylim()[1]:
            continue
        axes.axhline(limit * factor, color=BLACK, lw=0.9, ls="--", label=_LIMIT)
        if limit < times.min():
            axes.text(
                0.015,
                0.93,
                f"{name.upper()} limit of {limit * 1e3:,g} ms: missed at every batch",
                transform=axes.transAxes,
                va="top",
                fontsize=7,
                path_effects=[withStroke(linewidth=2.0, foreground="white")],
            )


def _cuts(panels: Any, document: Document) -> int:
    """Draw the bounds as lines up through all panels, each with its name above; return the lines of names."""
    low, high = panels[0].get_xlim()
    labels: dict[int, list[str]] = {}
    for name, n in sorted(document["cuts"].items(), key=lambda one: one[1]):
        if low <= n <= high:
            labels.setdefault(n, []).append(CUTS[name])
    last, row, rows = -1.0, 0, 1
    for n, names in labels.items():
        for axes in panels:
            axes.axvline(n, color=BLACK, lw=0.9, ls=":")
        place = panels[0].transAxes.inverted().transform(panels[0].transData.transform((n, 0)))[0]
        row = row + 1 if place - last < _NEAR else 0
        last, rows = place, max(rows, row + 1)
        panels[0].annotate(
            f"{', '.join(names)}: {n:,}",
            (n, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + _LINE * row),
            textcoords="offset points",
            ha="right" if place > 1 - _NEAR else "left" if place < _NEAR else "center",
            fontsize=7,
        )
    return rows


def _point(panels: Any, document: Document, columns: Mapping[str, Any]) -> None:
    """Mark the batch that the workload leads to."""
    point = document["point"]
    factors = (
        time_unit(float(columns["tpot"].max()))[1],
        1.0,
        time_unit(float(columns["ttft"].max()))[1],
    )
    names = ("tpot", "output_rate_per_proc", "ttft")
    for axes, name, factor in zip(panels, names, factors, strict=True):
        label = "under the workload" if axes is panels[0] else None
        value = point[name] * factor
        if np.isfinite(value) and value <= axes.get_ylim()[1]:
            look: dict[str, Any] = {"color": BLACK, "marker": "o", "ls": "none", "zorder": 5}
            axes.plot([point["batch"]], [value], label=label, clip_on=False, **look)
