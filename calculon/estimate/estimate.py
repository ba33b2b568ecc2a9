"""Estimate of a single execution: statistics (time, memory, MFU), layers, and process groups."""

import warnings
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon import inputs
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.frozen import dataclass
from calculon.base.record_arrays import only_values
from calculon.base.units import GIB, between, duration, known, significant
from calculon.declarations import arguments
from calculon.declarations.axes import AXES, PUBLISHED_AXES
from calculon.declarations.decode import SpecWarning
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import Origin
from calculon.declarations.presets import Preset, find_preset
from calculon.declarations.result_records import QUESTION
from calculon.declarations.statistics import BOUNDS, MFU, TIER1, mfu_name
from calculon.editions import EDITIONS, find_edition
from calculon.editions.edition import Edition
from calculon.estimate.argument_order import takes_either_order
from calculon.estimate.evaluate import evaluate_one
from calculon.estimate.graph_step import graph_step
from calculon.estimate.imbalance import imbalance_headroom
from calculon.estimate.interval import Interval, interval
from calculon.estimate.layer_list import breakdown
from calculon.estimate.memory_limit import fits, memory_codes
from calculon.estimate.operators import context_exchange, expert_parts
from calculon.estimate.plan_in_words import with_plan_words
from calculon.estimate.question import question, warn_of_differences
from calculon.estimate.rank_groups import Domain, RankGroup, domains, rank_groups
from calculon.estimate.stages import stage_rows
from calculon.estimate.wider_step import wider_step
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.mesh import strides
from calculon.plan.plan import Plan, names_of
from calculon.plan.rules.all_rules import check, raise_for
from calculon.plan.rules.rule import Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

    from calculon.estimate.validated_runs import RunEvidence


