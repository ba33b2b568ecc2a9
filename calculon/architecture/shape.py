"""Sizes of layers: workload of a pass, sizes that a segment shares, and the columns of each layer."""

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

# Columns that size the layers of a block: choices are scalars, sizes are arrays.


def _one_rank() -> dict[str, Array]:
    """Return degrees and networks of further axes for a single rank."""
    result: dict[str, Array] = {}
    for axis in FURTHER_AXES:
        result |= {axis.degree: np.ones(1), axis.network: np.zeros(1, np.int64)}
        result |= {axis.inner: np.zeros(1)} if axis.inner else {}
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Columns that size the layers of a block; all of shape ``(blocks,)``.

    Attributes:
        tensor_par: Tensor-parallel degree.
        microbatch_size: Sequences per microbatch.
        tensor_par_net: Network of the tensor-parallel groups.
        vocab_pad_multiple: Multiple to which the vocabulary of each tensor-parallel rank is padded.
        seq_length: Tokens per sequence; 0 for the model's own length.
        recompute_every: Number of blocks of which ``recompute_blocks`` recompute.
        recompute_blocks: Number of recomputing blocks among them; 0: one.
        tp_hidden_percent: Percentage of the hideable collective time that tiled products actually hide.
        moe_imbalance_percent: Rows of the busiest rank of an expert group, in percent of the mean.
        moe_capacity_percent: Largest number of rows of an expert, in percent of the mean; 0 for no limit.
        cp_a2a_size: Number of ranks that exchange heads, if the ranks of a context-parallel group also form rings.
        packed_percent: Mean length of a token's document, in percent of a sequence.
        pack_imbalance_percent: Attention work over packed sequences on the slowest rank, in percent of the mean.
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
        """Return sizes for rows of integers, with one column for each of :data:`SIZE_FIELDS`."""
        columns = {
            name: rows[:, i] if name.endswith("_net") else rows[:, i].astype(float)
            for i, name in enumerate(SIZE_FIELDS)
        }
        further = {name: columns.pop(name) for name in FURTHER_SIZES}
        return cls(**columns, further=further)

    def row(self, number: int) -> tuple[float, ...]:
        """Return a row in the order of :data:`SIZE_FIELDS`."""
        columns = (getattr(self, name) for name in _OWN)
        return tuple([float(c[number]) for c in (*columns, *self.further.values())])

    def halved(self) -> "Sizes":
        """Return the sizes of half a microbatch."""
        return replace(self, microbatch_size=self.microbatch_size / 2)

    def degree(self, axis: str) -> Count:
        """Return the degree along one of :data:`~calculon.declarations.axes.LAYER_AXES`."""
        return self.tensor_par if axis == "tp" else self.further[AXIS[axis].degree]

    def network(self, axis: str) -> Array:
        """Return the stated network along one of these axes."""
        return self.tensor_par_net if axis == "tp" else self.further[AXIS[axis].network]

    @property
    def context_par(self) -> Count:
        """Context-parallel degree: ranks with parts of the same sequences."""
        return self.further["context_par"]

    def exchanging(self, cp_comm: str) -> Count:
        """Return the number of context-parallel ranks that exchange heads with each other; 1 without an exchange."""
        if cp_comm == "a2a_p2p":
            return np.maximum(self.cp_a2a_size, 1.0)
        return self.context_par if cp_comm == "a2a" else np.ones_like(self.context_par)

    @property
    def expert_par(self) -> Count:
        """Expert-parallel degree: ranks that share the experts."""
        return self.further["expert_par"]

    @property
    def expert_tensor_par(self) -> Count:
        """Number of ranks that divide the width of each expert; by default the tensor-parallel degree."""
        stated = self.further["expert_tensor_par"]
        return np.where(stated > 0, stated, self.tensor_par)

    @property
    def _capacity(self) -> Fraction:
        """Largest number of rows of an expert, as a fraction of the mean."""
        percent = self.moe_capacity_percent
        return np.where(percent > 0, percent / 100, np.inf)

    def load(self, padded: bool) -> Fraction:
        """Return the rows of the busiest rank over the mean: limited by the capacity, or `padded` to it.

        Source: Megatron-LM, ``moe/moe_utils.py``, ``topk_softmax_with_capacity``: each rank keeps its rows for an
        expert up to the factor times its own mean, or pads them to this number.
        """
        if padded:
            return self._capacity
        return np.minimum(self.moe_imbalance_percent / 100, self._capacity)

    def kept_share(self, padded: bool) -> Fraction:
        """Return the fraction of rows that a rank sends, for uniformly routed tokens."""
        return self._capacity if padded else np.minimum(1.0, self._capacity)


_OWN = tuple(one.name for one in fields(Sizes) if one.name != "further")

SIZE_FIELDS = (*_OWN, *FURTHER_SIZES)
"""Numbers of an execution that size a block, in the order of :class:`Sizes`."""


# Workload of one pass over a microbatch: sequences, and the queries and keys of each.
#
# Training passes over whole sequences, whose tokens are both queries and keys. Each context-parallel rank has the
# queries of a part of every sequence, and attends to the keys of the whole sequence. Source: Liu et al., *Ring
# Attention*, arXiv 2310.01889, section 3; Jacobs et al., *DeepSpeed Ulysses*, arXiv 2309.14509, section 3.


def sequence_lengths(model: Model, seq_length: Array) -> Count:
    """Return the tokens per sequence for values of the execution field ``seq_length``; 0 is the model's own length."""
    return np.where(seq_length > 0, seq_length, float(model.seq_size))


