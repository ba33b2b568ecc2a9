"""Bars, as wide as there is room: block characters in a terminal, ASCII elsewhere."""

from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.measure import Measurement

COLORS = {
    "blue": "#0072b2",
    "sky": "#56b4e9",
    "orange": "#e69f00",
    "vermilion": "#d55e00",
    "purple": "#cc79a7",
    "green": "#009e73",
    "grey": "bright_black",
}
"""The palette of Okabe and Ito: readers with any kind of colour vision can tell these apart."""

DRAWN, ASCII = ("█", "░"), ("#", ".")
"""Characters of solid and of light pieces of bars: block characters, and where there are none."""

NARROW_BAR, _WIDEST_BAR = 10, 40
"""Characters of two-sided bars, at least and at most."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


def has_blocks(console: "Console", options: "ConsoleOptions") -> bool:
    """Tell whether bars are drawn with block characters."""
    return console.is_terminal and not options.ascii_only


def marks(console: "Console", options: "ConsoleOptions") -> tuple[str, str]:
    """Return the characters of solid and of light pieces of bars, for legends."""
    return DRAWN if has_blocks(console, options) else ASCII


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

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        from rich.measure import Measurement

        return Measurement(min(4, options.max_width), min(self.widest, options.max_width))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment
        from rich.style import Style

        width = min(options.max_width, self.widest)
        solid, light = marks(console, options)
        end, drawn = 0.0, 0
        for share in self.shares:
            end += share.fraction  # where this piece ends
            least = int(share.fraction > 0 and has_blocks(console, options))
            count = max(least, round(min(1.0, end) * width) - drawn)
            text = (solid if share.solid else light) * count
            if len(self.shares) == 1 and has_blocks(console, options):
                text = _fine(share.fraction * width)
            yield Segment(text, Style.parse(COLORS[share.color]))
            drawn += len(text)


@dataclass(frozen=True, slots=True)
class TwoSided:
    """Two bars from a middle: decreases to the left, increases to the right.

    Attributes
    ----------
    low, high : float
        Changes at the low end (light) and at the high end (solid) of a range; 1 and -1 fill a half.
    """

    low: float
    high: float

    def pieces(self, half: int, marks: tuple[str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
        """Return texts of `half` characters at most and their colours, of the left bar and of the right one."""
        solid, light = marks
        left, right = ("", "blue"), ("", "vermilion")
        for value, mark in ((self.low, light), (self.high, solid)):
            bar = mark * round(abs(value) * half)
            if value < 0 and len(bar) > len(left[0]):
                left = bar, left[1]
            elif value > 0 and len(bar) > len(right[0]):
                right = bar, right[1]
        return left, right

    def __rich_measure__(self, console: "Console", options: "ConsoleOptions") -> "Measurement":
        from rich.measure import Measurement

        return Measurement(NARROW_BAR, min(_WIDEST_BAR, options.max_width))

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "RenderResult":
        from rich.segment import Segment
        from rich.style import Style

        half = min(options.max_width, _WIDEST_BAR) // 2
        left, right = self.pieces(half, marks(console, options))
        yield Segment(" " * (half - len(left[0])))
        for text, color in (left, right):
            yield Segment(text, Style.parse(COLORS[color]))


def _fine(length: float) -> str:
    """Draw a bar to an eighth of a character; one above 0 can be seen.

    >>> _fine(2.5), _fine(0.01), _fine(0)
    ('██▌', '▏', '')
    """
    whole, eighths = divmod(round(length * 8), 8)
    if length > 0 and whole == eighths == 0:
        eighths = 1
    return "█" * whole + _EIGHTHS[eighths].strip()