@dataclass(frozen=True)
class Estimate(WithMfu[float | None]):
    """Predicted cost of an execution of a model on a system.

    Attributes:
        model, execution, system: The inputs.
        edition: Edition of the cost model.
        stats: The 96 published statistics by name, in published order, then statistics of the edition; ``describe
            stats`` explains them.
        layers: One entry per layer of a block, if requested.
        preset: Preset that filled in the execution; None for the preset in the execution's field.
        origin: Source of the execution.
    """

    model: Model
    execution: Execution
    system: System
    edition: str
    stats: dict[str, float | None] = field(repr=False)
    layers: list[dict[str, Any]] | None = field(default=None, repr=False)
    preset: Preset | None = field(default=None, repr=False)
    origin: Origin | None = field(default=None, repr=False)

    @cached_property
    def interval(self) -> Interval | None:
        """Interval of the measured time from the residuals of a calibrated system alone; None without residuals."""
        return interval(self.model, self.system, self.execution, EDITIONS[self.edition])

    @cached_property
    def belief(self) -> "RunEvidence | None":
        """Prediction interval of the measured time, nearest measured runs, and properties that no run has.

        None in edition ``sc23``.
        """
        from calculon.estimate.validated_runs import belief  # most searches do not need it

        return belief(self.model, self.system, self.execution, self.stats)

    @property
    def bounds(self) -> dict[str, float | None]:
        """Prediction interval of the time, as columns of :func:`calculon.bounds`; None if unknown."""
        found, names = self.belief, tuple(BOUNDS)
        ends = (None, None) if found is None else (found.low, found.high)
        return dict(zip(names, ends, strict=True))

    def _statistic(self, name: str) -> float | None:
        return self.stats.get(name)

    @cached_property
    def groups(self) -> list[RankGroup]:
        """Process groups: placement of the ranks, bytes, and communication time."""
        edition = EDITIONS[self.edition]
        return rank_groups(self.model, self.system, self.execution, edition, self.stats)

    @cached_property
    def domains(self) -> list[Domain]:
        """Networks on which the groups of a mesh leave processors idle, such as 64 used of 72."""
        return domains(self.system, self.execution)

    @cached_property
    def stages(self) -> list[dict[str, Any]]:
        """Pipeline stages: blocks, pass times of a microbatch, and required memory.

        Times are in seconds; the backward pass includes weight gradients and activation recomputation. Memory is in
        bytes, by the names of the statistics. ``hidden_time`` is the mean time per microbatch that overlapping forward
        and backward passes save (``ep_overlap: 1f1b``). If ranks hold two parts of the model (ZBV, DualPipe,
        DualPipeV), ``parts`` are the first and the last block of both, counted from 1.
        """
        edition = EDITIONS[self.edition]
        return stage_rows(evaluate_one(self.model, self.system, Plan.of(self.execution), edition))

    @cached_property
    def expert_parts(self) -> dict[str, Any]:
        """Time of the parts of an MoE block for one microbatch; empty for models without experts."""
        if not self.model.has_experts:
            return {}
        return expert_parts(self.model, self.system, self.execution, EDITIONS[self.edition])

    @cached_property
    def context_exchange(self) -> dict[str, Any]:
        """Context-parallel traffic of a rank; empty without context parallelism."""
        return context_exchange(self.model, self.system, self.execution, EDITIONS[self.edition])

    @cached_property
    def imbalance_headroom(self) -> float | None:
        """Largest imbalance of experts that fits in memory: rows of the busiest rank over the mean.

        At most ``expert_par``, or the capacity of experts; None if no rank has more rows than others.
        """
        edition = EDITIONS[self.edition]
        return imbalance_headroom(self.model, self.system, self.execution, edition)

    @cached_property
    def graph_step(self) -> dict[str, Any] | None:
        """Launch mode and seconds per step in CUDA graphs; None if they save less than 5 % of the time."""
        known = {name: value for name, value in self.stats.items() if value is not None}
        if "total_time" not in known:
            return None
        return graph_step(self.model, self.system, self.execution, known)

    @cached_property
    def wider_step(self) -> dict[str, Any] | None:
        """Precision and seconds per step of the fastest wider precision; None if it is not faster by 2 %."""
        time = self.stats["total_time"]
        return None if time is None else wider_step(self.model, self.system, self.execution, time)

    @property
    def terms(self) -> str:
        """Edition, and the preset except in the published edition: ``corrected, megatron-lm``."""
        if self.edition == PUBLISHED:
            return self.edition
        return f"{self.edition}, {self.preset.name if self.preset else self.execution.preset}"

    @property
    def question(self) -> dict[str, Any]:
        """Inputs of the estimate: model, system, edition, preset and execution, with hashes of the files."""
        known = {} if self.origin is None else self.origin.to_dict()
        return question(
            self.model,
            self.system,
            self.edition,
            self.preset or find_preset(self.execution.preset),
            execution={**known, "fields": self.execution.to_dict()},
        )

    def peers(self) -> dict[str, dict[str, int | list[int]]]:
        """Return the peers of each rank: its group along each axis, and the next pipeline stage.

        Only degrees above 1 have an entry. Tensor-parallel ranks are adjacent, then come pipeline stages, then
        replicas: ``rank = (d * pipeline_par + p) * tensor_par + t``; with ``mesh_order: tp-dp-pp`` replicas come before
        stages.
        """
        e = self.execution
        peers: dict[str, dict[str, int | list[int]]] = {}
        apart = {name: int(np.asarray(one).item()) for name, one in strides(Plan.of(e)).items()}
        for rank in range(e.num_procs):
            groups: dict[str, int | list[int]] = {}
            for axis in AXES:
                degree, stride = getattr(e, axis.degree), apart[axis.name]
                if degree == 1:
                    continue
                first = rank - rank // stride % degree * stride
                members = range(first, first + degree * stride, stride)
                if axis.name == "pp":
                    groups[axis.kind] = members[(members.index(rank) + 1) % degree]
                else:
                    groups[axis.kind] = list(members)
            peers[str(rank)] = groups
        return peers

    def table(self) -> dict[str, list[Any]]:
        """Return one row: fields of the execution, statistics, the interval of the time, and what was asked."""
        return columns_of([self.row])

    @property
    def row(self) -> dict[str, Any]:
        """Fields, statistics, both ends of the interval and names by name, as in tables of a search."""
        fields = {name: getattr(self.execution, name) for name in names_of(self.edition)}
        names: dict[str, Any] = {"model": self.model.name, "system": self.system.name}
        if self.edition != PUBLISHED:
            names = {**self.bounds, **names, "asked_preset": self.terms.rpartition(", ")[2]}
        return fields | self.stats | names

    def to_dict(self) -> dict[str, Any]:
        """Return the document of the published tool: the statistics, and ``layers`` if requested.

        Editions other than the published one add their name, the prediction interval of the iteration time and its
        evidence, the traffic of each process group, and the inputs. Networks with idle processors and the interval from
        the residuals of a calibrated system are added if there are any.
        """
        document: dict[str, Any] = dict(self.stats)
        if self.edition != PUBLISHED:
            document["edition"] = self.edition
            if self.belief is not None:
                document |= self.bounds | {"belief": self.belief.to_dict()}
            if self.graph_step is not None:
                document["graph_step"] = self.graph_step
            if self.wider_step is not None:
                document["wider_step"] = self.wider_step
            document["groups"] = [group.to_dict() for group in self.groups]
            if self.domains:
                document["domains"] = [domain.to_dict() for domain in self.domains]
            document[QUESTION] = self.question
        if self.interval is not None:
            document["total_time_interval"] = self.interval.to_dict()
        if self.layers is not None:
            document["layers"] = self.layers
        return document

    @overload
    def plot(
        self, kind: str = "breakdown", *, interactive: Literal[False] = False, **options: Any
    ) -> "Figure": ...

    @overload
    def plot(
        self, kind: str = "breakdown", *, interactive: Literal[True], **options: Any
    ) -> "InteractiveFigure": ...

    def plot(
        self, kind: str = "breakdown", *, interactive: bool = False, **options: Any
    ) -> "Figure | InteractiveFigure":
        """Plot the estimate, as ``calculon plot`` does.

        Notebooks show the figure if it is the last value of a cell; ``savefig`` writes it to a file.

        Args:
            kind: ``breakdown`` (default): time and memory by part, compared with the capacity; ``schedule``: the passes
                of each pipeline stage over time.
            interactive: Return a plotly Figure as on the web page (extra ``web``). Its kinds are ``breakdown`` of time,
                ``memory``, ``traffic``, ``schedule``, ``operators`` and ``roofline``.
            options: For ``schedule``: ``microbatches``, the number to draw (by default twice the number of stages).

        Raises:
            SpecError: For another kind, and if the library is missing.

        Examples:
            >>> figure = estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g").plot()
            >>> figure.savefig("breakdown.png")  # doctest: +SKIP
        """
        return draw_result(self, kind, interactive=interactive, **options)

    def __repr__(self) -> str:
        e = self.execution
        degrees = {
            axis.name.upper(): degree
            for axis in AXES
            if (degree := getattr(e, axis.degree)) > 1 or axis in PUBLISHED_AXES
        }
        split = ", ".join(f"{name} {degree}" for name, degree in degrees.items())
        edition = "" if self.edition == PUBLISHED else f", edition {self.edition}"
        stats = {name: value for name, value in self.stats.items() if value is not None}
        total, rate, expected = stats["total_time"], stats["sample_rate"], ""
        found, error = self.belief or self.interval, 0.0
        if self.belief is not None:  # round to the digits that the interval supports
            error = (self.belief.high - self.belief.low) / 2
        if found is not None:
            ends = between(duration(found.low, error), duration(found.high, error))
            expected = f" ({int(found.level * 100 + 1e-6)}%: {ends})"
        speed = known(rate, error / total * rate) if error else significant(rate)
        memory = f"{stats[TIER1] / GIB:.{1 if error else 2}f} GiB"
        if self.edition == PUBLISHED:
            share = f"{stats['total_efficiency']:.2%} efficiency"
        else:
            name = mfu_name(self.execution.to_dict())
            share = f"{stats[name]:.0%} {'MFU' if name == MFU[0] else 'causal MFU'}"
        return (
            f"<Estimate of {self.model.name} on {e.num_procs} x {self.system.name} "
            f"({split}): {duration(total, error)}{expected}, {speed} samples/s, {memory}, {share}{edition}>"
        )


