"""The door to the charts of results: figures of plotly, which notebooks show."""

from typing import TYPE_CHECKING, Any

from calculon.explore.packages import CHARTS, require

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MARGIN = {"l": 8, "r": 16, "t": 24, "b": 40}
_TEMPLATE = "plotly_white"
_LEGEND = {"orientation": "h", "y": 1.1, "yanchor": "bottom", "x": 0, "traceorder": "normal"}
_KEY = 90
"""Pixels of a legend that the page has outside of the chart."""


def picture(result: Any, kind: str, **options: Any) -> "Figure":
    """Return a chart of a result to look at and to zoom: see :func:`calculon.base.display.drawn`."""
    require("plot", CHARTS)
    from plotly.graph_objects import Figure

    from calculon.explore.result_charts import chart

    drawn = Figure(chart(result, kind, **options))
    margin = {**_MARGIN, **(drawn.layout.margin.to_plotly_json())}
    if drawn.layout.showlegend is False and sum(bool(trace.name) for trace in drawn.data) > 1:
        height = drawn.layout.height + _KEY
        drawn.update_layout(showlegend=True, legend=_LEGEND, height=height)  # beside it on the page
    return drawn.update_layout(template=_TEMPLATE, margin=margin)
