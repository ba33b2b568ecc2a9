"""Figures that a notebook shows, whether or not it has imported ``matplotlib.pyplot``."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from matplotlib.figure import Figure

_SHOWN = 90
"""Dots of a screen that an inch of a picture takes; it has more of its own, for sharp screens."""


class ShownFigure(Figure):
    """A figure that a notebook shows where it is the last value of a cell.

    Args:
        settings: Returns a context with the settings of all pictures.
        options: As of :class:`matplotlib.figure.Figure`.
    """

    def __init__(self, settings: Callable[[], AbstractContextManager[None]], **options: Any):
        super().__init__(**options)
        self._settings = settings

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        drawn = io.BytesIO()
        with self._settings():
            self.savefig(drawn, format="png")
        width, height = self.get_size_inches()
        return drawn.getvalue(), {"width": round(width * _SHOWN), "height": round(height * _SHOWN)}
