"""Result as plain data: its statistics, and the known parts of its question."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import product
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.units import between
from calculon.declarations.axes import AXES, PUBLISHED_AXES
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.declarations.statistics import (
    ALL_PARTS_OF_TIME,
    BOUNDS,
    FITS,
    OFFLOADS,
    memory_by_kind,
)
from calculon.render.digits import MIN_SPREAD, WITHOUT_INTERVAL, Digits

Stats = Mapping[str, float | None]

ENDS = ("level", "low", "high")
"""Members of an interval."""

EVERYTHING = "everything"
"""The only kind of memory of a result if the file does not say what is offloaded."""

_SAME = 1e-6  # relative error of the sum of memory kinds


@dataclass(frozen=True, slots=True)
class Document:
    """Input file of a result: its role, its name, and the SHA-256 of its content."""

    role: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """System: peak matrix rate (FLOP/s), both memory tiers (B, B/s), and the achieved bandwidth of networks (B/s).

    ``usable`` is the part of the capacities that an execution may use.
    """

    name: str
    peak: float
    capacities: tuple[float, float]
    usable: tuple[float, float]
    bandwidths: tuple[float, float]
    networks: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Model and system of a result.

    Attributes:
        name: Name of the model.
        parameters: Number of parameters.
        model: Its fields, as in files: optional ones only if they differ from their default.
        machine: The system.
        networks: Number of the network of each degree of parallelism; the outermost if groups span several.
        active: Parameters that one token passes, for a model with experts; 0 for others.
        modules: Parameters of multi-token prediction modules, which are not included in the others.
    """

    name: str
    parameters: int
    model: Mapping[str, Any]
    machine: Machine
    networks: Mapping[str, int]
    active: int = 0
    modules: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Result of one execution; most of it is unknown for a file of statistics alone.

    Attributes:
        stats: The statistics: the published ones, and the additional ones of its edition.
        edition: Edition of the cost model.
        label: Name next to other results.
        parts: Parts that a name can consist of.
        execution: The fields of the execution.
        inputs: Model and system.
        layers: The layers of a block.
        stages: Time and memory of each of several pipeline stages.
        interval: Prediction interval of the iteration time: ``level``, and ``low`` and ``high`` in seconds.
        belief: Evidence of the interval: :class:`~calculon.estimate.validated_runs.RunEvidence` as plain data.
        residuals: Interval derived from the residuals of a calibrated system alone.
        expert_parts: Time of the parts of a block with experts (:func:`calculon.estimate.operators.expert_parts`).
        context_exchange: Messages of context parallelism
            (:attr:`calculon.Estimate.context_exchange`).
        imbalance_headroom: Largest load imbalance of experts for which the memory is sufficient
            (:attr:`calculon.Estimate.imbalance_headroom`).
        graph_step: Step in CUDA graphs if the host limits it (:attr:`calculon.Estimate.graph_step`).
        wider_step: Step with wider operands if it is faster (:attr:`calculon.Estimate.wider_step`).
        groups: The process groups, as in the results of an estimate.
        domains: Networks with idle processors, likewise.
        documents: Its input files.
        winners: The executions of its search, best first.
        question: The question it answers, as in its file.
        usual: Values of the preset for the fields of the execution; empty if not requested.
    """

    stats: Stats
    edition: str = PUBLISHED
    label: str = ""
    parts: tuple[str, ...] = ()
    execution: Mapping[str, Any] | None = None
    inputs: Inputs | None = None
    layers: Sequence[Mapping[str, Any]] | None = None
    stages: Sequence[Mapping[str, Any]] | None = None
    interval: Mapping[str, Any] | None = None
    belief: Mapping[str, Any] | None = None
    residuals: Mapping[str, Any] | None = None
    expert_parts: Mapping[str, Any] | None = None
    context_exchange: Mapping[str, Any] | None = None
    imbalance_headroom: float | None = None
    graph_step: Mapping[str, Any] | None = None
    wider_step: Mapping[str, Any] | None = None
    groups: Sequence[Mapping[str, Any]] = ()
    domains: Sequence[Mapping[str, Any]] = ()
    documents: tuple[Document, ...] = ()
    winners: "tuple[Result, ...]" = ()
    question: Mapping[str, Any] | None = None
    usual: Mapping[str, Any] = field(default_factory=dict)

    @property
    def capacities(self) -> tuple[float, float] | None:
        """Usable bytes of both tiers, if the system is known."""
        return self.inputs.machine.usable if self.inputs else None

    @property
    def title(self) -> str:
        """One-line question, as far as known: model, processors and system, or the label."""
        if self.names is None or self.execution is None:
            return self.label
        mode = "Training" if self.execution["training"] else "Inference"
        model, system = self.names
        return f"{mode} of {model} on {self.execution['num_procs']:,} x {system}"

    @property
    def names(self) -> tuple[str, str] | None:
        """Names of model and system, if known."""
        if self.inputs is not None:
            return self.inputs.name, self.inputs.machine.name
        known = self.question or {}
        if not ("model" in known and "system" in known):
            return None
        model, system = (stated_name(known[kind]) for kind in ("model", "system"))
        return model, system

    @property
    def preset(self) -> str:
        """Name of the preset, or of its file; empty in edition ``sc23``, which has none."""
        if self.edition == PUBLISHED:
            return ""
        stated = (self.question or {}).get("preset", {}).get("name")
        return str(stated or (self.execution or {}).get("preset", ""))

    @property
    def terms(self) -> str:
        """Edition, and preset if any: ``corrected, megatron-lm``."""
        return ", ".join(filter(None, (self.edition, self.preset)))

    @property
    def split(self) -> str:
        """Short form of the parallelism degrees; empty if unknown."""
        if self.execution is None:
            return ""
        degrees = [(axis, self.execution.get(axis.degree, 1)) for axis in AXES]
        return " · ".join(
            f"{axis.name.upper()} {degree:,}"
            for axis, degree in degrees
            if axis in PUBLISHED_AXES or degree > 1
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second, if the sequence length is known."""
        if self.inputs is None or self.execution is None:
            return self.stats.get("tokens_per_second")
        return self.value("sample_rate") * seq_length(self.inputs, self.execution)

    @property
    def skips_masked_keys(self) -> bool:
        """True if the attention kernel skips masked keys; for a file of statistics, derived from HFU."""
        # HFU includes recomputation, so that it is below MFU only if the kernel skips masked keys.
        if self.execution is None:
            return self.value("hfu") < self.value("mfu")
        return bool(self.execution["attn_impl"] == "flash")

    @property
    def masking(self) -> str:
        """Convention of the headline MFU: ``causal`` if the kernel skips masked keys."""
        return "causal" if self.skips_masked_keys else "full attention"

    @property
    def mfu(self) -> float:
        """Headline MFU; 0 in the published edition."""
        return self.value("mfu_causal" if self.skips_masked_keys else "mfu")

    @property
    def ends(self) -> str:
        """Interval of the time in words; empty if unknown."""
        if self.interval is None:
            return ""
        total = self.value("total_time")
        texts = (self.digits.duration(self.interval[end], total) for end in ("low", "high"))
        return between(*texts)

    @property
    def bounded_stats(self) -> Stats:
        """Statistics, and the ends of the interval of the time if known."""
        if self.interval is None:
            return self.stats
        ends = (self.interval["low"], self.interval["high"])
        return {**self.stats, **dict(zip(BOUNDS, ends, strict=True))}

    @property
    def fits(self) -> float | None:
        """Probability that the execution fits in memory; None if unknown."""
        return self.stats.get(FITS)

    @property
    def digits(self) -> Digits:
        """Digits of its numbers: as many as the interval allows, and all of them in the published edition."""
        if self.edition == PUBLISHED:
            return Digits()
        if self.interval is None:
            return Digits(WITHOUT_INTERVAL)
        # Half the width, relative to the time, is the error that digits should show.
        width = self.interval["high"] - self.interval["low"]
        return Digits(max(width / 2 / self.value("total_time"), MIN_SPREAD))

    def value(self, name: str) -> float:
        """Return a statistic; one without a value, or of another edition, counts as 0."""
        return self.stats.get(name) or 0.0

    def times(self) -> dict[str, float]:
        """Return the parts of the iteration time in seconds, in the order of their sum."""
        return {name: self.value(name) for name in ALL_PARTS_OF_TIME}

    def memory(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return bytes in tier 1 and in tier 2 by kind; they add up to the memory needed in each tier.

        A file of statistics does not say what is offloaded: if it uses tier 2, only the
        sums are known, under :data:`EVERYTHING`.
        """
        # The split into kinds depends on unknown options: try candidates until the kinds add up to the published sums.
        needed = (self.value("proc_mem_tier1_cap_req"), self.value("proc_mem_tier2_cap_req"))
        executions = [self.execution] if self.execution else _GUESSES
        for execution, blocks in product(executions, self._blocks()):
            kinds = memory_by_kind(self.stats, execution, blocks)
            sums = (sum(tier.values()) for tier in kinds)
            if all(math.isclose(s, n, rel_tol=_SAME) for s, n in zip(sums, needed, strict=True)):
                return kinds
        here, away = needed
        return {EVERYTHING: here}, {EVERYTHING: away} if away else {}

    def _blocks(self) -> Iterator[int]:
        """Yield possible numbers of blocks on the most loaded stage.

        With offloaded weights two blocks stay in tier 1, or one if the stage has only one.
        """
        if self.stages is not None:
            yield max(int(stage["blocks"]) for stage in self.stages)
        # Each block beyond the two kept in tier 1 is one block's weights in tier 2.
        beyond = self.value("weight_space") - self.value("weight_space_with_offload")
        blocks = 2 + beyond / (self.value("block_weight_space") or 1.0)
        yield round(blocks) if math.isfinite(blocks) else 2
        yield 1


def seq_length(inputs: Inputs, execution: Mapping[str, Any]) -> int:
    """Return the tokens per sequence: the execution's length, or else the model's."""
    return int(execution.get("seq_length") or inputs.model["seq_size"])


_GUESSES = tuple(
    {"activation_recompute": recompute, **dict.fromkeys(OFFLOADS, False)}
    for recompute in ("none", "full")
)
"""Possible executions for a file of statistics without offloading."""
