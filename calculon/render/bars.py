"""Bars, as wide as there is room: block characters in a terminal, ASCII elsewhere."""

from calculon.base.frozen import dataclass

COLORS = {
    "blue": "#0072b2",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
    "green": "#009e73",
    "grey": "#888888",
}
"""The palette of Okabe and Ito: readers with any kind of colour vision can tell these apart."""

DRAWN, ASCII = ("█", "░"), ("#", ".")
"""Characters of solid and of light pieces of bars: block characters, and where there are none."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


Pieces = tuple[tuple[str, str], ...]
"""Characters, and the colour of each piece of a bar."""


@dataclass(frozen=True, slots=True)
class Share:
    """One piece of a bar: its share of the whole width, its colour, and whether it is drawn solid."""

    fraction: float
    color: str
    solid: bool = True


@dataclass(frozen=True, slots=True)
class Bar:
    """A horizontal bar; its pieces start at the left."""

    shares: tuple[Share, ...]
    widest: int = 44

    narrowest = 4
    """Characters that it takes at least."""

    def pieces(self, width: int, *, blocks: bool) -> Pieces:
        """Return the characters of a bar of some width, without block characters in ASCII."""
        solid, light = DRAWN if blocks else ASCII
        if len(self.shares) == 1 and blocks:
            (share,) = self.shares
            return ((_fine(share.fraction * width), share.color),)
        found = []
        end, drawn = 0.0, 0
        for share in self.shares:
            end += share.fraction  # where this piece ends
            least = int(share.fraction > 0 and blocks)
            count = max(least, round(min(1.0, end) * width) - drawn)
            found.append(((solid if share.solid else light) * count, share.color))
            drawn += count
        return tuple(found)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """Two bars from a middle: decreases to the left, increases to the right.

    Attributes:
        low, high: Changes at the low end (light) and at the high end (solid) of a range; 1 and -1 fill a half.
    """

    low: float
    high: float

    narrowest, widest = 10, 40
    """Characters that it takes at least and at most."""

    def pieces(self, width: int, *, blocks: bool) -> Pieces:
        """Return the blanks to the left of the bars, and the characters of both."""
        half = width // 2
        solid, light = DRAWN if blocks else ASCII
        left = right = ""
        for value, mark in ((self.low, light), (self.high, solid)):
            bar = mark * round(abs(value) * half)
            if value < 0 and len(bar) > len(left):
                left = bar
            elif value > 0 and len(bar) > len(right):
                right = bar
        return (" " * (half - len(left)), "blue"), (left, "blue"), (right, "vermilion")


def _fine(length: float) -> str:
    """Draw a bar to an eighth of a character; one above 0 can be seen.

    >>> _fine(2.5), _fine(0.01), _fine(0)
    ('██▌', '▏', '')
    """
    whole, eighths = divmod(round(length * 8), 8)
    if length > 0 and whole == eighths == 0:
        eighths = 1
    return "█" * whole + _EIGHTHS[eighths].strip()