def document_lengths(seq_length: Count, packed_percent: Array | int) -> Count:
    """Return the mean length of a token's document, at least 1 token.

    For documents of ``l`` tokens that fill sequences of ``s`` tokens, ``packed_percent = 100 sum(l^2) / (sum(l) s)``.
    Source: attention of packed sequences takes work of ``sum(l^2)``: Megatron-LM, ``training.py``,
    ``num_floating_point_operations`` with lengths of sequences.
    """
    return np.maximum(1.0, seq_length * packed_percent / 100)


@dataclass(frozen=True, slots=True)
class Workload:
    """Pass over a microbatch; all of shape ``(blocks,)``.

    Attributes:
        sequences: Sequences of the microbatch.
        queries: Tokens of each sequence in the layers of a rank: a part of it with context parallelism.
        keys: Tokens of each sequence that can be attended to.
    """

    sequences: Count
    queries: Count
    keys: Count

    @classmethod
    def of_whole_sequences(cls, model: Model, sizes: Sizes) -> "Workload":
        """Return the workload of passes over whole sequences."""
        length = sequence_lengths(model, sizes.seq_length)
        queries = length / sizes.context_par
        return cls(sequences=sizes.microbatch_size, queries=queries, keys=length)

    @property
    def tokens(self) -> Count:
        """Tokens of the microbatch in the layers of a rank."""
        return self.sequences * self.queries


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """Block of a model in one layout, for a column of sizes.

    ``tokens`` is per microbatch, and ``workload`` describes its sequences; ``activation`` is the elements of a full
    activation and ``residual`` of one in the residual region, which sequence parallelism divides; ``dtype_bytes`` is
    bytes per element of the residual stream and of stored weights, ``widths`` of operands and results of products, and
    ``overlapped`` is True if tensor-parallel collectives overlap with their products. ``recipe`` is the conversion of
    operands narrower than 16 bits.
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
        """Return the shape with derived sizes; `transposes` is True if the machine needs transposed 8-bit operands."""
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
        """Mean length of a token's document: the whole sequence, unless several documents are packed into one."""
        return document_lengths(self.workload.keys, self.sizes.packed_percent)

    @property
    def whole_block(self) -> bool:
        """True for a whole block, with norms, dropout and residual connections; False for a part of one."""
        return self.model.part == "block"

    @property
    def attention_width(self) -> int:
        """Width of all query heads."""
        return self.model.attn_heads * self.model.attn_size

    @property
    def query_width(self) -> int:
        """Width of the projection of all query heads; twice as wide with a gate."""
        return self.attention_width * (2 if self.model.attention_gate else 1)

    @property
    def value_width(self) -> int:
        """Width of the outputs of all heads, which the output projection reads."""
        return self.model.attn_heads * self.model.value_size

    @property
    def local(self) -> "BlockShape":
        """Shape of layers that process each rank's own tokens in the residual region."""
        tokens = self.residual / self.model.hidden
        return replace(self, tokens=tokens, activation=self.residual)

    @property
    def key_value_width(self) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor."""
        return self.edition.key_value_width(self.model, self.choice, self.tensor_par)

    @property
    def narrow(self) -> bool:
        """True if operands of products are narrower than stored tensors, and must be converted."""
        return self.widths.operand < self.widths.stored

    @property
    def gathered_layouts(self) -> int:
        """Number of layouts in which gradients are gathered: two, if the second cannot be created from the first."""
        return 2 if self.recipe is not None and self.recipe.separate else 1

    @property
    def local_experts(self) -> Count:
        """Number of experts on a rank."""
        return self.model.num_experts / self.sizes.expert_par

    @property
    def own_rows(self) -> Count:
        """Rows of this rank's tokens in the residual region: one for each expert of a token within its capacity."""
        tokens = self.residual / self.model.hidden
        return (
            self.model.experts_per_token
            * tokens
            * self.sizes.kept_share(self.choice.moe_pad_to_capacity)
        )

    @property
    def received_rows(self) -> Count:
        """Rows that the busiest rank receives from all ranks with other experts."""
        tokens = self.residual / self.model.hidden
        return (
            self.model.experts_per_token * tokens * self.sizes.load(self.choice.moe_pad_to_capacity)
        )

    @property
    def rows(self) -> Count:
        """Rows of the experts of the busiest rank, from all ranks that have parts of these experts."""
        # Ranks of other tensor groups have other tokens
        ranks = self.sizes.expert_tensor_par / self.tensor_par
        rows = self.model.experts_per_token * (self.tokens * ranks)
        return rows * self.sizes.load(self.choice.moe_pad_to_capacity)

    @property
    def expert_tokens(self) -> Count:
        """Tokens of all ranks that together hold all experts once."""
        ranks = self.sizes.expert_par * (self.sizes.expert_tensor_par / self.tensor_par)
        return self.tokens * ranks

    @property
    def expert_width(self) -> Elements:
        """Inner width of an expert on one rank."""
        return np.floor(self.model.inner_width / self.sizes.expert_tensor_par)

    @property
    def mlp_products(self) -> int:
        """Number of column-split products of the MLP: two with a gate."""
        return 2 if self.model.gated else 1

    def split(self, width: float) -> Elements:
        """Return the share of a width on one tensor-parallel rank."""
        return np.floor(width / self.tensor_par)

    @property
    def vocab_rows(self) -> Elements:
        """Rows of the vocabulary on one tensor-parallel rank: equal shares, padded to a multiple.

        Source: Megatron-LM, ``--make-vocab-size-divisible-by``.
        """
        multiple = self.sizes.vocab_pad_multiple
        return np.ceil(self.model.vocab / (multiple * self.tensor_par)) * multiple
