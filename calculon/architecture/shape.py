"""Sizes of layers: the workload of a pass, what a segment shares, and the columns of each layer."""

from collections.abc import Mapping
from dataclasses import field, fields, replace

import numpy as np

from calculon.architecture.layer import Widths
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Elements, Fraction
from calculon.declarations.axes import AXIS, FURTHER_AXES, FURTHER_SIZES
from calculon.declarations.model import Model
from calculon.declarations.recipes import Recipe
from calculon.declarations.scope_choices import LayoutChoice
from calculon.editions.edition import Edition

# The columns that size the layers of a block: choices are scalars, sizes are arrays.


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
        seq_length: Tokens per sequence; 0 where it is the model's own (:mod:`calculon.architecture.shape`).
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


# The workload of one pass over a microbatch: sequences, and of each its queries and keys.
#
# Training passes over whole sequences, whose tokens are queries and keys alike. Of context-parallel ranks each has the
# queries of a part of every sequence, and attends to the keys of all of it. Source: Liu et al., *Ring Attention*, arXiv
# 2310.01889, section 3; Jacobs et al., *DeepSpeed Ulysses*, arXiv 2309.14509, section 3.


def sequence_lengths(model: Model, seq_length: Array) -> Count:
    """Return tokens per sequence for a column of the execution field ``seq_length``, where 0 is the model's own."""
    return np.where(seq_length > 0, seq_length, float(model.seq_size))


def document_lengths(seq_length: Count, packed_percent: Array | int) -> Count:
    """Return tokens of the document that a token is in, on average over the tokens; one at least.

    Documents of ``l`` tokens that fill sequences of ``s`` have ``packed_percent = 100 sum(l^2) / (sum(l) s)``.
    Source: attention of packed sequences is work of ``sum(l^2)``: Megatron-LM, ``training.py``,
    ``num_floating_point_operations`` with lengths of sequences.
    """
    return np.maximum(1.0, seq_length * packed_percent / 100)


