"""Parts of a page, and their conversion to HTML."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from calculon.base.frozen import dataclass
from calculon.explore.plain_words import in_labels, labeled_html
from calculon.render.chart import Chart
from calculon.render.document import Block
from calculon.render.html import EXPLORE, fragment
from calculon.render.plotly_charts import figure

if TYPE_CHECKING:
    from jinja2 import Environment

    from calculon.explore.answers import Answers
    from calculon.explore.page_state import State

Figure = Mapping[str, Any]
"""A Plotly chart: ``data`` and ``layout``."""

ASSETS = "calculon.explore.assets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPart:
    """Part of a view.

    Attributes:
        title: Heading; may be empty.
        blocks: Texts and tables, including all data of the chart; forms are HTML from templates.
        chart: Chart of the part.
        key: True if the HTML contains the legend of the chart.
        summary: Description of the chart in one sentence for screen readers.
        below: Blocks below the chart, such as its data as a table.
        spoken: Result in one sentence, which screen readers announce after a change.
        names: Additional labels for names in the texts, such as paths of figures.
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
        """Blocks above the chart as HTML."""
        return self._written(self.blocks)

    @property
    def more(self) -> Markup:
        """Blocks below the chart as HTML."""
        return self._written(self.below)

    def _written(self, blocks: tuple[Block, ...]) -> Markup:
        look = replace(EXPLORE, write=partial(labeled_html, names=self.names))
        return Markup(fragment(blocks, look, self.title))

    @property
    def figure(self) -> Figure | None:
        """Chart for Plotly, without a title since the page has one."""
        if self.chart is None:
            return None
        return figure(self.chart, titled=False, legend=not self.key)

    @property
    def leads(self) -> bool:
        """True if points of the chart link to addresses."""
        panels = () if self.chart is None else self.chart.panels
        return any(any(mark.links) for panel in panels for mark in panel.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPartKind:
    """Kind of part in a view, with its constructor.

    Attributes:
        name: Unique name among the parts of all views.
        title: Heading while the part is computed.
        make: Function that makes the part for a state; None if it does not apply.
        later: True if it is slower than an estimate, so that the page shows other parts first.
    """

    name: str
    title: str
    make: "Callable[[State, Answers], ViewPart | None]"
    later: bool = False


@cache
def environment() -> "Environment":
    """Return the template environment of the page, with automatic escaping."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files(ASSETS)
    # StrictUndefined turns a misspelled template variable into an error instead of an empty text.
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
    """Render a template of the ``assets`` folder."""
    return Markup(environment().get_template(template).render(**values))
