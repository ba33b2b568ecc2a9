"""Horizontal bars that scale with the available width: block characters in a terminal, ASCII elsewhere."""

from calculon.base.frozen import dataclass

COLORS = {
    "blue": "#0072b2",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
    "green": "#009e73",
    "gray": "#888888",
}
"""Color palette of Okabe and Ito, which remains distinguishable for readers with any kind of color vision."""

BLOCKS, ASCII = ("█", "░"), ("#", ".")
"""Characters of solid and light pieces of bars: block characters, and their ASCII replacements."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


Pieces = tuple[tuple[str, str], ...]
"""Pieces of a bar, each with its characters and its color."""


@dataclass(frozen=True, slots=True)
class Share:
    """Piece of a bar: its fraction of the full width, its color, and whether it is drawn solid."""

    fraction: float
    color: str
    solid: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """Horizontal bar whose pieces are stacked from the left."""

    shares: tuple[Share, ...]
    widest: int = 44

    narrowest = 4
    """Minimum width in characters."""

    def pieces(self, width: int, *, blocks: bool) -> Pieces:
        """Return the pieces of the bar at a given width; without `blocks` in ASCII."""
        solid, light = BLOCKS if blocks else ASCII
        if len(self.shares) == 1 and blocks:
            (share,) = self.shares
            return ((_fine(share.fraction * width), share.color),)
        found = []
        end, drawn = 0.0, 0
        for share in self.shares:
            end += share.fraction
            # A piece above 0 keeps at least one character: a small share must not look like none.
            # Counts are differences of rounded ends, so that rounding errors do not add up over the
            # pieces.
            least = int(share.fraction > 0 and blocks)
            count = max(least, round(min(1.0, end) * width) - drawn)
            found.append(((solid if share.solid else light) * count, share.color))
            drawn += count
        return tuple(found)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """Two bars that start in the middle: decreases extend to the left, increases to the right.

    Attributes:
        low, high: Changes at the low end (light) and the high end (solid) of a range; 1 and -1 fill one half.
    """

    low: float
    high: float

    narrowest, widest = 10, 40
    """Characters that it takes at least and at most."""

    def pieces(self, width: int, *, blocks: bool) -> Pieces:
        """Return the leading blanks and the characters of both bars."""
        half = width // 2
        solid, light = BLOCKS if blocks else ASCII
        left = right = ""
        for value, mark in ((self.low, light), (self.high, solid)):
            bar = mark * round(abs(value) * half)
            # If both ends of the range change the value in the same direction, the longer bar
            # covers the shorter one.
            if value < 0 and len(bar) > len(left):
                left = bar
            elif value > 0 and len(bar) > len(right):
                right = bar
        return (" " * (half - len(left)), "blue"), (left, "blue"), (right, "vermilion")


def _fine(length: float) -> str:
    """Draw a bar to an eighth of a character; any length above 0 is visible.

    >>> _fine(2.5), _fine(0.01), _fine(0)
    ('██▌', '▏', '')
    """
    whole, eighths = divmod(round(length * 8), 8)
    if length > 0 and whole == eighths == 0:
        eighths = 1
    return "█" * whole + _EIGHTHS[eighths].strip()
