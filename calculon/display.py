"""What notebooks show of results: HTML, and pictures.

Both are made by an application, which knows the model. This is the one door through which the model calls one: by name,
and only when somebody looks, so that an estimate loads neither tables nor pictures.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

APPLICATION = "calculon.apps.notebook"
"""The room that shows results."""


class Displayed:
    """A result that a notebook shows as HTML: what its page in a terminal says, with the first rows of long tables."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        text: str = import_module(f"{APPLICATION}.pages").page_of(self)
        return text


def drawn(result: object, kind: str, **options: Any) -> "Figure":
    """Return a picture of a result.

    Parameters
    ----------
    result : object
        What to draw.
    kind : str
        Kind of picture; those of each result are told by its ``plot``.
    options : object
        Arguments of this kind.

    Raises
    ------
    SpecError
        For a kind or an argument that there is not, and where matplotlib is missing, with the command that installs it.
    """
    picture: Figure = import_module(f"{APPLICATION}.drawings").picture(result, kind, **options)
    return picture
