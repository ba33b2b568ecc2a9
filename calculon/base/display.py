"""Displays of results: HTML in notebooks, pictures, and data frames.

Results are displayed by packages that import the model. The model calls them only here, by module name and only when a
result is displayed, so that an estimate imports neither pages nor plotting libraries.
"""

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PAGES = "calculon.documents.result_pages"
"""Module that shows results as pages."""

PICTURES = "calculon.documents.result_pictures"
"""Module that draws results with matplotlib."""

INTERACTIVE = "calculon.explore.interactive"
"""Module that draws results like the web page."""

FRAMES = "calculon.render.frames"
"""Module that converts results to data frames."""


class Displayed:
    """Result that a notebook shows as HTML: its terminal page, with the first rows of long tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text: str = import_module(PAGES).page_of(self)
        return text


class Tabular(Displayed):
    """A result that has a table."""

    __slots__ = ()

    def table(self) -> Mapping[str, Any]:
        """Return the columns of the table by name, each with an entry for every row."""
        raise NotImplementedError

    def to_frame(self) -> "pd.DataFrame":
        """Return the table as a DataFrame; :meth:`table` describes its rows.

        Columns have the names of fields and statistics (``calculon describe``) and the units given there: seconds,
        bytes, FLOP and shares of 1, for a whole run also days, hours and USD. ``attrs["units"]`` has the unit of each
        column that has one. Unknown numbers are not-a-number.
        """
        frame: pd.DataFrame = import_module(FRAMES).frame_of(self)
        return frame


def columns_of(
    rows: Iterable[Mapping[str, Any]], names: Iterable[str] = ()
) -> dict[str, list[Any]]:
    """Convert rows to columns: the given names first, then all other keys of any row.

    A number that is None, or that a row does not have, is not-a-number; any other value is then None.
    """
    listed = list(rows)
    every = dict.fromkeys((*names, *(name for row in listed for name in row)))
    return {name: _filled([row.get(name) for row in listed]) for name in every}


def _filled(values: list[Any]) -> list[Any]:
    numbers = all(value is None or type(value) in (int, float) for value in values)
    return [math.nan if value is None else value for value in values] if numbers else values


@overload
def draw_result(
    result: object, kind: str, *, interactive: Literal[False] = False, **options: Any
) -> "Figure": ...


@overload
def draw_result(
    result: object, kind: str, *, interactive: bool, **options: Any
) -> "Figure | InteractiveFigure": ...


def draw_result(
    result: object, kind: str, *, interactive: bool = False, **options: Any
) -> "Figure | InteractiveFigure":
    """Return a picture of a result: a matplotlib figure, or a plotly figure if interactive.

    Args:
        result: Result to draw.
        kind: Kind of picture; the ``plot`` method of each result lists its kinds.
        interactive: Return the zoomable chart of the web page.
        options: Arguments of this kind.

    Raises:
        SpecError: For an unknown kind or argument, and if the library is missing, with the installation command.
    """
    module = INTERACTIVE if interactive else PICTURES
    picture: Figure | InteractiveFigure = import_module(module).picture(result, kind, **options)
    return picture
