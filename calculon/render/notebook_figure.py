"""Figures that notebooks display even if ``matplotlib.pyplot`` was never imported."""

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from matplotlib.figure import Figure

_SHOWN = 90
"""Screen pixels per inch of a displayed figure; the image has a higher resolution, for high-density screens."""


class NotebookFigure(Figure):
    """Figure that a notebook displays as the last value of a cell.

    Args:
        settings: Function that returns a context with the settings of all pictures.
        options: Arguments of :class:`matplotlib.figure.Figure`.
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
