"""Charts as tests read them: their marks by name, and whether the axes contain them."""

import math

from calculon.cli.commands.plot import configure
from calculon.cli.options import Parser
from calculon.render.chart import Bars, Boxes, Chart, Line, Notes, Panel, Rule, legend_entries


def plot_arguments(*texts: str):
    """Return the arguments of ``calculon plot``."""
    parser = Parser()
    configure(parser)
    return parser.parse_args([*texts, "-o", "x.png"])


def legend(chart: Chart) -> list[str]:
    """Return the entries of the legend."""
    return [mark.name for mark in legend_entries(chart.panels)]


def marks(panel: Panel, kind: type, name: str | None = None) -> list:
    """Return the marks of a kind, or those with a name."""
    found = [mark for mark in panel.marks if type(mark) is kind]
    return found if name is None else [mark for mark in found if mark.name == name]


def ends(bars: Bars) -> list[tuple[float, float]]:
    """Return start and end of each bar."""
    starts = bars.starts or [0.0] * len(bars.at)
    return [(a, a + b) for a, b in zip(starts, bars.lengths, strict=True)]


def tick_texts(axis) -> list[str]:
    """Return the texts of the ticks."""
    return [text for _, text in axis.ticks]


def notes(panel: Panel) -> list[str]:
    """Return the texts of a panel."""
    return [text for mark in marks(panel, Notes) for text in mark.texts]


def places(panel: Panel) -> tuple[list[float], list[float]]:
    """Return all positions of bars, lines, boxes and rules on both axes."""
    x, y = [], []
    for bars in marks(panel, Bars):
        along, across = (y, x) if bars.upright else (x, y)
        along += [end for pair in ends(bars) for end in pair]
        across += bars.at
    for line in marks(panel, Line):
        x += line.x
        y += line.y
    for one in marks(panel, Boxes):
        x += [end for box in one.boxes for end in box[:2]]
        y += [end for box in one.boxes for end in box[2:]]
    for rule in marks(panel, Rule):
        (y if rule.level else x).append(rule.at)
    return x, y


def assert_in_sight(chart: Chart) -> None:
    """Check that every panel has a title above it and that its axes have limits that contain its marks."""
    assert chart.title
    for panel in chart.panels:
        for axis, values in zip((panel.x, panel.y), places(panel), strict=True):
            if axis.limits is None:
                continue
            low, high = sorted(axis.limits)
            room = 1e-9 * (abs(low) + abs(high))
            inside = [value for value in values if not math.isnan(value)]
            assert low - room <= min(inside)
            assert max(inside) <= high + room
