"""The passes of every stage over time: one shape for all pieces of a colour, so that thousands are drawn at once."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from calculon.apps.report.bars import COLORS
from calculon.apps.report.digits import Digits
from calculon.apps.report.pictures.canvas import time_unit
from calculon.apps.report.pictures.gantt import LOOKS, Gantt, Piece, shade

TALLEST, ROW = 560, 30
"""Pixels of all rows, and of one where there are few."""

_SHADES = 4  # colours of the chunks of a kind of pass
_WIDE = 900  # pixels: about as wide is the chart
_LEAST = 9  # pixels of a piece that a digit fits into, and of a row that one fits into
_POINTS = 3000  # that wide pieces add to the ends of the pointer
_IDLE = "#9aa3ad"


def schedule_chart(
    gantt: Gantt, digits: Digits, links: Sequence[str], selected: int
) -> dict[str, Any]:
    """Return the chart.

    Parameters
    ----------
    gantt : Gantt
        The passes.
    digits : Digits
        How times are written.
    links : sequence of str
        The address to which a click on each row leads.
    selected : int
        The row that is marked.
    """
    unit, factor = time_unit(gantt.end)
    row = min(ROW, TALLEST / gantt.stages)
    outlines = _Outlines(factor, gantt.end)
    rows = [Piece(stage, "", 0, 0, 0.0, gantt.end) for stage in range(gantt.stages)]
    idle = {
        **outlines.of(rows),
        "name": gantt.idle_words,
        "fillcolor": "rgba(0,0,0,0)",
        "fillpattern": {"shape": "/", "fgcolor": _IDLE, "size": 6, "solidity": 0.12},
    }
    data = [idle, *_shapes(gantt, outlines), *_numbers(gantt, row, factor)]
    data += [_pointed(gantt, kind, row, factor, digits, links) for kind in gantt.kinds]
    layout = {
        "height": round(110 + row * gantt.stages),
        "hovermode": "closest",
        "hoverdistance": round(max(row, 8)),
        "xaxis": {
            "title": {"text": f"time in {unit}"},
            "range": [0, gantt.end * factor],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {
            "title": {"text": gantt.row.lower()},
            "range": [gantt.stages - 0.5, -0.5],
            "dtick": max(1, -(-gantt.stages // 16)),
            "tick0": 0,
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
        },
        "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
        "shapes": [_frame(selected, gantt.end * factor)] if gantt.stages > 1 else [],
    }
    return {"data": data, "layout": layout}


class _Outlines:
    """Pieces as the outlines of one shape."""

    def __init__(self, factor: float, end: float):
        self._factor = factor
        self._decimals = max(0, 5 - math.ceil(math.log10(end * factor)))

    def of(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return a shape of all of them; outlines are apart by points that are none."""
        x: list[float | None] = []
        y: list[float | None] = []
        for piece in pieces:
            top, height = piece.place
            start, end = (
                round(time * self._factor, self._decimals) for time in (piece.start, piece.end)
            )
            low, high = round(top, 3), round(top + height, 3)
            x += (start, end, end, start, start, None)
            y += (low, low, high, high, low, None)
        return {
            "type": "scatter",
            "mode": "lines",
            "x": x,
            "y": y,
            "fill": "toself",
            "line": {"width": 0},
            "hoverinfo": "skip",
        }


def _shapes(gantt: Gantt, outlines: _Outlines) -> Iterator[dict[str, Any]]:
    """Yield the shapes of each kind of pass, from the first chunk to the last."""
    chunks = gantt.chunks
    shades = min(chunks, _SHADES)
    found: dict[tuple[str, int], list[Piece]] = defaultdict(list)
    for piece in gantt.pieces:
        found[piece.kind, piece.chunk * shades // chunks].append(piece)
    for kind in gantt.kinds:
        for number in range(shades):
            red, green, blue = (round(255 * one) for one in shade(kind, number, shades))
            name = LOOKS[kind][0]
            last = shades > 1 and number == shades - 1
            yield {
                **outlines.of(found[kind, number]),
                "name": f"{name}, {gantt.last_words}" if last else name,
                "showlegend": number == 0 or last,
                "legendgroup": f"{kind}{number if last else ''}",
                "fillcolor": f"rgb({red},{green},{blue})",
                "line": {"width": 0.5, "color": "white"},
            }


def _numbers(gantt: Gantt, row: float, factor: float) -> Iterator[dict[str, Any]]:
    """Yield the microbatches, counted from 1, as texts in pieces that are wide enough."""
    if row < _LEAST + 2:
        return
    pixels = _WIDE / gantt.end
    shown = [
        piece
        for piece in gantt.pieces
        if (piece.end - piece.start) * pixels > _LEAST * len(str(piece.microbatch + 1))
    ]
    if not shown:
        return
    dark = [piece.chunk < gantt.chunks / 2 and piece.kind != "weight" for piece in shown]
    yield {
        "type": "scatter",
        "mode": "text",
        "x": [(piece.start + piece.end) / 2 * factor for piece in shown],
        "y": [piece.place[0] + piece.place[1] / 2 for piece in shown],
        "text": [str(piece.microbatch + 1) for piece in shown],
        "textfont": {"size": 10, "color": ["white" if one else "black" for one in dark]},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _pointed(
    gantt: Gantt, kind: str, row: float, factor: float, digits: Digits, links: Sequence[str]
) -> dict[str, Any]:
    """Return what a pointer meets: a point in each pass of a kind, and several in wide ones."""
    apart = max(row / 3, _WIDE * gantt.stages / _POINTS) / _WIDE * gantt.end
    x, y, told = [], [], []
    for piece in gantt.pieces:
        if piece.kind != kind:
            continue
        long = piece.end - piece.start
        count = max(1, round(long / apart))
        top, height = piece.place
        texts = digits.seconds([long, piece.start], gantt.end)
        about = [piece.stage, piece.microbatch + 1, piece.chunk + 1, *texts]
        x += [(piece.start + (i + 0.5) / count * long) * factor for i in range(count)]
        y += [top + height / 2] * count
        told += [about] * count
    chunk = ", chunk %{customdata[2]}" if gantt.chunks > 1 else ""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "customdata": told,
        "meta": list(links),
        "line": {"width": 0, "color": LOOKS[kind][1]},
        "opacity": 0,
        "showlegend": False,
        "hovertemplate": f"{gantt.row} %{{customdata[0]}}: {LOOKS[kind][0]}, microbatch %{{customdata[1]}}{chunk}"
        "<br>%{customdata[3]}, from %{customdata[4]}<extra></extra>",
    }


def _frame(stage: int, end: float) -> dict[str, Any]:
    """Return the frame of the row that is marked."""
    return {
        "type": "rect",
        "x0": 0,
        "x1": end,
        "y0": stage - 0.5,
        "y1": stage + 0.5,
        "line": {"color": COLORS["vermilion"], "width": 2},
    }
