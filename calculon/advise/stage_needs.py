"""The memory that every stage of an execution needs, whether it is there or not, and what fills it."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import only_values
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
    """The memory of a processor of one pipeline stage.

    Attributes:
        stage: The stage, from 0.
        blocks: Its blocks.
        needed, available: Bytes of both tiers that it needs, and that there are.
        parts: For both tiers bytes by kind, the largest first; those that are 0 are left out.
    """

    stage: int
    blocks: int
    needed: tuple[float, float]
    available: tuple[float, float]
    parts: tuple[Mapping[str, float], Mapping[str, float]]

    def over(self, tier: int) -> float:
        """Return the bytes of tier 1 or 2 that it needs beyond what there is; below 0 where some are left."""
        return self.needed[tier - 1] - self.available[tier - 1]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
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
    """Return the memory of stages by their rows, or of the only one."""
    whole = {"stage": 0, "blocks": model.num_blocks}
    found = []
    for row in rows or [whole]:
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
    """Return sizes by kind, the largest first, without those that are 0."""
    return dict(sorted(((k, size) for k, size in sizes.items() if size > 0), key=lambda x: -x[1]))
