"""Chart of the memory of every pipeline stage by kind, with the usable memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.breakdown import LOOKS, result_chart
from calculon.documents.result import Result
from calculon.render.chart import Axis, Bars, Chart, Notes, Panel, Rule, categories, stacked

_LABELS, _TEXTS = 16, 12
"""Maximum number of stages with a number on the axis, and of bars with a text at their end."""

_AROUND, _ROW, _HIGHEST = 0.9, 0.28, 5.6
"""Inches: title and axis; a bar; maximum for the whole chart."""


def kinds_of(stages: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the kinds of memory that any stage has, in a fixed order."""
    return [kind for kind in KINDS_OF_MEMORY if any(stage.get(kind) for stage in stages)]


def stage_memory(
    stages: Sequence[Mapping[str, float]],
    usable: float,
    result: Result | None = None,
    title: str = "Memory of a plan",
) -> Chart:
    """Return the tier-1 memory of stages as stacked bars.

    Args:
        stages: Bytes of each stage by kind.
        usable: Usable bytes.
        result: The plan.
        title: Title without a result: for a plan that does not fit.
    """
    places = range(len(stages))
    sums, limit = [sum(stage.values()) / GIB for stage in stages], usable / GIB
    longest = max(*sums, limit)
    texted = len(stages) <= _TEXTS
    beyond = [limit if 0 <= limit - size < 0.12 * longest else size for size in sums]
    axis = categories([str(number) for number in places], label="Stage")
    ticks = (axis.ticks or ())[:: -(-len(stages) // _LABELS)]
    panel = Panel(
        x=Axis(
            label="Memory per processor",
            unit="GiB",
            limits=(0.0, longest * (1.12 if texted else 1.02)),
        ),
        y=replace(axis, ticks=ticks, shown=len(stages) > 1),
        marks=[
            *stacked([_bars(kind, stages) for kind in kinds_of(stages)]),
            Rule(name=f"usable: {limit:,.1f} GiB", at=limit, dash="dash", color="vermilion"),
            *([Notes(x=beyond, y=places, texts=[f"{size:,.1f}" for size in sums])] * texted),
        ],
        height=min(_HIGHEST, _AROUND + _ROW * len(stages)),
    )
    if result is None:
        return Chart(title=title, rows=((panel,),))
    return result_chart(result, panel)


def _bars(kind: str, stages: Sequence[Mapping[str, float]]) -> Bars:
    """Return the memory of one kind on all stages."""
    sizes = [stage.get(kind, 0.0) / GIB for stage in stages]
    return Bars(
        name=kind,
        at=range(len(stages)),
        lengths=sizes,
        color=LOOKS[kind].color,
        hatch=LOOKS[kind].hatch,
        thick=0.62 if len(stages) <= _TEXTS else 0.9,
        words=[f"stage {n}: {kind} {size:.1f} GiB" for n, size in enumerate(sizes)],
    )
