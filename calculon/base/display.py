"""Displays of results: HTML in notebooks, pictures, and data frames.

Results are displayed by packages that import the model. The model calls them only here, by module name and only when a
result is displayed, so that an estimate imports neither pages nor plotting libraries.
"""

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

Shares = TypeVar("Shares")
"""Shares of 1: a number (None if unknown) for one plan, an array for several."""

PAGES = "calculon.documents.result_pages"
"""Module that shows results as pages."""

PICTURES = "calculon.documents.result_pictures"
"""Module that draws results with matplotlib."""

INTERACTIVE = "calculon.explore.interactive"
"""Module that draws results like the web page."""

HINTS = "calculon.declarations.missing_attributes"
"""Module that suggests attributes."""

FRAMES = "calculon.render.frames"
"""Module that converts results to data frames."""


class MissingAttribute(AttributeError):
    """Attribute that a result does not have. The hint is made when the message is read: ``hasattr`` stays fast."""

    def __init__(self, result: object, name: str):
        super().__init__(result, name)

    def __str__(self) -> str:
        result, name = self.args
        hint = import_module(HINTS).attribute_hint(result, name)
        text = f"{type(result).__name__!r} object has no attribute {name!r}"
        return f"{text}. Hint: {hint}" if hint else text


class Displayed:
    """Result that a notebook shows as HTML: its terminal page, with the first rows of long tables."""

    __slots__ = ()

    # Type checkers report unknown attributes only of classes without this method.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property raised AttributeError: let it do so again
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise MissingAttribute(self, name)

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
        column that has one. Unknown numbers are not-a-number. Time, MFU and memory come before fields of executions.
        """
        frame: pd.DataFrame = import_module(FRAMES).frame_of(self)
        return frame


class WithMfu(Tabular, Generic[Shares]):
    """Result with the model FLOP utilization of a plan, or of several."""

    __slots__ = ()

    @property
    def mfu(self) -> Shares:
        """Statistic ``mfu``: model FLOP utilization with full attention, a share of 1; unknown in edition ``sc23``."""
        return self._statistic("mfu")

    @property
    def mfu_causal(self) -> Shares:
        """Statistic ``mfu_causal``: model FLOP utilization without masked keys, a share of 1, as ``MFU, causal``."""
        return self._statistic("mfu_causal")

    def _statistic(self, name: str) -> Shares:
        """Return a statistic of the plan, or of each plan."""
        raise NotImplementedError


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
