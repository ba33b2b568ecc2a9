"""Memory of every pipeline stage by kind, against the usable memory."""

from collections.abc import Sequence
from dataclasses import replace

from calculon.advise.stage_needs import StageNeed
from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.breakdown import LOOKS, result_chart
from calculon.documents.result import Result
from calculon.render.chart import Axis, Bars, Chart, Notes, Panel, Rule, categories, stacked

_LABELS, _TEXTS = 16, 12
"""Most stages with a number on the axis, and most bars with a text at their end."""

_AROUND, _ROW, _HIGHEST = 0.9, 0.28, 5.6
"""Inches: title and axis, a bar, and the whole chart at most."""


def kinds_of(stages: Sequence[StageNeed]) -> list[str]:
    """Return the kinds of tier-1 memory that any stage has, always in the same order."""
    return [kind for kind in KINDS_OF_MEMORY if any(one.parts[0].get(kind) for one in stages)]


def stage_memory(
    stages: Sequence[StageNeed], result: Result | None = None, title: str = "Memory of a plan"
) -> Chart:
    """Return the tier-1 memory of stages as stacked bars; a plan that does not fit has a title instead of a result."""
    places = range(len(stages))
    sums, usable = [one.needed[0] / GIB for one in stages], stages[0].available[0] / GIB
    longest = max(*sums, usable)
    texted = len(stages) <= _TEXTS
    beyond = [usable if 0 <= usable - size < 0.12 * longest else size for size in sums]
    axis = categories([str(one.stage) for one in stages], label="Stage")
    ticks = (axis.ticks or ())[:: -(-len(stages) // _LABELS)]
    panel = Panel(
        x=Axis(
            label="Tier-1 memory of a processor",
            unit="GiB",
            limits=(0.0, longest * (1.12 if texted else 1.02)),
        ),
        y=replace(axis, ticks=ticks, shown=len(stages) > 1),
        marks=[
            *stacked([_bars(kind, stages) for kind in kinds_of(stages)]),
            Rule(name=f"usable: {usable:,.1f} GiB", at=usable, dash="dash", color="vermilion"),
            *([Notes(x=beyond, y=places, texts=[f"{size:,.1f}" for size in sums])] * texted),
        ],
        height=min(_HIGHEST, _AROUND + _ROW * len(stages)),
    )
    if result is None:
        return Chart(title=title, rows=((panel,),))
    return result_chart(result, panel)


def _bars(kind: str, stages: Sequence[StageNeed]) -> Bars:
    """Return the memory of one kind on all stages."""
    sizes = [one.parts[0].get(kind, 0.0) / GIB for one in stages]
    return Bars(
        name=kind,
        at=range(len(stages)),
        lengths=sizes,
        color=LOOKS[kind].color,
        hatch=LOOKS[kind].hatch,
        thick=0.62 if len(stages) <= _TEXTS else 0.9,
        words=[
            f"stage {one.stage}: {kind} {size:.1f} GiB"
            for one, size in zip(stages, sizes, strict=True)
        ],
    )
