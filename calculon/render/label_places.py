"""Placement of text labels at the points of a panel without overlaps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from calculon.render.chart import Axis, Line, Mark, Notes, Rule

_AROUND = (0.8, 0.7)
"""Approximate inches of a panel's width and height taken by the texts of its axes."""

_POINT = 1 / 72
"""Inches per point."""

_LETTER, _NARROW, _LINE = 0.64, 0.33, 1.2
"""Approximate widths of letters and of narrow characters, and the line height, relative to the font size."""

_OFFSET, _MARK = 5.0, 3.0
"""Distance from a point to its text, and half the size of a marker, in points."""

_SIDES = ("upper right", "right", "above", "upper left", "left", "below")

_Box = tuple[float, float, float, float]
"""Left, lower, right and upper end in inches."""


def place_labels(
    notes: Notes, x: Axis, y: Axis, size: tuple[float, float], others: Sequence[Mark]
) -> Notes:
    """Return the texts that fit into a panel without overlaps, each with its side; earlier texts have priority.

    Args:
        notes: Texts at points, most important first.
        x, y: Axes of the panel, with limits.
        size: Width and height of the panel, in inches.
        others: Marks of the panel; texts avoid the points of its lines, and its rules.
    """
    width, height = (length - taken for length, taken in zip(size, _AROUND, strict=True))
    taken = [box for mark in others for box in _taken(mark, x, y, width, height)]
    kept: list[tuple[int, str]] = []
    for number, (text, *point) in enumerate(zip(notes.texts, notes.x, notes.y, strict=True)):
        at = x.share(point[0]) * width, y.share(point[1]) * height
        # Greedy: the first free side in order of preference. Text widths are estimates, as no
        # renderer exists yet.
        for side in _SIDES:
            box = _box(at, text, side, notes.size * _POINT)
            inside = box[0] >= 0 <= box[1] and box[2] <= width and box[3] <= height
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                kept.append((number, side))
                break
    numbers = [number for number, _ in kept]
    color = notes.color
    return replace(
        notes,
        x=[notes.x[number] for number in numbers],
        y=[notes.y[number] for number in numbers],
        texts=[notes.texts[number] for number in numbers],
        side=[side for _, side in kept],
        color=color if isinstance(color, str) else [color[number] for number in numbers],
    )


def _taken(mark: Mark, x: Axis, y: Axis, width: float, height: float) -> Iterator[_Box]:
    """Yield the boxes that the points of a line, or a rule, occupy."""
    if isinstance(mark, Line):
        half = _POINT * (_MARK if mark.marker else 1.0)
        for across, up in zip(mark.x, mark.y, strict=True):
            a, b = x.share(across) * width, y.share(up) * height
            yield a - half, b - half, a + half, b + half
    elif isinstance(mark, Rule) and mark.level:
        place = y.share(mark.at) * height
        yield 0.0, place - _POINT, width, place + _POINT
    elif isinstance(mark, Rule):
        place = x.share(mark.at) * width
        yield place - _POINT, 0.0, place + _POINT, height


def _box(at: tuple[float, float], text: str, side: str, size: float) -> _Box:
    """Return the box of a text on a side of a point, as the backends draw it."""
    width = size * sum(_NARROW if letter in " ,.:" else _LETTER for letter in text)
    height, offset = _LINE * size, _OFFSET * _POINT
    left, low = {
        "upper right": (offset, offset),
        "right": (offset, -height / 2),
        "above": (-width / 2, offset),
        "upper left": (-offset - width, offset),
        "left": (-offset - width, -height / 2),
        "below": (offset, -offset - height),
    }[side]
    return at[0] + left, at[1] + low, at[0] + left + width, at[1] + low + height


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
