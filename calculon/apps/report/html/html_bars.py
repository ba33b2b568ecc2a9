"""Stacked bars as inline SVG that takes its colours from the style sheet: light, dark and printed."""

from collections.abc import Sequence
from dataclasses import dataclass

from calculon.apps.report.html.tags import Html, element
from calculon.apps.report.texts import percent

HEIGHT = 34
_LEAST = 0.0005  # share of the whole below which a piece is not drawn


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece: its words, size, text of the size, and the style class of its colour."""

    words: str
    size: float
    text: str
    look: str


def bar(name: str, pieces: Sequence[Piece], limit: float | None = None, end: str = "") -> Html:
    """Return a bar of pieces from left to right.

    Parameters
    ----------
    name : str
        What it shows, for those who cannot see it.
    pieces : sequence of Piece
        At least one with a size.
    limit : float, optional
        Where a line says how long the bar may be.
    end : str
        What stands at the line.
    """
    used = sum(piece.size for piece in pieces)
    whole = max(used, limit or 0.0)
    marks, left = [], 0.0
    if limit:
        room = f"{limit / whole * 100:.4f}%"
        marks.append(element("rect", x=0, y=0.5, width=room, height=HEIGHT - 1, class_="free"))
    for piece in pieces:
        width = piece.size / whole * 100
        if piece.size / whole >= _LEAST:
            text = element("title", f"{piece.words}: {piece.text}")
            size: dict[str, str | float] = {
                "x": f"{left:.4f}%",
                "y": 0,
                "width": f"{width:.4f}%",
                "height": HEIGHT,
            }
            marks.append(element("rect", text, **size, class_=f"piece {piece.look}"))
        left += width
    if limit:
        at = f"{limit / whole * 100:.4f}%"
        marks.append(element("line", x1=at, x2=at, y1=-4, y2=HEIGHT + 4, class_="limit"))
        label = element("text", end, x=at, y=HEIGHT + 18, class_="limit-text", text_anchor="end")
        marks.append(label)
    height = HEIGHT + (24 if limit else 2)
    return element(
        "svg",
        *marks,
        role="img",
        aria_label=name,
        width="100%",
        height=height,
        class_="bar",
    )


def legend(pieces: Sequence[Piece], whole: float, total: str) -> Html:
    """Return a table of pieces, largest first: swatch, words, size and share."""
    ranked = sorted((p for p in pieces if p.size > 0), key=lambda piece: -piece.size)
    rows = [
        element(
            "tr",
            element("td", swatch(piece.look)),
            element("td", piece.words),
            element("td", piece.text, class_="right"),
            element("td", percent(piece.size / whole), class_="right"),
        )
        for piece in ranked
    ]
    last = element(
        "tr",
        element("td"),
        element("td", "total"),
        element("td", total, class_="right"),
        element("td", "100.0 %", class_="right"),
    )
    body, foot = element("tbody", *rows), element("tfoot", last)
    return element("table", body, foot, class_="legend")


def swatch(look: str) -> Html:
    """Return a small square of a colour."""
    square = element("rect", width=12, height=12, class_=f"piece {look}")
    return element("svg", square, width=12, height=12, aria_hidden="true")
