"""Plotly backend of charts: plain data for web pages and notebooks.

The ``customdata`` of a point are its link, key and hover text. Boxes of one row share a link: the ``meta`` of their
trace lists the links of all rows, and the ``customdata`` of their points start with the row number.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calculon.base.frozen import dataclass
from calculon.render.chart import (
    Area,
    Axis,
    Bars,
    Boxes,
    Cells,
    Chart,
    Floats,
    Line,
    Mark,
    Notes,
    Panel,
    Rule,
    Span,
    color_code,
    legend_entries,
)

Json = dict[str, Any]

_INCH = 92.0
"""Pixels per inch."""
_TITLE, _BELOW, _LEGEND, _HEADING = 26.0, 50.0, 24.0, 44.0
"""Heights in pixels: title of a panel, space below its axis, line of the legend, and title of the chart."""

_LINE = 18.0
"""Height in pixels of each further line of a panel title."""

_LETTERS = 70.0
"""Characters per line of the legend."""

_WIDE, _POINTS = 900.0, 1500
"""Approximate width of a panel in pixels; maximum number of hover points of a mark."""

_GAP, _APART = 0.12, 0.03
"""Gaps between panels as a share of the width: with axis labels between them, and without."""

_SYMBOLS = {
    "circle": "circle",
    "square": "square",
    "triangle": "triangle-up",
    "diamond": "diamond",
    "down": "triangle-down",
    "plus": "cross",
    "cross": "x",
    "thin cross": "x-thin",
    "star": "star",
}
_SIDES = {
    "right": "middle right",
    "left": "middle left",
    "center": "middle center",
    "above": "top center",
    "upper right": "top right",
    "upper left": "top left",
    "below": "bottom right",
}
_PADS = {
    "right": "\N{NO-BREAK SPACE}{}",
    "upper right": "\N{NO-BREAK SPACE}{}",
    "left": "{}\N{NO-BREAK SPACE}",
    "upper left": "{}\N{NO-BREAK SPACE}",
}
_SHAPES = {"": "linear", "before": "vh", "after": "hv"}
_ON_BOTH = "#8a929c"
"""Grey that is legible on light and dark backgrounds; it replaces black."""


def figure(chart: Chart, *, titled: bool = True, legend: bool = True) -> Json:
    """Return a chart as plain data: ``data`` and ``layout``.

    Args:
        chart: The chart.
        titled, legend: Whether to include the title and the legend; a page may have them in its text.
    """
    entries = legend_entries(chart.panels) if legend and chart.legends != "none" else []
    widest = max((len(mark.name) + 6 for mark in entries), default=1)  # 6: symbol and gap
    lines = math.ceil(len(entries) / max(1, int(_LETTERS // widest)))
    above = _LEGEND * lines + (_HEADING if titled else 0) + 8
    places = list(_places(chart))
    inside = sum(place.pixels for place in places if place.first) or 1.0
    data: list[Json] = []
    layout: Json = {
        "height": round(inside + above + _BELOW),
        "hovermode": "closest",
        "barmode": "overlay",
        "showlegend": bool(entries),
        "shapes": [],
        "annotations": [],
        "margin": {"t": round(above), "b": round(_BELOW), "l": 8, "r": 56},
    }
    if titled:
        text = "<br>".join(chart.heading)
        spot = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "top", "yref": "container"}
        layout["title"] = {"text": text, "font": {"size": 13}, "pad": {"t": 20, "l": 8}, **spot}
    if entries:
        spot = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
        layout["legend"] = spot
    listed: set[str] = set()
    for place in places:
        _panel(place, chart, inside, data, layout, listed)
    return {"data": data, "layout": layout}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Panel with its number, its vertical position in pixels, and its horizontal domain."""

    panel: Panel
    number: int
    top: float
    pixels: float
    left: float
    right: float
    first: bool
    last: bool

    @property
    def suffix(self) -> str:
        """Suffix of the axis names in the layout: empty for the first panel."""
        return str(self.number) if self.number > 1 else ""


def _places(chart: Chart) -> Iterator[_Place]:
    """Yield the panels with their positions; the bottom margin contains the tick labels of the last row."""
    top, number = 0.0, 0
    widest = max(chart.rows, key=len)  # all rows use the same columns
    spaces = [_GAP if panel.y.shown else _APART for panel in widest[1:]]
    width = (1 - sum(spaces)) / sum(panel.share for panel in widest)
    for row in chart.rows:
        last = row is chart.rows[-1]
        pixels = _INCH * max(panel.height for panel in row) - (_BELOW if last else 0)
        left = 0.0
        for panel, gap in zip(row, (*spaces, 0.0), strict=False):
            number += 1
            right = left + width * panel.share
            yield _Place(
                panel=panel,
                number=number,
                top=top,
                pixels=pixels,
                left=left,
                right=min(right, 1.0),
                first=panel is row[0],
                last=last,
            )
            left = right + gap
        top += pixels