@takes_either_order
def estimate(
    model: Source | Model,
    execution: Source | Execution | None = None,
    system: Source | System | None = None,
    layers: bool = False,
    *,
    edition: Edition | str | None = None,
    preset: str | None = None,
    **words: Any,
) -> Estimate:
    """Estimate one execution.

    An execution in edition ``corrected`` that is predicted to exceed tier-1 memory is also estimated if it fits with a
    probability of at least 5 %: the statistic ``fits`` is this probability.

    Args:
        model, execution, system: A catalog name, the path of a file (``best.json#2`` of results), a mapping (also a row
            of a frame), or a record; an execution also in words, with options of :func:`calculon.plan` and short names:
            ``"tp=4 pp=2"`` or ``{"tp": 4, "pp": 2}`` on 8 processors, ``"tp=4 procs=64 batch=4M dtype=fp8"``.
        layers: True to list the cost of every layer.
        **words: Values of the execution in the words of plans, instead of its own: ``tp=4``, ``batch="4M"``. They may
            be the whole plan: ``estimate("llama-3-8b", "h100", tp=4)``.
        edition: Edition of the cost model, or its name; by default the edition of the execution.
        preset: Framework whose preset fills in missing fields, by name or file; by default the execution's preset.

    Raises:
        SpecError: For a malformed request; the message states the field, the expected and the actual value.
        Infeasible: When the execution cannot run on this system; ``reason`` is a short identifier, and the message has
            the numbers. For insufficient memory, ``needed``, ``available`` and ``tier`` have them, too.

    Examples:
        >>> result = estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
        >>> result
        <Estimate of megatron-1T on 3072 x a100_80g (TP 4, PP 64, DP 12): 131.9 s, 23.29 samples/s, 79.55 GiB,
        30.46% efficiency>
        >>> estimate("llama-3-8b", "tp=4 pp=2", "h100", mbs=2).execution.microbatch_size
        2
    """
    asked_system: Any = system  # None is refused
    shape, machine = inputs.model(model), inputs.system(asked_system)
    known = None if edition is None else find_edition(edition).name
    execution = with_plan_words("estimate", execution, words, shape)
    asked = inputs.resolve_execution(
        execution, edition=known, preset=preset, system=machine, model=shape
    )
    warn_of_differences(asked.place, asked.question, shape, machine)
    _warn_of_length(asked, shape)
    return _estimated(asked, Request(shape, machine, asked.execution), layers)