@dataclass(frozen=True, slots=True)
class Workload:
    """One pass over a microbatch; all of shape ``(blocks,)``.

    Attributes:
        sequences: Sequences of the microbatch.
        queries: Tokens of each that pass through the layers of a rank: its part, where context parallelism splits
            sequences.
        keys: Tokens of each that can be attended to.
    """

    sequences: Count
    queries: Count
    keys: Count

    @classmethod
    def of_whole_sequences(cls, model: Model, sizes: Sizes) -> "Workload":
        """Make the workload of passes over whole sequences."""
        length = sequence_lengths(model, sizes.seq_length)
        queries = length / sizes.context_par
        return cls(sequences=sizes.microbatch_size, queries=queries, keys=length)

    @property
    def tokens(self) -> Count:
        """Tokens of the microbatch that pass through the layers."""
        return self.sequences * self.queries


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A block of a model in one layout, for a column of sizes.

    ``tokens`` is per microbatch, ``workload`` says of which sequences; ``activation`` is the elements of a full
    activation and ``residual`` of one in the residual region, which sequence parallelism splits; ``dtype_bytes`` is
    bytes per element of the residual stream and of stored weights, ``widths`` those of operands and results of
    products, and ``overlapped`` whether tensor-parallel collectives overlap their products. ``recipe`` is how operands
    of fewer than 16 bits are made.
    """

    model: Model
    choice: LayoutChoice
    edition: Edition
    tensor_par: Count
    workload: Workload
    tokens: Count
    activation: Elements
    residual: Elements
    dtype_bytes: int
    widths: Widths
    overlapped: bool
    sizes: Sizes
    recipe: Recipe | None

    @classmethod
    def of(
        cls,
        model: Model,
        choice: LayoutChoice,
        sizes: Sizes,
        edition: Edition,
        *,
        transposes: bool = True,
    ) -> "BlockShape":
        """Derive the shared sizes; `transposes` says whether the machine needs transposed copies of 8-bit operands."""
        workload = Workload.of_whole_sequences(model, sizes)
        tokens = workload.tokens
        activation = tokens * model.hidden
        residual = activation
        if choice.sequence_parallel:
            residual = np.floor(tokens / sizes.tensor_par) * model.hidden
        return cls(
            model=model,
            choice=choice,
            edition=edition,
            tensor_par=sizes.tensor_par,
            workload=workload,
            tokens=tokens,
            activation=activation,
            residual=residual,
            dtype_bytes=choice.dtype_bytes,
            widths=Widths(
                choice.dtype_bytes,
                choice.operand_bytes,
                choice.result_bytes,
                0 if choice.recipe is None else choice.recipe.weight,
            ),
            overlapped=choice.overlapped,
            sizes=sizes,
            recipe=choice.recipe_on(transposes=transposes),
        )

    def degree(self, axis: str) -> Count:
        """Return the degree along one of :data:`~calculon.declarations.axes.LAYER_AXES`."""
        return self.sizes.degree(axis)

    @property
    def document(self) -> Count:
        """Tokens of the document that a token is in: of all of a sequence, unless several are packed into one."""
        return document_lengths(self.workload.keys, self.sizes.packed_percent)

    @property
    def whole(self) -> bool:
        """Whether this is a whole block, with norms, dropout and residual connections, and not a part of one."""
        return self.model.part == "block"

    @property
    def attention_width(self) -> int:
        """Width of all query heads."""
        return self.model.attn_heads * self.model.attn_size

    @property
    def query_width(self) -> int:
        """Width of the projection of all query heads: with a gate as wide again."""
        return self.attention_width * (2 if self.model.attention_gate else 1)

    @property
    def value_width(self) -> int:
        """Width of the outputs of all heads, which the output projection reads."""
        return self.model.attn_heads * self.model.value_size

    @property
    def local(self) -> "BlockShape":
        """The shape of what each rank does with its own tokens in the residual region."""
        tokens = self.residual / self.model.hidden
        return replace(self, tokens=tokens, activation=self.residual)

    @property
    def key_value_width(self) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor."""
        return self.edition.key_value_width(self.model, self.choice, self.tensor_par)

    @property
    def narrow(self) -> bool:
        """Whether operands of products are narrower than stored tensors, and have to be converted."""
        return self.widths.operand < self.widths.stored

    @property
    def gathered_layouts(self) -> int:
        """Layouts in which gradients are gathered: both, where the second is not made of the first."""
        return 2 if self.recipe is not None and self.recipe.separate else 1

    @property
    def local_experts(self) -> Count:
        """Experts of a rank."""
        return self.model.num_experts / self.sizes.expert_par

    @property
    def own_rows(self) -> Count:
        """Rows of the tokens of this rank in the residual region: one for each expert of a token that has room."""
        tokens = self.residual / self.model.hidden
        return (
            self.model.experts_per_token
            * tokens
            * self.sizes.kept_share(self.choice.moe_pad_to_capacity)
        )

    @property
    def received_rows(self) -> Count:
        """Rows that the busiest rank has from all ranks with other experts: by as much more than its own."""
        tokens = self.residual / self.model.hidden
        return (
            self.model.experts_per_token * tokens * self.sizes.load(self.choice.moe_pad_to_capacity)
        )

    @property
    def rows(self) -> Count:
        """Rows of the experts of the busiest rank: of all ranks that have a part of these experts."""
        ranks = self.sizes.expert_tensor_par / self.tensor_par  # whose tokens are apart
        rows = self.model.experts_per_token * (self.tokens * ranks)
        return rows * self.sizes.load(self.choice.moe_pad_to_capacity)

    @property
    def expert_tokens(self) -> Count:
        """Tokens of all ranks that have all experts once."""
        ranks = self.sizes.expert_par * (self.sizes.expert_tensor_par / self.tensor_par)
        return self.tokens * ranks

    @property
    def expert_width(self) -> Elements:
        """Inner width of an expert on one rank."""
        return np.floor(self.model.inner_width / self.sizes.expert_tensor_par)

    @property
    def mlp_products(self) -> int:
        """Column-split products of the MLP: two with a gate."""
        return 2 if self.model.gated else 1

    def split(self, width: float) -> Elements:
        """Return the share of a width that one tensor-parallel rank holds."""
        return np.floor(width / self.tensor_par)

    @property
    def vocab_rows(self) -> Elements:
        """Rows of the vocabulary on one tensor-parallel rank: equal shares, filled up to a multiple.

        Source: Megatron-LM, ``--make-vocab-size-divisible-by``.
        """
        multiple = self.sizes.vocab_pad_multiple
        return np.ceil(self.model.vocab / (multiple * self.tensor_par)) * multiple
