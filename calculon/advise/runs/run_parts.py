"""Parts of a training run (phases, ramps of batch and sequence length), and restarts between them."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeVar

import numpy as np

from calculon import inputs
from calculon.advise.infeasibility import why_none
from calculon.advise.runs.rollouts import generating_deployment
from calculon.advise.space_fixes import BEST
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import duration
from calculon.campaign.record import DAY, Campaign
from calculon.campaign.run_columns import steps_of
from calculon.campaign.run_segments import RunSegment, run_segments
from calculon.declarations.execution import Execution
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.packing import packed_percent_of
from calculon.estimate.estimate import Estimate, estimate
from calculon.search.driver import run
from calculon.search.ranking import Best
from calculon.search.request import make_space
from calculon.serving.serve import Served

T = TypeVar("T")

_OF_A_STEP: dict[str, Any] = {
    "batch_size": 1,
    "seq_length": 0,
    "packed_percent": 100,
    "pack_imbalance_percent": 100,
}
"""Fields that may change between steps without a restart, and placeholder values for comparison."""

_KEPT = (
    "optimizer",
    "optimizer_state_dtype",
    "grad_clip",
    "matmul_dtype",
    "fp8_recipe",
    "vocab_pad_multiple",
    "moe_imbalance_percent",
    "moe_capacity_percent",
    "moe_pad_to_capacity",
    "mem_reserved_mib",
    "mem_fragments_percent",
    "data_par_slowdown",
    "pack_imbalance_percent",
)
"""Fields that a search for a phase copies from the execution of the run.