def _estimated(resolved: inputs.ResolvedExecution, one: Request, layers: object) -> Estimate:
    """Return the estimate of an execution that was asked for; errors as of :func:`estimate`."""
    plan, edition = Plan.of(one.execution), EDITIONS[one.execution.edition]
    listed = arguments.switch(layers, "layers", "estimate")
    code = check(one.model, one.system, plan)
    raise_for(one, int(code[0]))
    batch = evaluate_one(one.model, one.system, plan, edition)
    code = memory_codes(code, batch)
    if code[0]:
        tiers = batch.capacity.proc_mem_tier1_cap_req, batch.capacity.proc_mem_tier2_cap_req
        tier1, tier2, probability = (float(np.max(one)) for one in (*tiers, fits(batch)))
        raise_for(one, int(code[0]), tier1, tier2, probability)
    return Estimate(
        model=one.model,
        execution=one.execution,
        system=one.system,
        edition=edition.name,
        stats=only_values(batch.stats),
        layers=breakdown(one.model, one.system, one.execution, edition) if listed else None,
        preset=resolved.preset,
        origin=resolved.origin,
    )


def _warn_of_length(resolved: inputs.ResolvedExecution, model: Model) -> None:
    """Warn if the sequence length was set in the model, but the execution states another one."""
    length = resolved.execution.seq_length
    chosen = model.origin is not None and "seq_size" in model.origin.changes
    if chosen and resolved.origin is not None and length not in (0, model.seq_size):
        text = (
            f"{resolved.place}: seq_length {length:,} is used, not the seq_size {model.seq_size:,} that was set for "
            "the model; set seq_length instead"
        )
        warnings.warn(text, SpecWarning, stacklevel=4)