def _panel(
    place: _Place, chart: Chart, inside: float, data: list[Json], layout: Json, listed: set[str]
) -> None:
    """Add the traces and axes of a panel."""
    panel, end = place.panel, place.suffix
    lines = panel.title.count("\n")
    title = _TITLE + _LINE * lines if panel.title else 0.0
    labels = 0.0 if place.last else 12.0 if chart.shared else _BELOW
    top, bottom = 1 - (place.top + title) / inside, 1 - (place.top + place.pixels - labels) / inside
    quiet = chart.shared and not place.last
    layout[f"xaxis{end}"] = {
        **_axis(panel.x, labeled=not quiet),
        "domain": [place.left, place.right],
        "anchor": f"y{end}",
        **({"matches": "x"} if chart.shared and end else {}),
    }
    layout[f"yaxis{end}"] = {
        **_axis(panel.y),
        "domain": [max(0.0, bottom), min(1.0, top)],
        "anchor": f"x{end}",
        "automargin": True,
        **({"scaleanchor": f"x{end}", "constrain": "domain"} if panel.square else {}),
    }
    if panel.title:
        heading = {"text": f"<b>{_lines(panel.title)}</b>", "showarrow": False, "xref": "paper"}
        spot = {"x": place.left, "xanchor": "left", "y": top, "yanchor": "bottom", "yref": "paper"}
        layout["annotations"].append({**heading, **spot})
    for mark in panel.marks:
        if isinstance(mark, (Rule, Span)):
            _across(mark, panel, end, layout)
            traces = [_entry(mark)] if mark.name else []
        else:
            traces = _TRACES[type(mark)](mark)
            if isinstance(mark, Boxes) and mark.words:
                traces.append(_pointers(mark, place))
        for trace in traces:
            trace |= {"xaxis": f"x{end}", "yaxis": f"y{end}"}
            # Marks of several panels with the same name share one legend entry.
            known = not mark.name or mark.name in listed
            data.append(
                {**trace, "name": mark.name, "legendgroup": mark.name, "showlegend": not known}
            )
            listed.add(mark.name)


def _axis(axis: Axis, *, labeled: bool = True) -> Json:
    """Return the layout of an axis."""
    title = {"text": axis.text.replace("\n", "<br>")}
    result: Json = {"zeroline": False, "showgrid": axis.grid, "title": title}
    if axis.scale == "log":
        result["type"] = "log"
    if axis.limits is not None:
        ends = axis.limits
        result["range"] = [math.log10(end) for end in ends] if axis.scale == "log" else [*ends]
    if axis.ticks is not None:
        result["tickvals"] = [place for place, _ in axis.ticks]
        result["ticktext"] = [_lines(text) for _, text in axis.ticks]
    else:
        result |= {"separatethousands": True, "exponentformat": "none", "nticks": 7}
    if not (labeled and axis.shown):
        result |= {"showticklabels": False, "title": {"text": ""}}
    return result


def _lines(text: str) -> str:
    return text.replace("\n", "<br>")


def _code(name: str) -> str:
    return _ON_BOTH if name.startswith("black") else color_code(name)


def _codes(mark: Mark) -> str | list[str]:
    """Return the color of a mark, or the colors of its points."""
    return _code(mark.color) if isinstance(mark.color, str) else [_code(one) for one in mark.color]


def _pointed(mark: Mark) -> Json:
    """Return the hover texts, links and keys of the points of a mark."""
    if not mark.words:
        return {"hoverinfo": "skip"}
    empty = [""] * len(mark.words)
    several = (mark.links or empty, mark.keys or empty, mark.words)
    hovers = [[link, key, _lines(words)] for link, key, words in zip(*several, strict=True)]
    return {"customdata": hovers, "hovertemplate": "%{customdata[2]}<extra></extra>"}


def _plain(values: Floats) -> list[float | None]:
    """Return numbers for JSON, which has no NaN."""
    return [None if math.isnan(value) else float(value) for value in values]


