"""Charts by kind: the specification of each, and its picture."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from calculon.render.chart import Chart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHARTS = {
    "batch": "batch_chart:batch_curves",
    "breakdown": "breakdown:breakdown",
    "budget": "budget_chart:budget",
    "campaign": "run_days_chart:run_days",
    "collective": "collective_chart:collective",
    "curves": "sweep_chart:curves",
    "frontier": "serving_frontier_chart:serving_frontier",
    "goodput": "goodput_chart:goodput_curves",
    "heatmap": "heatmap_chart:heatmap",
    "pareto": "pareto_chart:pareto",
    "scaling": "scaling_chart:scaling",
    "scatter": "pareto_chart:pareto",
    "schedule": "schedule_chart:schedule",
    "surface": "heatmap_chart:surface",
    "tornado": "tornado_chart:tornado",
    "validation": "validation_chart:validation_chart",
    "waterfall": "waterfall_chart:waterfall",
}
"""Module and function of the specification of each kind of chart."""


def specified(kind: str, content: Any) -> Chart:
    """Return the specification of a chart of some content."""
    module, _, function = CHARTS[kind].partition(":")
    made: Chart = getattr(import_module(f"calculon.documents.charts.{module}"), function)(content)
    return made


def drawn(kind: str, content: Any) -> "Figure":
    """Return the picture of a chart of some content."""
    from calculon.render.matplotlib_charts import draw

    return draw(specified(kind, content))
