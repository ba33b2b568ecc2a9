"""One result as plain data: its statistics, and what is known about the question that they answer."""

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
from calculon.render.digits import LEAST_SPREAD, WITHOUT_INTERVAL, Digits

Stats = Mapping[str, float | None]

ENDS = ("level", "low", "high")
"""Members of an interval."""

EVERYTHING = "everything"
"""The one kind of memory of a result that does not tell what is offloaded."""

_SAME = 1e-6  # relative: how well the kinds of memory add up to the memory needed


@dataclass(frozen=True, slots=True)
class Document:
    """A file that a result was made from: its role, its name, and the SHA-256 of its content."""

    role: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A system: peak matrix rate (FLOP/s), both memory tiers (B, B/s), and the achieved bandwidth of networks (B/s).

    ``usable`` is what an execution may use of the capacities.
    """

    name: str
    peak: float
    capacities: tuple[float, float]
    usable: tuple[float, float]
    bandwidths: tuple[float, float]
    networks: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The model and the system of a result.

    Attributes:
        name: Name of the model.
        parameters: How many it has.
        model: Its fields, as in files: optional ones only where they differ from their default.
        machine: The system.
        networks: Number of the network of each degree of parallelism; the outermost, where groups span several.
        active: Parameters that one token passes, of a model with experts; 0 of others, where it passes all.
        modules: Parameters of modules that predict further tokens, which are not among the others.
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
    """A result of one execution; a file of statistics alone leaves most of it unknown.

    Attributes:
        stats: The statistics: the published ones, and those that only its edition has.
        edition: Edition of the cost model.
        label: Its name beside others.
        parts: The parts of which such a name can be made.
        execution: The fields of the execution.
        inputs: Model and system.
        layers: The layers of a block.
        stages: Time and memory of each of several pipeline stages.
        interval: Where the iteration time is expected: ``level``, and ``low`` and ``high`` in seconds.
        belief: What that rests on: :class:`~calculon.estimate.validated_runs.Belief` as plain data.
        residuals: The interval that the residuals of a calibrated system alone tell.
        expert_parts: Time of the parts of a block with experts (:func:`calculon.estimate.operators.expert_parts`).
        context_exchange: What processors with parts of the same sequences send
            (:attr:`calculon.Estimate.context_exchange`).
        imbalance_headroom: Up to which imbalance of experts the memory suffices
            (:attr:`calculon.Estimate.imbalance_headroom`).
        groups: The process groups, as in the results of an estimate.
        domains: Networks of which processors stay idle, likewise.
        documents: The files that it was made from.
        winners: The executions of the search that it is from, best first.
        question: What it answers, as its file says.
        usual: What the preset of the execution has in its fields; empty where nobody asked.
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
    groups: Sequence[Mapping[str, Any]] = ()
    domains: Sequence[Mapping[str, Any]] = ()
    documents: tuple[Document, ...] = ()
    winners: "tuple[Result, ...]" = ()
    question: Mapping[str, Any] | None = None
    usual: Mapping[str, Any] = field(default_factory=dict)

    @property
    def capacities(self) -> tuple[float, float] | None:
        """Bytes of both tiers that there are for an execution, when the system is known."""
        return self.inputs.machine.usable if self.inputs else None

    @property
    def title(self) -> str:
        """The question in a line, as far as it is known: model, processors and system, or the label."""
        if self.names is None or self.execution is None:
            return self.label
        mode = "Training" if self.execution["training"] else "Inference"
        model, system = self.names
        return f"{mode} of {model} on {self.execution['num_procs']:,} x {system}"

    @property
    def names(self) -> tuple[str, str] | None:
        """The names of model and system, when they are known."""
        if self.inputs is not None:
            return self.inputs.name, self.inputs.machine.name
        known = self.question or {}
        if not ("model" in known and "system" in known):
            return None
        model, system = (stated_name(known[kind]) for kind in ("model", "system"))
        return model, system

    @property
    def preset(self) -> str:
        """The name of the preset, that of a file where it was one; empty in edition ``sc23``, which has none."""
        if self.edition == PUBLISHED:
            return ""
        stated = (self.question or {}).get("preset", {}).get("name")
        return str(stated or (self.execution or {}).get("preset", ""))

    @property
    def terms(self) -> str:
        """The edition, and the preset where there is one: ``corrected, megatron-lm``."""
        return ", ".join(filter(None, (self.edition, self.preset)))

    @property
    def split(self) -> str:
        """The split of the processors in short, or nothing when it is not known."""
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
        """The rate in tokens, when the length of a sequence is known."""
        if self.inputs is None or self.execution is None:
            return self.stats.get("tokens_per_second")
        return self.value("sample_rate") * seq_length(self.inputs, self.execution)

    @property
    def skips_masked_keys(self) -> bool:
        """Whether the attention kernel computes nothing for masked keys; of a file of statistics as HFU tells."""
        if self.execution is None:
            return self.value("hfu") < self.value("mfu")
        return bool(self.execution["attn_impl"] == "flash")

    @property
    def masking(self) -> str:
        """Which keys the MFU counts that comes first: those that the execution computes."""
        return "causal" if self.skips_masked_keys else "full attention"

    @property
    def mfu(self) -> float:
        """The MFU that comes first; 0 of the published edition."""
        return self.value("mfu_causal" if self.skips_masked_keys else "mfu")

    @property
    def ends(self) -> str:
        """The interval of the time in words; nothing where it is not known."""
        if self.interval is None:
            return ""
        total = self.value("total_time")
        texts = (self.digits.duration(self.interval[end], total) for end in ("low", "high"))
        return between(*texts)

    @property
    def bounded_stats(self) -> Stats:
        """The statistics, and the ends of the interval of the time where it is known."""
        if self.interval is None:
            return self.stats
        ends = (self.interval["low"], self.interval["high"])
        return {**self.stats, **dict(zip(BOUNDS, ends, strict=True))}

    @property
    def fits(self) -> float | None:
        """The probability that the execution fits in memory; None where it is not known."""
        return self.stats.get(FITS)

    @property
    def digits(self) -> Digits:
        """The digits of its numbers: those that its interval leaves, and of the published edition all that it has."""
        if self.edition == PUBLISHED:
            return Digits()
        if self.interval is None:
            return Digits(WITHOUT_INTERVAL)
        width = self.interval["high"] - self.interval["low"]
        return Digits(max(width / 2 / self.value("total_time"), LEAST_SPREAD))

    def value(self, name: str) -> float:
        """Return a statistic; one without a value, or of another edition, counts as 0."""
        return self.stats.get(name) or 0.0

    def times(self) -> dict[str, float]:
        """Return the parts of the iteration time in seconds, in the order of their sum."""
        return {name: self.value(name) for name in ALL_PARTS_OF_TIME}

    def memory(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return bytes in tier 1 and in tier 2 by kind; they add up to the capacity that each tier needs.

        A file of statistics does not say what is offloaded: when it has something in tier 2, all that is known are
        the sums, under :data:`EVERYTHING`.
        """
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
        """Yield how many blocks the most loaded stage may have.

        Two stay in tier 1 when weights are offloaded; where no more than these stay, there may be but one.
        """
        if self.stages is not None:
            yield max(int(stage["blocks"]) for stage in self.stages)
        beyond = self.value("weight_space") - self.value("weight_space_with_offload")
        blocks = 2 + beyond / (self.value("block_weight_space") or 1.0)
        yield round(blocks) if math.isfinite(blocks) else 2
        yield 1


def seq_length(inputs: Inputs, execution: Mapping[str, Any]) -> int:
    """Return the tokens of a sequence: those that the execution states, or the model's own."""
    return int(execution.get("seq_length") or inputs.model["seq_size"])


_GUESSES = tuple(
    {"activation_recompute": recompute, **dict.fromkeys(OFFLOADS, False)}
    for recompute in ("none", "full")
)
"""Executions that a file of statistics may be of, when nothing is offloaded."""
