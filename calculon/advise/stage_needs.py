"""Memory that every pipeline stage of an execution needs, regardless of capacity, and its contents."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.record_arrays import only_values
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.statistics import memory_by_kind
from calculon.editions import EDITIONS
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.stages import stage_rows
from calculon.hardware.system import System
from calculon.plan.plan import Plan

_NEEDED = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")


@dataclass(frozen=True, slots=True)
class StageNeed:
    """Memory per processor of one pipeline stage.

    Attributes:
        stage: Number of the stage, from 0.
        blocks: Number of blocks.
        needed, available: Needed and available bytes of both tiers.
        parts: Bytes by kind for both tiers, largest first, without zeros.
    """

    stage: int
    blocks: int
    needed: tuple[float, float]
    available: tuple[float, float]
    parts: tuple[Mapping[str, float], Mapping[str, float]]

    def over(self, tier: int) -> float:
        """Return the bytes of tier 1 or 2 over the limit; negative if memory is left."""
        return self.needed[tier - 1] - self.available[tier - 1]

    def to_dict(self) -> dict[str, Any]:
        """Return the need as plain data."""
        return {
            "stage": self.stage,
            "blocks": self.blocks,
            "needed": list(self.needed),
            "available": list(self.available),
            "over": [self.over(tier) for tier in (1, 2)],
            "parts": [dict(tier) for tier in self.parts],
        }


def stage_needs(model: Model, execution: Execution, system: System) -> tuple[StageNeed, ...]:
    """Return the memory of all stages of an execution that breaks no rule."""
    edition = EDITIONS[execution.edition]
    batch = evaluate_one(model, system, Plan.of(execution), edition)
    stats, fields = only_values(batch.stats), execution.to_dict()
    rows = stage_rows(batch) if execution.pipeline_par > 1 else []
    return _needs(model, stats, fields, rows, edition.machine(system).usable)


def needs_of(estimate: Estimate) -> tuple[StageNeed, ...]:
    """Return the memory of all stages of an estimate."""
    execution, edition = estimate.execution, EDITIONS[estimate.edition]
    rows = estimate.stages if execution.pipeline_par > 1 else []
    usable = edition.machine(estimate.system).usable
    return _needs(estimate.model, estimate.stats, execution.to_dict(), rows, usable)


def _needs(
    model: Model,
    stats: Mapping[str, float | None],
    fields: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    there: tuple[float, float],
) -> tuple[StageNeed, ...]:
    """Return the memory of stages by their rows, or of a single stage."""
    whole = {"stage": 0, "blocks": model.num_blocks}
    found = []
    for row in rows or [whole]:
        # Figures of the stage override figures of the whole execution.
        own = {**stats, **row}
        kinds = memory_by_kind(own, fields, int(row["blocks"]))
        needed = tuple(float(own[name] or 0.0) for name in _NEEDED)
        parts = tuple(map(largest_first, kinds))
        found.append(
            StageNeed(
                stage=int(row["stage"]),
                blocks=int(row["blocks"]),
                needed=(needed[0], needed[1]),
                available=there,
                parts=(parts[0], parts[1]),
            )
        )
    return tuple(found)


def largest_first(sizes: Mapping[str, float]) -> dict[str, float]:
    """Return sizes by kind, largest first, without zeros."""
    return dict(sorted(((k, size) for k, size in sizes.items() if size > 0), key=lambda x: -x[1]))
