"""What notebooks show of results: HTML, and pictures.

Both are made by an application, which knows the model. This is the one door through which the model calls one: by name,
and only when somebody looks, so that an estimate loads neither tables nor pictures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PAGES = "calculon.documents.result_pages"
"""The module that shows results as pages."""

PICTURES = "calculon.documents.result_pictures"
"""The module that draws them."""

INTERACTIVE = "calculon.explore.interactive"
"""The module that draws them as the page in a browser does."""


class Displayed:
    """A result that a notebook shows as HTML: what its page in a terminal says, with the first rows of long tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text: str = import_module(PAGES).page_of(self)
        return text


@overload
def drawn(
    result: object, kind: str, *, interactive: Literal[False] = False, **options: Any
) -> "Figure": ...


@overload
def drawn(
    result: object, kind: str, *, interactive: bool, **options: Any
) -> "Figure | InteractiveFigure": ...


def drawn(
    result: object, kind: str, *, interactive: bool = False, **options: Any
) -> "Figure | InteractiveFigure":
    """Return a picture of a result, by matplotlib; an interactive one by plotly.

    Args:
        result: What to draw.
        kind: Kind of picture; those of each result are told by its ``plot``.
        interactive: The chart of the page in a browser, to zoom and to point at.
        options: Arguments of this kind.

    Raises:
        SpecError: For a kind or an argument that there is not, and where the library is missing, with what installs it.
    """
    module = INTERACTIVE if interactive else PICTURES
    picture: Figure | InteractiveFigure = import_module(module).picture(result, kind, **options)
    return picture
