"""The sizes that the layers of a segment share."""

import numpy as np

from calculon.architecture.layer import Widths
from calculon.architecture.layer_sizes import Sizes
from calculon.architecture.workload import Workload
from calculon.editions.edition import Edition
from calculon.frozen import dataclass
from calculon.spec.model import Model
from calculon.spec.scope_choices import LayoutChoice
from calculon.units import Count, Elements


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A block of a model in one layout, for a column of sizes.

    ``tokens`` is per microbatch, ``workload`` says of which sequences; ``activation`` is the elements of a full
    activation and ``residual`` of one in the residual region, which sequence parallelism splits; ``dtype_bytes`` is
    bytes per element of the residual stream and of stored weights, ``widths`` those of operands and results of
    products, and ``overlapped`` whether tensor-parallel collectives overlap their products.
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

    @classmethod
    def of(cls, model: Model, choice: LayoutChoice, sizes: Sizes, edition: Edition) -> "BlockShape":
        """Derive the shared sizes."""
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
            widths=Widths(choice.dtype_bytes, choice.operand_bytes, choice.result_bytes),
            overlapped=choice.overlapped,
            sizes=sizes,
        )

    def degree(self, axis: str) -> Count:
        """Return the degree along one of :data:`~calculon.spec.axes.LAYER_AXES`."""
        return self.sizes.degree(axis)

    @property
    def whole(self) -> bool:
        """Whether this is a whole block, with norms, dropout and residual connections, and not a part of one."""
        return self.model.part == "block"

    @property
    def attention_width(self) -> int:
        """Width of all query heads."""
        return self.model.attn_heads * self.model.attn_size

    @property
    def key_value_width(self) -> Elements | int:
        """Width of the key projection (and of the value projection) on one processor."""
        return self.edition.key_value_width(self.model, self.choice, self.tensor_par)

    @property
    def narrow(self) -> bool:
        """Whether operands of products are narrower than stored tensors, and have to be converted."""
        return self.widths.operand < self.widths.stored

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
