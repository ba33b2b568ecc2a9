"""The parts of a page, and how their HTML is made."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from calculon.base.frozen import dataclass
from calculon.explore.plain_words import in_labels, labelled_html
from calculon.render.chart import Chart
from calculon.render.document import Block
from calculon.render.html import EXPLORE, fragment
from calculon.render.plotly_charts import figure

if TYPE_CHECKING:
    from jinja2 import Environment

    from calculon.explore.answers import Answers
    from calculon.explore.page_state import State

Figure = Mapping[str, Any]
"""A chart as Plotly takes it: ``data`` and ``layout``."""

ASSETS = "calculon.explore.assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a view.

    Attributes:
        title: Its heading; empty if it needs none.
        blocks: Its text and tables, with all that its chart shows; forms are HTML of a template.
        chart: Its chart.
        key: The HTML has the legend of the chart.
        summary: The chart in a sentence, read aloud in its place.
        below: Blocks below the chart, such as the same as a table.
        spoken: The answer in a sentence, read aloud after a change.
        names: Labels of further names in its texts, such as paths of figures.
    """

    title: str
    blocks: tuple[Block, ...] = ()
    chart: Chart | None = None
    key: bool = False
    summary: str = ""
    below: tuple[Block, ...] = ()
    spoken: str = ""
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def html(self) -> Markup:
        """The blocks above the chart in HTML."""
        return self._written(self.blocks)

    @property
    def more(self) -> Markup:
        """The blocks below the chart in HTML."""
        return self._written(self.below)

    def _written(self, blocks: tuple[Block, ...]) -> Markup:
        look = replace(EXPLORE, write=partial(labelled_html, names=self.names))
        return Markup(fragment(blocks, look, self.title))

    @property
    def figure(self) -> Figure | None:
        """Its chart as Plotly takes it, without a title: that of the page says the same."""
        if self.chart is None:
            return None
        return figure(self.chart, titled=False, legend=not self.key)

    @property
    def leads(self) -> bool:
        """Whether points of its chart lead to addresses."""
        panels = () if self.chart is None else self.chart.panels
        return any(any(mark.links) for panel in panels for mark in panel.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartKind:
    """A part that a view has, and how it is made.

    Attributes:
        name: Its name, which no other part of any view has.
        title: What stands above it while it is computed.
        make: Makes it for a state; None where it has nothing to say there.
        later: It takes longer than an estimate: the page shows the others first.
    """

    name: str
    title: str
    make: "Callable[[State, Answers], Part | None]"
    later: bool = False


@cache
def environment() -> "Environment":
    """Return the templates of the page; what they are given is escaped."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files(ASSETS)
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["labels"] = in_labels
    return made


def html(template: str, **values: Any) -> Markup:
    """Return a template of the folder ``assets``, filled in."""
    return Markup(environment().get_template(template).render(**values))
