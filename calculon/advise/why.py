"""Reasons why an execution cannot run, and fixes; for one that runs, better changes and ablations of its options."""

from collections.abc import Mapping
from dataclasses import field, replace
from math import isnan
from typing import Any

from calculon import inputs
from calculon.advise.ablations import Ablation, ablations
from calculon.advise.fixes import COLUMNS, Fix, FixSearch
from calculon.advise.neighborhood import Neighborhood
from calculon.advise.stage_needs import StageNeed, stage_needs
from calculon.base.display import WithMfu, columns_of
from calculon.base.frozen import dataclass
from calculon.base.units import chance, gib
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.declarations.result_records import QUESTION
from calculon.declarations.statistics import FITS, RISK
from calculon.editions import find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.estimate import Estimate, estimate
from calculon.estimate.question import question
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.rules.failures import Failure, failures

_OF_REPLICAS = ("degrees_product", "batch_split", "microbatch_split")
"""Rules about the number of replicas."""


@dataclass(frozen=True)
class Why(WithMfu[float | None]):
    """Why an execution cannot run, or what it owes its time to.

    Attributes:
        model, execution, system: The question; unreadable fields are filled in by the preset.
        preset: Preset that filled in the execution.
        failures: Every rule that it breaks, in the order of checking, after the unreadable fields.
        stages: Memory of every pipeline stage; empty if rules are broken.
        proposals: Fixes of an execution that cannot run. If it runs with more than the accepted risk of running out of
            memory, changes that lower the risk to it.
        estimate: Estimate of an execution that runs.
        better: For an execution that runs, the change that saves most time, and the best pair of changes if it saves
            more.
        contributions: For an execution that runs, the ablation of each of its options.
        unread: Values used in place of unreadable fields.
        fits: Probability that it fits in tier-1 memory; None if unknown, or if rules are broken.
    """

    model: Model
    execution: Execution
    system: System
    preset: Preset
    failures: tuple[Failure, ...] = ()
    stages: tuple[StageNeed, ...] = ()
    proposals: tuple[Fix, ...] = ()
    estimate: Estimate | None = None
    better: tuple[Fix, ...] = ()
    contributions: tuple[Ablation, ...] = ()
    unread: Mapping[str, Any] = field(default_factory=dict)
    fits: float | None = None

    @property
    def runs(self) -> bool:
        """True if it can run."""
        return self.estimate is not None

    @property
    def short(self) -> dict[int, tuple[StageNeed, ...]]:
        """Stages that exceed the available memory, by tier (1 or 2), largest excess first."""
        tiers = {tier: [one for one in self.stages if one.over(tier) > 0] for tier in (1, 2)}
        return {
            tier: tuple(sorted(found, key=lambda one: -one.over(tier)))
            for tier, found in tiers.items()
            if found
        }

    @property
    def problem(self) -> str:
        """One-line reason why it cannot run; empty if it can."""
        if self.failures:
            first, *more = self.failures
            return str(first) + (f"; and {len(more)} more" if more else "")
        if self.runs:
            return ""
        risk = "" if self.fits is None else f" (it fits with a probability of {chance(self.fits)})"
        parts = (
            f"tier-{tier} memory is too small by {gib(found[0].over(tier))}{risk * (tier == 1)}"
            for tier, found in self.short.items()
        )
        return " and ".join(parts)

    @property
    def question(self) -> dict[str, Any]:
        """Question as plain data."""
        fields = {"fields": self.execution.to_dict()}
        edition = self.execution.edition
        return question(self.model, self.system, edition, self.preset, execution=fields)

    def to_dict(self) -> dict[str, Any]:
        """Return the analysis as plain data."""
        return {
            "runs": self.runs,
            "problem": self.problem,
            FITS: self.fits,
            "failures": [one.to_dict() for one in self.failures],
            "unread": dict(self.unread),
            "short": {str(t): [one.stage for one in found] for t, found in self.short.items()},
            "stages": [one.to_dict() for one in self.stages],
            "proposals": [one.to_dict() for one in self.proposals],
            "stats": None if self.estimate is None else dict(self.estimate.stats),
            "better": [one.to_dict() for one in self.better],
            "contributions": [one.to_dict() for one in self.contributions],
            QUESTION: self.question,
        }

    def _statistic(self, name: str) -> float | None:
        return None if self.estimate is None else self.estimate.stats.get(name)

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each proposal; if there is none, for each better change of an execution that runs.

        ``changes`` and ``follows`` are mappings of fields to values, stated and derived, ``count`` is the number of
        changes. ``distance`` ranks them, ``longer`` is the share by which a sample takes longer, ``unusual`` lists what
        users of the framework avoid, and ``asks_for_another`` names a changed field of the question itself.
        """
        rows = (one.to_dict() for one in self.proposals or self.better)
        return columns_of(({name: row[name] for name in COLUMNS} for row in rows), COLUMNS)

    def __repr__(self) -> str:
        asked = f"{self.model.name} on {self.execution.num_procs} x {self.system.name}"
        if self.estimate is not None:
            return f"<Why of {asked}: it runs, {len(self.better)} changes are better>"
        reasons = [one.reason for one in self.failures] or [f"mem{t}_capacity" for t in self.short]
        return f"<Why of {asked}: {', '.join(reasons)}; {len(self.proposals)} proposals>"


@takes_either_order
def why(
    model: Source | Model,
    execution: Source | Execution,
    system: Source | System,
    *,
    edition: Edition | str | None = None,
    preset: str | None = None,
) -> Why:
    """Explain why an execution cannot run and how to fix it; for one that runs, its bottlenecks and better options.

    Args:
        model, execution, system: As in :func:`calculon.estimate`.
        edition: Edition of the cost model, or its name; defaults to the edition of the execution.
        preset: Framework that fills in omitted fields, by name or file; defaults to the preset of the execution.

    Raises:
        SpecError: For an unreadable model or system, and for an execution with too few readable fields.

    Examples:
        >>> mine = {"base": "megatron-lm", "num_procs": 8, "tensor_par": 3, "pipeline_par": 1, "batch_size": 64}
        >>> found = why("llama3-8B", mine, "h100_80g_sxm")
        >>> found.failures[0].message
        'expected a multiple of tensor_par * pipeline_par = 3 * 1, since data_par is left out, found 8'
        >>> dict(found.proposals[0].changes)
        {'tensor_par': 4}
    """
    shape, machine = inputs.model(model), inputs.system(system)
    known = None if edition is None else find_edition(edition).name
    read = inputs.readable_execution(
        execution, edition=known, preset=preset, system=machine, model=shape
    )
    whole, problems, unread = read.resolved.execution, read.problems, read.unread
    broken = failures(shape, whole, machine)
    if read.left_out:  # rounded replicas, which nobody stated, would report the same problem again
        broken = tuple(one for one in broken if one.reason not in _OF_REPLICAS)
    found = Why(
        model=shape,
        execution=whole,
        system=machine,
        preset=read.resolved.preset,
        failures=(*(Failure.of(f"invalid_{p.field}", p) for p in problems), *broken),
        stages=() if broken or read.left_out else stage_needs(shape, whole, machine),
        unread=unread,
    )
    near = Neighborhood(shape, whole, machine, read.left_out)
    search = FixSearch(near, found.failures)
    if broken or read.left_out:
        return replace(found, proposals=_compared(_with(unread, search.fixes())))
    (fits,) = near.unchanged.fits.tolist()
    found = replace(found, fits=None if isnan(fits) else fits)
    if not near.unchanged.runs[0]:
        return replace(found, proposals=_compared(_with(unread, search.fixes())))
    if problems:
        # The execution runs once its unreadable fields have the filled-in values: that is the fix.
        return replace(found, proposals=_compared((_as_read(search, unread),)))
    return _improved(found, search, near)


def _improved(analysis: Why, search: FixSearch, near: Neighborhood) -> Why:
    """Return the analysis of an execution that runs: estimate, better changes, and ablations."""
    now = estimate(analysis.model, analysis.execution, analysis.system)
    step = now.stats["total_time"] or 0.0
    risky = analysis.fits is not None and analysis.fits < 1 - RISK
    safer = tuple(one for one in search.fixes() if not one.risky) if risky else ()
    return replace(
        analysis,
        estimate=now,
        proposals=_compared(safer, step / analysis.execution.batch_size),
        better=_compared(search.faster(step), step / analysis.execution.batch_size),
        contributions=ablations(near),
    )


def _with(unread: Mapping[str, Any], fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Return fixes whose changes include the unreadable fields."""
    if not unread:
        return fixes
    return tuple(replace(one, changes={**unread, **one.changes}) for one in fixes)


def _compared(fixes: tuple[Fix, ...], against: float | None = None) -> tuple[Fix, ...]:
    """Return fixes with their relative time per sample, compared with `against` seconds or the fastest fix."""
    least = min((one.sample_time for one in fixes), default=0.0) if against is None else against
    if not least:
        return fixes
    return tuple(replace(one, longer=one.sample_time / least - 1) for one in fixes)


def _as_read(search: FixSearch, unread: Mapping[str, Any]) -> Fix:
    """Return the execution as filled in, with the unreadable fields as changes."""
    now = search.fix(search.near.unchanged, 0)
    return replace(now, changes=dict(unread), distance=float(len(unread)))