They are its arithmetic, its optimizer, and assumptions about machine and data.
"""


@dataclass(frozen=True)
class RunPart:
    """Steps of a run with the same execution, batch and sequence length.

    Attributes:
        segment: Segment of the run, with its batch and sequence length.
        estimate: Estimate of one step.
        steps: Number of steps.
        restarts: True if the run restarts from a checkpoint first, because the previous part is split differently.
        note: Differences from the requested execution, with the reason; empty if there are none.
        generated: Deployment that generates the responses before each step; None without a rollout.
    """

    segment: RunSegment
    estimate: Estimate
    steps: float
    restarts: bool = False
    note: str = ""
    generated: Served | None = None

    @property
    def rollout_time(self) -> float:
        """Seconds of a step before training: generation of responses, and switching to training."""
        if self.generated is None:
            return 0.0
        assert self.segment.rollout is not None
        return float(self.generated.run_time or 0.0) + self.segment.rollout.switch

    @property
    def step_time(self) -> float:
        """Seconds per step."""
        return float(self.estimate.stats["total_time"] or 0.0) + self.rollout_time

    @property
    def tokens_per_step(self) -> int:
        """Tokens per step."""
        return self.segment.tokens_per_step

    @property
    def days(self) -> float:
        """Days of its steps, without failures."""
        return self.steps * self.step_time / DAY

    def to_dict(self) -> dict[str, Any]:
        """Return the part as plain data."""
        return {
            "phase": self.segment.phase,
            "name": self.segment.name,
            "tokens": self.segment.tokens,
            "batch_size": self.segment.batch_size,
            "seq_size": self.segment.seq_size,
            "steps": self.steps,
            "step_time": self.step_time,
            "days": self.days,
            "mfu": self.estimate.stats.get("mfu"),
            "mfu_causal": self.estimate.stats.get("mfu_causal"),
            "restarts": self.restarts,
            "note": self.note,
            **self._rollout(),
            "execution": self.estimate.execution.to_dict(),
        }

    def _rollout(self) -> dict[str, Any]:
        """Return the rollout as plain data; empty if there is none."""
        if self.generated is None:
            return {}
        found = self.generated
        return {
            "rollout_time": self.rollout_time,
            "rollout": {
                "workload": found.workload.to_dict(),
                "deployment": found.deployment.to_dict(),
                "batch": found.batch,
                "run_time": found.run_time,
            },
        }


@dataclass(frozen=True)
class _Steps:
    """Estimates of steps of one model on one system, each computed once."""

    base: Estimate
    known: dict[Execution, Estimate] = field(default_factory=dict)

    def of(self, execution: Execution, segment: RunSegment) -> tuple[Estimate, str]:
        """Return the estimate of a step of a segment, and a note on its differences from the execution.

        If a batch has too few microbatches for interleaved stages, one chunk per stage is used. Errors are as for
        :func:`calculon.estimate`.
        """
        asked = replace(execution, **_fields(self.base, execution, segment))
        try:
            return self._estimated(asked), ""
        except SpecError as error:
            if asked.pipeline_interleaving == 1 or error.field != "pipeline_interleaving":
                raise
        microbatches = asked.batch_size // (asked.data_par * asked.microbatch_size)
        plain = replace(asked, pipeline_interleaving=1, p2p_overlap=False)
        of = (
            f"{microbatches:,} microbatches are not a multiple of the {asked.pipeline_par:,} stages"
        )
        return self._estimated(
            plain
        ), f"one chunk in each stage instead of {asked.pipeline_interleaving:,}: {of}"

    def _estimated(self, execution: Execution) -> Estimate:
        if execution == self.base.execution:
            return self.base
        if execution not in self.known:
            self.known[execution] = estimate(self.base.model, execution, self.base.system)
        return self.known[execution]


def parts_of(
    campaign: Campaign, base: Estimate, tokens: float, parameters: float, restart: float
) -> tuple[RunPart, ...]:
    """Return the parts of a run, in order.

    A searched phase runs its own best execution, or the execution of another part if a restart would cost more than it
    gains: the sequence with the smallest total time of steps and restarts is chosen.

    Args:
        base: Estimate of the execution for phases that state none.
        tokens: Tokens of the run; 0 if its phases state theirs.
        parameters: Parameters of the model; tokens may be stated as a multiple of them.
        restart: Seconds of a restart from a checkpoint.

    Raises:
        SpecError: For a part whose batch the split does not divide, and all other problems of a part, which the message
            names.
        Infeasible: If a part does not fit; the message names it.
    """
    own, steps = _stated(campaign, base), _Steps(base)
    usual = base.execution.batch_size, _length(base, base.execution)
    sizes = {phase: (one.batch_size, _length(base, one)) for phase, one in own.items()}
    all_segments = run_segments(campaign, tokens, parameters, *usual, sizes)
    found = _searched(base, all_segments)
    everywhere = list(dict.fromkeys((base.execution, *own.values(), *found.values())))
    tried = []
    for segment in all_segments:
        if segment.phase in found:
            first = found[segment.phase]
            options = [first, *(one for one in everywhere if one != first)]
        else:
            options = [own.get(segment.phase, base.execution)]
        tried.append(_tried(steps, options, segment))
    times = [
        [_count(segment) * _time(one) for one, _ in row]
        for segment, row in zip(all_segments, tried, strict=True)
    ]
    layouts = [[_layout(one.execution) for one, _ in row] for row in tried]
    chosen = quickest(times, layouts, restart)
    parts: list[RunPart] = []
    for i, (segment, number) in enumerate(zip(all_segments, chosen, strict=True)):
        one, note = tried[i][number]
        changed = i > 0 and layouts[i][number] != layouts[i - 1][chosen[i - 1]]
        parts.append(_part(segment, one, changed, note))
    return tuple(parts)


def _part(segment: RunSegment, one: Estimate, changed: bool, note: str) -> RunPart:
    """Return a part, with the deployment that generates its responses."""
    if segment.rollout is None:
        return RunPart(segment, one, _count(segment), changed, note)
    part = RunPart(
        segment, one, _count(segment), changed, note, generating_deployment(segment, one)
    )
    answers = part.generated.workload.requests if part.generated else 0
    time = duration(part.rollout_time, error=part.rollout_time / 20)
    words = f"{time} of a step generate {answers:,} responses before training"
    return replace(part, note=f"{note}; {words}" if note else words)


def quickest(
    times: Sequence[Sequence[float]], layouts: Sequence[Sequence[Hashable]], restart: float
) -> list[int]:
    """Return the option of each part that minimizes the total time of a run, by dynamic programming.

    Args:
        times: Seconds of each part with each of its options.
        layouts: Keys of the options: a run continues without a restart if the key does not change.
        restart: Seconds of a restart.
    """
    # Forward pass: the least total time with each option of a part, and the option of the previous
    # part that led there. The chosen path is read backwards.
    sums, choices = [0.0], []
    before: Sequence[Hashable] = [None]
    for number, (row, own) in enumerate(zip(times, layouts, strict=True)):
        came, totals = [], []
        for time, layout in zip(row, own, strict=True):
            stops = [restart * (number > 0 and layout != one) for one in before]
            reached = [total + stop for total, stop in zip(sums, stops, strict=True)]
            came.append(reached.index(min(reached)))
            totals.append(min(reached) + time)
        sums, before = totals, own
        choices.append(came)
    last = sums.index(min(sums))
    path = [last]
    for came in reversed(choices[1:]):
        path.append(came[path[-1]])
    return path[::-1]


def _count(segment: RunSegment) -> float:
    return float(steps_of(segment.tokens, np.asarray(segment.tokens_per_step)))


def _time(one: Estimate) -> float:
    return float(one.stats["total_time"] or 0.0)


def _length(base: Estimate, execution: Execution) -> int:
    return execution.seq_length or base.model.seq_size


def _fields(base: Estimate, execution: Execution, segment: RunSegment) -> dict[str, Any]:
    """Return the fields of an execution that a segment changes."""
    same = segment.seq_size == base.model.seq_size and execution.seq_length == 0
    result = {"batch_size": segment.batch_size, "seq_length": 0 if same else segment.seq_size}
    if segment.document_mean is not None:
        result["packed_percent"] = packed_percent_of(segment.document_mean, segment.seq_size)
    return result


def _layout(execution: Execution) -> Hashable:
    """Return the key of an execution that must not change for a run to continue without a restart."""
    return replace(execution, **_OF_A_STEP)


def _stated(campaign: Campaign, base: Estimate) -> dict[int, Execution]:
    """Return the executions that phases state, by the number of the phase."""
    result = {}
    for number, phase in enumerate(campaign.phases):
        if phase.execution is None or phase.execution.searched:
            continue
        one = _read(campaign, number, phase.execution.raw)
        if one.num_procs != base.execution.num_procs:
            wanted = f"{base.execution.num_procs:,}, the processors of the run"
            place = f"phases[{number}].execution.num_procs"
            raise SpecError(campaign.name, Problem(place, wanted, f"{one.num_procs:,}"))
        result[number] = one
    return result


def _read(campaign: Campaign, phase: int, raw: str | dict[str, Any]) -> Execution:
    """Read the execution of a phase; problems of fields written in the campaign have their path in the campaign."""
    try:
        return inputs.execution(raw, edition=CORRECTED)
    except SpecError as error:
        if isinstance(raw, str):
            raise
        place = f"phases[{phase}].execution"
        problems = [replace(one, field=f"{place}.{one.field}") for one in error.problems]
        raise SpecError(campaign.name, problems) from None


def _searched(base: Estimate, segments: Iterable[RunSegment]) -> dict[int, Execution]:
    """Return the best execution of each searched phase, for its segment with the most tokens."""
    largest: dict[int, RunSegment] = {}
    for segment in segments:
        if segment.execution is not None and segment.execution.searched:
            before = largest.setdefault(segment.phase, segment)
            largest[segment.phase] = max(before, segment, key=lambda one: one.tokens)
    known: dict[Hashable, Execution] = {}
    result = {}
    for phase, segment in largest.items():
        asked = segment.execution, segment.batch_size, segment.seq_size, segment.document_mean
        if asked not in known:
            known[asked] = _found(base, segment)
        result[phase] = known[asked]
    return result


def _found(base: Estimate, segment: RunSegment) -> Execution:
    """Search the execution of a segment on the processors of the run."""
    assert segment.execution is not None
    e, options = base.execution, segment.execution.options
    kept = {name: getattr(e, name) for name in _KEPT} | {"packed_percent": e.packed_percent}
    return _named(segment, lambda: _best(base, segment, kept | _fields(base, e, segment), options))


def _best(
    base: Estimate, segment: RunSegment, fixed: Mapping[str, Any], options: Mapping[str, Any]
) -> Execution:
    """Return the fastest execution with some fixed fields."""
    e = base.execution
    space = make_space(
        base.model,
        base.system,
        e.num_procs,
        segment.batch_size,
        e.datatype,
        fix={**fixed, **(options.get("fix") or {})},
        add=options.get("add"),
        edition=CORRECTED,
        preset=options.get("preset", e.preset),
    )
    found = run(space, Best(BEST, 1))
    if not len(found):
        raise Infeasible("nothing_fits", f"nothing fits: {why_none(found.counts)}")
    return found[0].execution


def _tried(
    steps: _Steps, options: Sequence[Execution], segment: RunSegment
) -> list[tuple[Estimate, str]]:
    """Return the step of a segment under each execution that can run it, with a note on differences.

    Raises:
        SpecError, Infeasible: If none can run it: the problem of the first.
    """
    result = []
    for one in options[1:]:
        try:
            result.append(steps.of(one, segment))
        except (SpecError, Infeasible):
            continue  # an execution of another part need not suit this one
    try:
        return [steps.of(options[0], segment), *result]
    except (SpecError, Infeasible):
        if result:
            return result
    return [_named(segment, lambda: steps.of(options[0], segment))]


def _named(segment: RunSegment, make: Callable[[], T]) -> T:
    """Return the result of `make`; errors name the segment."""
    where = (
        f"{segment.name or 'the run'} at batch {segment.batch_size:,}, {segment.seq_size:,} tokens"
    )
    try:
        return make()
    except SpecError as error:
        raise SpecError(where, error.problems) from None
    except Infeasible as error:
        memory = error.needed, error.available, error.tier
        raise Infeasible(error.reason, f"{where}: {error}", *memory) from None
