"""The sizes that the layers of a segment share."""

from dataclasses import replace

import numpy as np

from calculon.architecture.layer import Widths
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.workload import Workload, document_lengths
from calculon.base.frozen import dataclass
from calculon.base.units import Count, Elements
from calculon.declarations.model import Model
from calculon.declarations.recipes import Recipe
from calculon.declarations.scope_choices import LayoutChoice
from calculon.editions.edition import Edition


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
