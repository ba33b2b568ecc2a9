"""The interval of the iteration time in words."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calculon.units import duration


def ends(interval: Mapping[str, Any]) -> str:
    """Write level and ends; the level is rounded down.

    >>> ends({"level": 0.8571, "low": 121.04, "high": 143.2})
    '85 %: 121.0 s to 143.2 s'
    """
    level = math.floor(round(interval["level"] * 100, 6))
    return f"{level} %: {duration(interval['low'])} to {duration(interval['high'])}"


def interval_texts(interval: Mapping[str, Any]) -> dict[str, str]:
    """Say what the interval is, what it is from, and what it leaves out."""
    parts = ", ".join(dict.fromkeys(one["part"] for one in interval["parts"]))
    texts = {
        "interval": f"{ends(interval)}, from residuals of {parts}",
        "method": interval["method"],
    }
    if interval["unknown"]:
        texts["taken as exact"] = ", ".join(interval["unknown"]) + " (no residuals)"
    return texts


def interval_group(interval: Mapping[str, Any]) -> RenderableType:
    """Lay the interval out for the page."""
    grid = Table.grid(padding=(0, 2))
    for label, text in interval_texts(interval).items():
        grid.add_row(Text(label, "dim"), Text(text, "bold" if label == "interval" else "dim"))
    return Padding(grid, (0, 0, 0, 2))
