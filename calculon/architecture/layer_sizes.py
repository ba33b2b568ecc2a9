"""The columns that size the layers of a block: choices are scalars, sizes are arrays."""

from collections.abc import Mapping
from dataclasses import field, fields, replace

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Fraction
from calculon.declarations.axes import AXIS, FURTHER_AXES, FURTHER_SIZES


def _one_rank() -> dict[str, Array]:
    """Return degrees and networks of further axes of one rank."""
    found: dict[str, Array] = {}
    for axis in FURTHER_AXES:
        found |= {axis.degree: np.ones(1), axis.network: np.zeros(1, np.int64)}
        found |= {axis.inner: np.zeros(1)} if axis.inner else {}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Columns that size the layers of a block; all of shape ``(blocks,)``.

    Attributes:
        tensor_par: Tensor-parallel degree.
        microbatch_size: Sequences per microbatch.
        tensor_par_net: Network of the tensor-parallel groups.
        vocab_pad_multiple: Multiple that the vocabulary on each tensor-parallel rank is filled up to.
        seq_length: Tokens per sequence; 0 where it is the model's own (:mod:`calculon.architecture.workload`).
        recompute_every: Of so many blocks one recomputes.
        recompute_blocks: How many of them do; 0: one.
        tp_hidden_percent: Share that cut products hide of what they could hide of their collectives, in percent.
        moe_imbalance_percent: Rows of the busiest rank of a group of experts, in percent of the mean.
        moe_capacity_percent: Most rows of an expert, in percent of the mean; 0 for no bound.
        cp_a2a_size: Ranks that exchange heads, where other ranks of a context-parallel group are in a ring.
        packed_percent: Tokens of the document that a token is in, in percent of a sequence.
        pack_imbalance_percent: Work of attention over packed sequences on the slowest rank, in percent of the mean.
        further: Degrees (float) and networks (int) of further axes, by field; by default one rank.
    """

    tensor_par: Count
    microbatch_size: Count
    tensor_par_net: Array
    vocab_pad_multiple: Count
    seq_length: Count
    recompute_every: Count = field(default_factory=lambda: np.ones(1))
    recompute_blocks: Count = field(default_factory=lambda: np.zeros(1))
    tp_hidden_percent: Count = field(default_factory=lambda: np.full(1, 100.0))
    moe_imbalance_percent: Count = field(default_factory=lambda: np.full(1, 100.0))
    moe_capacity_percent: Count = field(default_factory=lambda: np.zeros(1))
    cp_a2a_size: Count = field(default_factory=lambda: np.zeros(1))
    packed_percent: Count = field(default_factory=lambda: np.full(1, 100.0))
    pack_imbalance_percent: Count = field(default_factory=lambda: np.full(1, 100.0))
    further: Mapping[str, Array] = field(default_factory=_one_rank)

    @classmethod
    def of(cls, rows: Array) -> "Sizes":
        """Make sizes of rows of whole numbers, one column for each of :data:`SIZE_FIELDS`."""
        columns = {
            name: rows[:, i] if name.endswith("_net") else rows[:, i].astype(float)
            for i, name in enumerate(SIZE_FIELDS)
        }
        further = {name: columns.pop(name) for name in FURTHER_SIZES}
        return cls(**columns, further=further)

    def row(self, number: int) -> tuple[float, ...]:
        """Return a row, in the order of :data:`SIZE_FIELDS`."""
        columns = (getattr(self, name) for name in _OWN)
        return tuple([float(c[number]) for c in (*columns, *self.further.values())])

    def halved(self) -> "Sizes":
        """Return the sizes of half a microbatch."""
        return replace(self, microbatch_size=self.microbatch_size / 2)

    def degree(self, axis: str) -> Count:
        """Return the ranks of a group of one of :data:`~calculon.declarations.axes.LAYER_AXES`."""
        return self.tensor_par if axis == "tp" else self.further[AXIS[axis].degree]

    def network(self, axis: str) -> Array:
        """Return the stated network of its groups."""
        return self.tensor_par_net if axis == "tp" else self.further[AXIS[axis].network]

    @property
    def context_par(self) -> Count:
        """Ranks of a group that have parts of the same sequences."""
        return self.further["context_par"]

    def exchanging(self, cp_comm: str) -> Count:
        """Ranks of a context-parallel group that exchange heads among each other; 1 where they do not."""
        if cp_comm == "a2a_p2p":
            return np.maximum(self.cp_a2a_size, 1.0)
        return self.context_par if cp_comm == "a2a" else np.ones_like(self.context_par)

    @property
    def expert_par(self) -> Count:
        """Ranks of a group that share the experts."""
        return self.further["expert_par"]

    @property
    def expert_tensor_par(self) -> Count:
        """Ranks that share the width of each expert: those of tensor parallelism where nothing is stated."""
        stated = self.further["expert_tensor_par"]
        return np.where(stated > 0, stated, self.tensor_par)

    @property
    def _capacity(self) -> Fraction:
        """Most rows of an expert, as a share of the mean."""
        percent = self.moe_capacity_percent
        return np.where(percent > 0, percent / 100, np.inf)

    def load(self, padded: bool) -> Fraction:
        """Rows of the busiest rank over the mean: as they come, at most the capacity, or `padded` to it.

        Source: Megatron-LM, ``moe/moe_utils.py``, ``topk_softmax_with_capacity``: each rank keeps of its rows for an
        expert the mean of its own times the factor, or fills them up.
        """
        if padded:
            return self._capacity
        return np.minimum(self.moe_imbalance_percent / 100, self._capacity)

    def kept_share(self, padded: bool) -> Fraction:
        """Rows that a rank sends over those of all its tokens, none of whose experts are preferred."""
        return self._capacity if padded else np.minimum(1.0, self._capacity)


_OWN = tuple(one.name for one in fields(Sizes) if one.name != "further")

SIZE_FIELDS = (*_OWN, *FURTHER_SIZES)
"""Numbers of an execution that size a block, in the order of :class:`Sizes`."""
