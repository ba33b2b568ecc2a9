"""Notebook display of results: HTML and pictures.

Both are made by presentation packages, which know the model. The model calls them only through this module: by name,
and only on display, so that an estimate imports neither tables nor pictures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PAGES = "calculon.documents.result_pages"
"""Module that shows results as pages."""

PICTURES = "calculon.documents.result_pictures"
"""Module that draws results with matplotlib."""

INTERACTIVE = "calculon.explore.interactive"
"""Module that draws results like the web page."""


class Displayed:
    """Result that a notebook shows as HTML: its terminal page, with the first rows of long tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text: str = import_module(PAGES).page_of(self)
        return text


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
