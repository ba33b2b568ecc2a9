"""Charts by name: ``module:function`` of the specification."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calculon.render.chart import Chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def specified(name: str, *content: Any) -> Chart:
    """Return the specification of a chart of some content."""
    module, _, function = name.partition(":")
    made: Chart = getattr(import_module(f"calculon.documents.charts.{module}"), function)(*content)
    return made


def drawn(name: str, *content: Any) -> "Figure":
    """Return the picture of a chart of some content."""
    from calculon.render.matplotlib_charts import draw

    return draw(specified(name, *content))
