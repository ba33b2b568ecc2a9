"""What the page of an estimate is made of, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Stats = Mapping[str, float | None]

PUBLISHED = "sc23"
"""The edition of what does not name one."""

KINDS_OF_MEMORY = (
    "weights",
    "activations",
    "checkpoints",
    "activation gradients",
    "weight gradients",
    "optimizer state",
    "gathered weights",
    "gradients being reduced",
    "reserved",
)

_BUFFERS = ("gathered_space", "comm_buffer_space", "reserved_space")
"""Statistics of the last three, which only the corrected edition has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A network: bandwidth per endpoint in B/s, achieved share of it, and endpoints."""

    bandwidth: float
    efficiency: float
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A system: peak matrix rate in FLOP/s, capacity (B) and bandwidth (B/s) of both tiers, networks."""

    name: str
    peak: float
    capacities: tuple[float, float]
    bandwidths: tuple[float, float]
    links: tuple[Link, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One estimate.

    Attributes
    ----------
    name : str
        Name of the model.
    parameters : int
        How many it has.
    model, execution : mapping
        Their fields, as in files: optional ones only where they differ from their default.
    machine : Machine
        The system.
    networks : mapping
        Number of the network of each degree of parallelism; the outermost, where groups span several.
    edition : str
        Edition of the cost model.
    stats : mapping
        The statistics: the published ones, and those that only the edition has.
    layers : sequence of mapping, or None
        The layers of a block.
    stages : sequence of mapping, or None
        Time and memory of each of several pipeline stages.
    interval : mapping, or None
        Where the iteration time is expected, when the system was calibrated.
    groups : sequence of mapping
        The groups of ranks that work together, as in the results of an estimate.
    """

    name: str
    parameters: int
    model: Mapping[str, Any]
    execution: Mapping[str, Any]
    machine: Machine
    networks: Mapping[str, int]
    edition: str
    stats: Stats
    layers: Sequence[Mapping[str, Any]] | None = None
    stages: Sequence[Mapping[str, Any]] | None = None
    interval: Mapping[str, Any] | None = None
    groups: Sequence[Mapping[str, Any]] = ()

    def value(self, name: str) -> float:
        """Return a statistic; one without a value, or of another edition, counts as 0."""
        return self.stats.get(name) or 0.0

    @property
    def seq_length(self) -> int:
        """Tokens per sequence: those that the execution states, or the model's own."""
        return int(self.execution.get("seq_length") or self.model["seq_size"])

    @property
    def blocks(self) -> int:
        """Blocks of the most loaded pipeline stage."""
        if self.stages is not None:
            return max(int(stage["blocks"]) for stage in self.stages)
        return -(-int(self.model["num_blocks"]) // int(self.execution["pipeline_par"]))

    @property
    def replica_batch(self) -> int:
        """Sequences that one replica works on."""
        return int(self.execution["batch_size"]) // int(self.execution["data_par"])

    @property
    def microbatches(self) -> int:
        """Microbatches of a batch in one pipeline."""
        return self.replica_batch // int(self.execution["microbatch_size"])

    def memory(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return bytes in tier 1 and in tier 2 by kind: see :func:`memory_by_kind`."""
        return memory_by_kind(self.stats, self.execution, self.blocks)


def memory_by_kind(
    stats: Stats, execution: Mapping[str, Any], blocks: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return bytes in tier 1 and in tier 2 by kind; they add up to the capacity that each tier needs.

    What blocks offload lives in tier 2; tier 1 keeps room for the blocks at work, and all of embedding and head.

    Parameters
    ----------
    stats, execution : mapping
        The statistics, and the fields of the execution.
    blocks : float
        Blocks of the most loaded pipeline stage.
    """
    full = execution["activation_recompute"] == "full"
    moved = {
        "weight_space": execution["weight_offload"],
        "act_space": execution["activations_offload"],
        "act_checkpoint_size": execution["activations_offload"],
        "act_grad_space": execution[
            "activations_offload"
        ],  # the working set that stays is another one
        "weight_grad_space": execution["optimizer_offload"],
        "optimizer_space": execution["optimizer_offload"],
    }
    here = {n: stats[f"{n}_with_offload" if gone else n] or 0.0 for n, gone in moved.items()}
    if not full:
        here["act_checkpoint_size"] = 0.0
    here |= {name: stats.get(name) or 0.0 for name in _BUFFERS}
    away = dict.fromkeys((*moved, *_BUFFERS), 0.0)
    for name in ("weight", "weight_grad", "optimizer"):
        if moved[f"{name}_space"]:
            away[f"{name}_space"] = (stats[f"block_{name}_space"] or 0.0) * blocks
    if execution["activations_offload"]:
        rest = (stats["proc_mem_tier2_cap_req"] or 0.0) - sum(away.values())
        away["act_checkpoint_size" if full else "act_space"] = max(0.0, rest)
    return (
        dict(zip(KINDS_OF_MEMORY, here.values(), strict=True)),
        dict(zip(KINDS_OF_MEMORY, away.values(), strict=True)),
    )
