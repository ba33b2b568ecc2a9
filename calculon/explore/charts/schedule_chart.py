"""The passes of every stage over time: one shape for all pieces of a colour, so that thousands are drawn at once."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass
from calculon.documents.pictures.gantt import LOOKS, Gantt, Piece, shade
from calculon.render.bars import COLORS
from calculon.render.chart_axes import time_unit
from calculon.render.digits import Digits

AGAIN = "recomputation"

_TALLEST, _ROW = 560.0, 30.0  # pixels of all rows, and of one where there are few
_SHADES = 4  # colours of the chunks of a kind of pass
_WIDE = 900.0  # pixels: about as wide is the chart
_LETTER = 6.5  # pixels of a digit
_EDGED = 5.0  # pixels from which pieces have an edge
_POINTS = 3000  # that wide pieces have for the pointer, beside one each
_IDLE = "#9aa3ad"
_BACKWARD = ("backward", "inputs")  # kinds of passes that compute again what was not kept

Outline = tuple[float, float, float, float]
"""Start and end of a rectangle in seconds, its upper and lower edge in rows."""


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
    scale = _Scale(gantt)
    end, stages = gantt.end, gantt.stages
    last = end * scale.factor
    idle = {
        **scale.shape([(0.0, end, *_edges(stage, 0.43)) for stage in range(stages)]),
        "name": gantt.idle_words,
        "fillcolor": "rgba(0,0,0,0)",
        "fillpattern": {"shape": "/", "fgcolor": _IDLE, "size": 6, "solidity": 0.12},
    }
    data = [idle, *_shapes(gantt, scale), *_again(gantt, scale), *_numbers(gantt, scale)]
    data += [_pointed(gantt, kind, scale, digits, links) for kind in gantt.kinds]
    plain = {"showgrid": False, "zeroline": False}
    layout = {
        "height": round(120 + scale.row * stages),
        "hovermode": "closest",
        "hoverdistance": round(max(scale.row, 8)),
        "xaxis": {**plain, "title": {"text": f"time in {scale.unit}"}, "range": [0, last]},
        "yaxis": {
            **plain,
            "title": {"text": gantt.row.lower()},
            "range": [stages - 0.5, -0.5],
            "dtick": max(1, -(-stages // 16)),
            "tick0": 0,
            "automargin": True,
        },
        "legend": {"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
        "shapes": [_frame(selected, last)] if stages > 1 else [],
    }
    return {"data": data, "layout": layout}


def _edges(middle: float, half: float) -> tuple[float, float]:
    return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class _Scale:
    """Units and pixels of a chart."""

    gantt: Gantt
    unit: str = field(init=False)
    factor: float = field(init=False)
    row: float = field(init=False)
    pixels: float = field(init=False)
    decimals: int = field(init=False)

    def __post_init__(self) -> None:
        """Take them from the end and the number of rows: pixels are those of a second."""
        end, stages = self.gantt.end, self.gantt.stages
        unit, factor = time_unit(end)
        digits = max(0, 5 - math.ceil(math.log10(end * factor)))
        values = (unit, factor, min(_ROW, _TALLEST / stages), _WIDE / end, digits)
        names = ("unit", "factor", "row", "pixels", "decimals")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    def shape(self, outlines: Sequence[Outline], *, edged: bool = False) -> dict[str, Any]:
        """Return rectangles as one shape, with edges if asked for; they are apart by points that are none."""
        x: list[float | None] = []
        y: list[float | None] = []
        for start, end, top, bottom in outlines:
            first, last = (round(one * self.factor, self.decimals) for one in (start, end))
            high, low = round(top, 3), round(bottom, 3)
            x += (first, last, last, first, first, None)
            y += (high, high, low, low, high, None)
        edge = {"width": 0.5, "color": "white", "simplify": False}
        return {
            "type": "scatter",
            **({"mode": "lines", "line": edge} if edged else {"mode": "none"}),
            "x": x,
            "y": y,
            "fill": "toself",
            "hoverinfo": "skip",
        }


def _outline(piece: Piece) -> Outline:
    top, height = piece.place
    return piece.start, piece.end, top, top + height


def _shapes(gantt: Gantt, scale: _Scale) -> Iterator[dict[str, Any]]:
    """Yield the shapes of each kind of pass, from the first chunk to the last."""
    chunks = gantt.chunks
    shades = min(chunks, _SHADES)
    found: dict[tuple[str, int], list[Piece]] = defaultdict(list)
    for piece in gantt.pieces:
        found[piece.kind, piece.chunk * shades // chunks].append(piece)
    thin = min(piece.end - piece.start for piece in gantt.pieces) * scale.pixels < _EDGED
    for kind in gantt.kinds:
        for number in range(shades):
            red, green, blue = (round(255 * one) for one in shade(kind, number, shades))
            name = LOOKS[kind][0]
            last = shades > 1 and number == shades - 1
            yield {
                **scale.shape([_outline(piece) for piece in found[kind, number]], edged=not thin),
                "name": f"{name}, {gantt.last_words}" if last else name,
                "showlegend": number == 0 or last,
                "legendgroup": f"{kind}{number if last else ''}",
                "fillcolor": f"rgb({red},{green},{blue})",
            }


def _again(gantt: Gantt, scale: _Scale) -> Iterator[dict[str, Any]]:
    """Yield the recomputation in backward passes: as high a part of a piece as it is of the time."""
    outlines = []
    for piece in gantt.pieces:
        again = gantt.again[piece.stage][piece.chunk] if piece.kind in _BACKWARD else 0.0
        if again:
            start, end, top, bottom = _outline(piece)
            outlines.append((start, end, bottom - (bottom - top) * again / (end - start), bottom))
    if outlines:
        yield {**scale.shape(outlines), "name": AGAIN, "fillcolor": COLORS["sky"]}


def _numbers(gantt: Gantt, scale: _Scale) -> Iterator[dict[str, Any]]:
    """Yield the microbatches, counted from 1, as texts in pieces that are wide enough."""
    shown = [
        piece
        for piece in gantt.pieces
        if (piece.end - piece.start) * scale.pixels > 3 + _LETTER * len(str(piece.microbatch + 1))
    ]
    if not shown or scale.row < 2 * _LETTER:
        return
    chunks = gantt.chunks
    dark = [piece.chunk < chunks / 2 and piece.kind != "weight" for piece in shown]
    yield {
        "type": "scatter",
        "mode": "text",
        "x": [(piece.start + piece.end) / 2 * scale.factor for piece in shown],
        "y": [sum(piece.place) - piece.place[1] / 2 for piece in shown],
        "text": [str(piece.microbatch + 1) for piece in shown],
        "textfont": {"size": 10, "color": ["white" if one else "black" for one in dark]},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _pointed(
    gantt: Gantt, kind: str, scale: _Scale, digits: Digits, links: Sequence[str]
) -> dict[str, Any]:
    """Return what a pointer meets: a point in each pass of a kind, and several in wide ones."""
    apart = max(scale.row / 3, _WIDE * gantt.stages / _POINTS) / scale.pixels
    pieces = [piece for piece in gantt.pieces if piece.kind == kind]
    longs, starts = [piece.end - piece.start for piece in pieces], [piece.start for piece in pieces]
    last = gantt.end
    texts = zip(digits.seconds(longs, max(longs)), digits.seconds(starts, last), strict=True)
    x, y, told = [], [], []
    for piece, long, of_piece in zip(pieces, longs, texts, strict=True):
        count = max(1, round(long / apart))
        top, height = piece.place
        first = piece.start * scale.factor
        step = long * scale.factor / count
        x += [round(first + (i + 0.5) * step, scale.decimals) for i in range(count)]
        y += [round(top + height / 2, 3)] * count
        told += [[piece.stage, piece.microbatch + 1, piece.chunk + 1, *of_piece]] * count
    chunk = ", chunk %{customdata[2]}" if gantt.chunks > 1 else ""
    return {
        "type": "scatter",
        "mode": "none",
        "x": x,
        "y": y,
        "customdata": told,
        "meta": list(links),
        "line": {"color": LOOKS[kind][1]},
        "showlegend": False,
        "hovertemplate": f"{gantt.row} %{{customdata[0]}}: {LOOKS[kind][0]}, microbatch %{{customdata[1]}}{chunk}"
        "<br>%{customdata[3]}, from %{customdata[4]}<extra></extra>",
    }


def _frame(stage: int, end: float) -> dict[str, Any]:
    """Return the frame of the row that is marked."""
    top, bottom = _edges(stage, 0.5)
    line = {"color": COLORS["vermilion"], "width": 2}
    return {"type": "rect", "x0": 0, "x1": end, "y0": top, "y1": bottom, "line": line}