def _bars(mark: Bars) -> list[Json]:
    along, across = ("y", "x") if mark.upright else ("x", "y")
    look: Json = {"color": _codes(mark)}
    if mark.hatch:
        hatched = mark.hatched or [True] * len(mark.at)
        shapes = [mark.hatch if one else "" for one in hatched]
        look["pattern"] = {"shape": shapes, "fillmode": "overlay", "size": 6, "solidity": 0.15}
        look["pattern"]["fgcolor"] = "white"
    return [
        {
            "type": "bar",
            "orientation": "v" if mark.upright else "h",
            along: list(mark.lengths),
            across: list(mark.at),
            "base": list(mark.starts) or [0.0] * len(mark.at),
            "width": mark.thick,
            "marker": look,
            **_pointed(mark),
        }
    ]


def _line(mark: Line) -> list[Json]:
    modes = [*(["lines"] if mark.dash != "none" else []), *(["markers"] if mark.marker else [])]
    symbol = _SYMBOLS.get(mark.marker, "circle")
    sizes = [1.5 * size for size in mark.sizes]
    marker: Json = {
        "color": _codes(mark),
        "size": sizes[0] if len(sizes) == 1 else sizes,
        "symbol": f"{symbol}-open" if mark.hollow or symbol.endswith("thin") else symbol,
        "line": {"width": 2 if mark.hollow else 0 if len(sizes) == 1 else 0.5, "color": "white"},
    }
    if mark.most:
        marker["maxdisplayed"] = mark.most
    if mark.hollow or symbol.endswith("thin"):
        marker["line"] = {"width": 2, "color": _codes(mark)}
    line = {
        "shape": _SHAPES[mark.steps],
        "width": mark.width,
        "dash": mark.dash if mark.dash != "none" else "solid",
        "color": _code(mark.main_color),
    }
    return [
        {
            "type": "scatter",
            "mode": "+".join(modes) or "none",
            "x": _plain(mark.x) or [None],  # a trace without points has no legend entry
            "y": _plain(mark.y) or [None],
            "line": line,
            "marker": marker,
            "cliponaxis": mark.clip,
            **_pointed(mark),
        }
    ]


def _entry(mark: Mark) -> Json:
    """Return a trace without points, which adds a legend entry."""
    dash = mark.dash if isinstance(mark, Rule) else "solid"
    width = mark.width if isinstance(mark, Rule) else 8
    look = {"color": _codes(mark), "dash": dash, "width": width}
    return {"type": "scatter", "mode": "lines", "x": [None], "y": [None], "line": look}


