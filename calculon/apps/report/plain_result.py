"""One result as plain data: its statistics, and what is known about how they came about."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calculon.apps.report.sheet import PUBLISHED, Machine, Sheet, Stats, memory_by_kind
from calculon.statistics import ALL_PARTS_OF_TIME

EVERYTHING = "everything"
"""The one kind of memory of a result that does not tell what is offloaded."""

_OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")
_SAME = 1e-6  # relative: how well the kinds of memory add up to what is needed


@dataclass(frozen=True, slots=True)
class Document:
    """A file that a result was made from: what it is, its name, and the SHA-256 of its content."""

    role: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Winner:
    """An execution that a search found, with its statistics."""

    execution: Mapping[str, Any]
    stats: Stats


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A result of one execution; a file of statistics alone leaves most of it unknown.

    Attributes
    ----------
    label : str
        What it is called beside others.
    stats : mapping
        The statistics: the published ones, and those that only its edition has.
    edition : str
        Edition of the cost model.
    layers : sequence of mapping, or None
        The layers of a block.
    execution : mapping or None
        All fields of the execution.
    sheet : Sheet or None
        Everything about it, when model, execution and system are known.
    capacities : tuple of float, or None
        What tier 1 and tier 2 of the system hold, in bytes.
    documents : tuple of Document
        What it was made from.
    winners : tuple of Winner
        The executions of the search that it is from, best first.
    """

    label: str
    stats: Stats
    edition: str = PUBLISHED
    layers: Sequence[Mapping[str, Any]] | None = None
    execution: Mapping[str, Any] | None = None
    sheet: Sheet | None = None
    documents: tuple[Document, ...] = ()
    winners: tuple[Winner, ...] = ()

    @property
    def machine(self) -> Machine | None:
        """The system, when it is known."""
        return self.sheet.machine if self.sheet else None

    @property
    def capacities(self) -> tuple[float, float] | None:
        """What both tiers hold, in bytes, when the system is known."""
        return self.machine.capacities if self.machine else None

    @property
    def split(self) -> str:
        """The split of the processors in short, or nothing when it is not known."""
        if self.execution is None:
            return ""
        degrees = ("tensor_par", "pipeline_par", "data_par")
        return "TP {} · PP {} · DP {}".format(*(f"{self.execution[name]:,}" for name in degrees))

    def value(self, name: str) -> float:
        """Return a statistic; one without a value, or of another edition, counts as 0."""
        return self.stats.get(name) or 0.0

    def times(self) -> dict[str, float]:
        """Return the parts of the iteration time in seconds, in the order of their sum."""
        return {name: self.value(name) for name in ALL_PARTS_OF_TIME}

    def memory(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return bytes in tier 1 and in tier 2 by kind; they add up to what each tier needs.

        A file of statistics does not say what is offloaded: when it has something in tier 2, all that is known are
        the sums, under :data:`EVERYTHING`.
        """
        needed = (self.value("proc_mem_tier1_cap_req"), self.value("proc_mem_tier2_cap_req"))
        for execution in [self.execution] if self.execution else _GUESSES:
            kinds = memory_by_kind(self.stats, execution, self._blocks)
            sums = (sum(tier.values()) for tier in kinds)
            if all(math.isclose(s, n, rel_tol=_SAME) for s, n in zip(sums, needed, strict=True)):
                return kinds
        here, away = needed
        return {EVERYTHING: here}, {EVERYTHING: away} if away else {}

    @property
    def _blocks(self) -> float:
        """Blocks of the most loaded stage: two, whose weights stay when offloaded, and those whose weights do not."""
        beyond = self.value("weight_space") - self.value("weight_space_with_offload")
        return round(2 + beyond / (self.value("block_weight_space") or 1.0))


_GUESSES = tuple(
    {"activation_recompute": recompute, **dict.fromkeys(_OFFLOADS, False)}
    for recompute in ("none", "full")
)
"""Executions that a file of statistics may be of, when nothing is offloaded."""
