"""A tornado: how far a statistic goes with each figure of a machine lower and higher, the longest bar first."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any

from calculon.documents.pictures.tornado import Panel, panels
from calculon.documents.sensitivity_page import change, stated
from calculon.render.bars import COLORS
from calculon.render.fitted_grid import folded

Document = Mapping[str, Any]
Link = Callable[[str, float], str]
"""The address of a page on which a figure has another value, by its path."""

_ENDS = {"low": ("lower", "orange"), "high": ("higher", "blue")}
_LONGEST = 26  # letters of a line of a label
_ROW, _TITLE, _LEGEND, _UNDER = 44, 30, 48, 48
"""Pixels: of a row, of the title of a panel, of the legend, and of what stands below the axis."""

_BESIDE = 36
"""Pixels to the right of the axis: on a phone a text beside the longest bar ends there."""

_ROOM = 1.8
"""How much wider the axis is than the longest bar: texts stand beside the ends."""


def effect_bars(document: Document, link: Link, names: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the tornado of a sensitivity as plain data; None where no figure has an effect.

    Bars are changes of the statistic in percent; where the plan was searched again, diamonds are the best plans.
    Figures and the statistic are called as `names` says, by path and by name; else these stand there.
    """
    shown = panels(document) if document["value"] else []
    if not shown:
        return None
    count = sum(len(panel.rows) for panel in shown)
    height = _ROW * count + _TITLE * len(shown)
    data: list[dict[str, Any]] = []
    axes: dict[str, Any] = {}
    titles = []
    top = 1.0
    for number, panel in enumerate(shown):
        name = f"yaxis{number + 1}" if number else "yaxis"
        under = top - _TITLE / height
        bottom = max(0.0, under - _ROW * len(panel.rows) / height)
        axes[name] = {
            "domain": [bottom, under],
            "autorange": "reversed",
            "automargin": True,
            "anchor": "x",
            "showgrid": False,
            "tickfont": {"size": 11},
        }
        titles.append(_title(panel.title, under))
        labels = [_label(row["path"], names) for row in panel.rows]
        data += _bars(document, panel, link, name.replace("axis", ""), labels, legend=number == 0)
        top = bottom
    largest = max(abs(x) for trace in data for x in trace["x"] if x is not None)
    axis = {
        "title": {
            "text": f"change of {names.get(document['statistic'], document['statistic'])}, %"
        },
        "range": [-_ROOM * largest, _ROOM * largest],
        "anchor": "free",
        "position": 0,
        "zeroline": True,
    }
    layout = {
        "height": height + _LEGEND + _UNDER,
        "barmode": "overlay",
        "xaxis": axis,
        **axes,
        "annotations": titles,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "xanchor": "left", "x": 0},
        "margin": {"t": _LEGEND, "r": _BESIDE},
    }
    return {"data": data, "layout": layout}


def _title(text: str, place: float) -> dict[str, Any]:
    return {
        "text": f"<b>{text}</b>",
        "x": 0,
        "xref": "paper",
        "xanchor": "left",
        "y": place,
        "yref": "paper",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _label(path: str, names: Mapping[str, str]) -> str:
    """Return the name of a figure in lines; its path where it has none."""
    lines = wrap(names[path], _LONGEST) if path in names else folded(path, _LONGEST)
    return "<br>".join(lines)


def _bars(
    document: Document, panel: Panel, link: Link, axis: str, labels: list[str], *, legend: bool
) -> list[dict[str, Any]]:
    """Return the bars of a panel: one trace for lower values, one for higher ones, one for best plans."""
    found = [
        {
            "type": "bar",
            "orientation": "h",
            "name": words,
            "legendgroup": end,
            "showlegend": legend,
            "yaxis": axis,
            "y": labels,
            "x": [_percent(row[f"at_{end}"], document) for row in panel.rows],
            "text": [_text(row, end, document) for row in panel.rows],
            "textposition": "outside",
            "cliponaxis": False,
            "customdata": [_point(row, end, document, link) for row in panel.rows],
            "hovertemplate": "%{customdata[1]}<extra></extra>",
            "marker": {"color": COLORS[color]},
        }
        for end, (words, color) in _ENDS.items()
    ]
    if "replanned" in document:
        found.append(_best(document, panel.rows, labels, axis, legend=legend))
    return found


def _best(
    document: Document, rows: Sequence[Document], labels: list[str], axis: str, *, legend: bool
) -> dict[str, Any]:
    """Return the best plans at the ends of the ranges."""
    points = [
        (label, _percent(row[f"replanned_at_{end}"], document), stated(row[end], row["unit"]))
        for row, label in zip(rows, labels, strict=True)
        for end in _ENDS
        if row.get(f"replanned_at_{end}") is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "planned again",
        "legendgroup": "again",
        "showlegend": legend,
        "yaxis": axis,
        "y": [label for label, _, _ in points],
        "x": [value for _, value, _ in points],
        "text": [text for _, _, text in points],
        "hovertemplate": "%{y} %{text}: best plan %{x:+.1f} %<extra></extra>",
        "marker": {"symbol": "diamond", "size": 8, "color": COLORS["purple"]},
    }


def _percent(value: float | None, document: Document) -> float | None:
    return None if value is None else 100 * (value / document["value"] - 1)


def _text(row: Document, end: str, document: Document) -> str:
    """Write a change; of two on one side the shorter bar has none, where it would lie over the other."""
    if row[end] is None:
        return ""
    both = [_percent(row[f"at_{one}"], document) or 0.0 for one in (end, *({*_ENDS} - {end}))]
    if both[0] * both[1] > 0 and abs(both[0]) <= abs(both[1]):
        return ""
    said = change(row[f"at_{end}"], document["value"])
    return "" if said == "0" else said


def _point(row: Document, end: str, document: Document, link: Link) -> list[str]:
    """Return the address of a page with the figure at an end of its range, and what is said of it."""
    if row[end] is None:
        return ["", ""]
    said = change(row[f"at_{end}"], document["value"])
    return [link(row["path"], row[end]), f"{row['path']} {stated(row[end], row['unit'])}: {said}"]