def _clear(code: str, opacity: float) -> str:
    """Return a color with an opacity."""
    red, green, blue = (int(code[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def _area(mark: Area) -> list[Json]:
    look: Json = {"shape": mark.hatch, "fillmode": "overlay", "size": 6, "solidity": 0.15}
    return [
        {
            "type": "scatter",
            "mode": "none",
            "x": [*mark.x, *reversed(mark.x)],
            "y": [*mark.high, *reversed(mark.low)],
            "fill": "toself",
            "fillcolor": _clear(_code(mark.main_color), mark.opacity),
            **({"fillpattern": {**look, "fgcolor": "white"}} if mark.hatch else {}),
            "hoverinfo": "skip",
        }
    ]


def _boxes(mark: Boxes) -> list[Json]:
    """Return all boxes as one trace, separated by empty points: a trace per box is too slow."""
    x: list[float | None] = []
    y: list[float | None] = []
    for left, right, low, high in mark.boxes:
        x += (left, right, right, left, left, None)
        y += (low, low, high, high, low, None)
    code = _code(mark.main_color)
    edge = {"width": mark.edge, "color": "white" if mark.filled else code}
    look: Json = {"mode": "lines", "line": edge} if mark.edge else {"mode": "none"}
    look["fillcolor"] = code if mark.filled else "rgba(0,0,0,0)"
    if mark.hatch:
        pattern = {"shape": mark.hatch, "fgcolor": code, "size": 6, "solidity": 0.12}
        look |= {"fillcolor": "rgba(0,0,0,0)", "fillpattern": pattern}
    shape = {"type": "scatter", "x": x, "y": y, "fill": "toself", "hoverinfo": "skip", **look}
    return [shape]


def _range(axis: Axis) -> float:
    low, high = axis.limits or (0.0, 1.0)
    return abs(high - low)


def _pointers(mark: Boxes, place: _Place) -> Json:
    """Return invisible hover points inside boxes: one in each, and several in wide ones."""
    # Plotly shows hover texts at points only, not inside filled shapes. Points are about as far
    # apart as a box is high; `least` keeps their total number near _POINTS.
    # Pixels per unit of each axis.
    wide, high = (
        _WIDE / _range(place.panel.x),
        place.pixels / _range(place.panel.y),
    )
    boxes = mark.boxes
    least = wide * sum(right - left for left, right, *_ in boxes) / _POINTS
    x, y, hovers = [], [], []
    for (left, right, low, top), group, words in zip(boxes, mark.groups, mark.words, strict=True):
        apart = max(high * abs(top - low) / 2.6, least)
        count = max(1, round(wide * (right - left) / apart))
        x += [left + (i + 0.5) * (right - left) / count for i in range(count)]
        y += [(low + top) / 2] * count
        hovers += [[group, "", _lines(words)]] * count
    return {
        "type": "scatter",
        "mode": "none",
        "x": x,
        "y": y,
        "customdata": hovers,
        "meta": list(mark.links),
        "line": {"color": _code(mark.main_color)},
        "hovertemplate": "%{customdata[2]}<extra></extra>",
    }


def _cells(mark: Cells) -> list[Json]:
    low, high = mark.limits or (None, None)
    steps = max(1, len(mark.scale) - 1)
    width = len(mark.values[0])
    several = (mark.links, mark.keys, mark.words)
    every = zip(*several, strict=True) if mark.words else ()
    hovers = [[link, key, _lines(words)] for link, key, words in every]
    rows = [hovers[at : at + width] for at in range(0, len(hovers), width)]
    return [
        {
            "type": "heatmap",
            "x": list(range(width)),
            "y": list(range(len(mark.values))),
            "z": [list(row) for row in mark.values],
            "text": [list(row) for row in mark.texts],
            "texttemplate": "%{text}",
            "customdata": rows,
            "hovertemplate": "%{customdata[2]}<br>%{text}<extra></extra>",
            "hoverongaps": False,
            "colorscale": [[i / steps, _code(one)] for i, one in enumerate(mark.scale)],
            "zmin": low,
            "zmax": high,
            "showscale": bool(mark.label),
            "colorbar": {"title": {"text": mark.label, "side": "right"}},
            "xgap": 2,
            "ygap": 2,
        }
    ]


def _notes(mark: Notes) -> list[Json]:
    sides = [mark.side] * len(mark.texts) if isinstance(mark.side, str) else mark.side
    lines = [_lines(text) for text in mark.texts]
    texts = zip(sides, lines, strict=True)
    font: Json = {"size": round(1.4 * mark.size)}
    if mark.color != "black":
        several = not isinstance(mark.color, str)
        font["color"] = [*map(color_code, mark.color)] if several else _codes(mark)
    return [
        {
            "type": "scatter",
            "mode": "text",
            "x": list(mark.x),
            "y": list(mark.y),
            "text": [_PADS.get(side, "{}").format(text) for side, text in texts],
            "textposition": [_SIDES[side] for side in sides],
            "textfont": font,
            "cliponaxis": False,
            "hoverinfo": "skip",
        }
    ]


def _across(mark: Rule | Span, panel: Panel, end: str, layout: Json) -> None:
    """Add a line or a range across a panel."""
    which, other = ("y", "x") if mark.level else ("x", "y")
    code = _code(mark.main_color)
    refs = {f"{which}ref": f"{which}{end}", f"{other}ref": f"{other}{end} domain"}
    ends: Json = {f"{other}0": 0, f"{other}1": 1}
    if isinstance(mark, Span):
        ends |= {f"{which}0": mark.low, f"{which}1": mark.high}
        fill = {"fillcolor": code, "opacity": mark.opacity, "line": {"width": 0}}
        layout["shapes"].append({"type": "rect", "layer": "below", **refs, **ends, **fill})
        return
    ends |= {f"{which}0": mark.at, f"{which}1": mark.at}
    line = {"color": code, "width": mark.width, "dash": mark.dash}
    layout["shapes"].append({"type": "line", **refs, **ends, "line": line})
    if mark.text:
        place = math.log10(mark.at) if panel.x.scale == "log" else mark.at
        spot = {"x": place, "y": 1, "xanchor": mark.side, "yanchor": "bottom"}
        shift = {"yshift": 14 * mark.row}
        layout["annotations"].append(
            {"text": mark.text, "showarrow": False, **refs, **spot, **shift}
        )


_TRACES: Mapping[type, Callable[[Any], list[Json]]] = {
    Bars: _bars,
    Line: _line,
    Area: _area,
    Boxes: _boxes,
    Cells: _cells,
    Notes: _notes,
}
