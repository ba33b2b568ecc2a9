"""The door to the charts of results: figures of plotly, which notebooks show."""

from typing import TYPE_CHECKING, Any

from calculon.explore.packages import CHARTS, require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_TEMPLATE = "plotly_white"


def picture(result: Any, kind: str, **options: Any) -> "Figure":
    """Return a chart of a result to look at and to zoom: see :func:`calculon.base.display.draw_result`."""
    require("plot", CHARTS)
    from plotly.graph_objects import Figure

    from calculon.explore.result_charts import chart
    from calculon.render.plotly_charts import figure

    return Figure(figure(chart(result, kind, **options))).update_layout(template=_TEMPLATE)
