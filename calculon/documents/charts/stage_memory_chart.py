"""The memory of every pipeline stage by kind, against the usable capacity."""

from collections.abc import Mapping, Sequence

from calculon.base.units import GIB
from calculon.declarations.statistics import KINDS_OF_MEMORY
from calculon.documents.charts.breakdown import pieces
from calculon.render.chart import Axis, Chart, Panel, Rule

_ROW, _TALLEST = 0.28, 5.0  # inches of a row, and of all rows
_TICKS = 16


def stage_memory(
    title: str, terms: str, stages: Sequence[Mapping[str, float]], usable: float
) -> Chart:
    """Return the tier-1 memory of stages as stacked bars.

    Parameters
    ----------
    title, terms : str
        Model, machine and plan, and the edition with its preset.
    stages : sequence of mapping
        Bytes by kind of each stage.
    usable : float
        Bytes of the capacity that a plan may use.
    """
    stacks = [{kind: size / GIB for kind, size in stage.items()} for stage in stages]
    labels = [f"stage {number}" for number in range(len(stages))]
    longest = max(usable / GIB, *(sum(stack.values()) for stack in stacks))
    several = len(stages) > 1
    step = max(1, len(stages) // _TICKS)
    rule = Rule(name="usable", at=usable / GIB, color="vermilion", dash="dash", width=2.0)
    panel = Panel(
        x=Axis(label="Memory of a processor, tier 1", unit="GiB", limits=(0.0, 1.05 * longest)),
        y=Axis(
            label="Stage" if several else "",
            limits=(len(stages) - 0.4, -0.6),
            ticks=[(i, str(i)) for i in range(0, len(stages), step)] if several else (),
            grid=False,
        ),
        marks=[*pieces(labels, stacks, 0.0, "GiB"), rule],
        height=0.7 + min(_TALLEST, _ROW * len(stages)),
    )
    return Chart(title=title, terms=[terms], rows=((panel,),))


def kinds_in(stages: Sequence[Mapping[str, float]]) -> list[str]:
    """Return the kinds of memory that some stage has, always in the same order."""
    return [kind for kind in KINDS_OF_MEMORY if any(stage.get(kind) for stage in stages)]
