"""Recipes of training with narrow products: what operands are, how they are made, and what stays of them.

Weights, norms, the core of attention, the residual stream, embedding, head, routers, gradients between operators, their
sums and the state of the optimizer keep their types under every recipe; only operands of products with weights of
blocks are narrow. Source: NVIDIA, *Transformer Engine* documentation, low precision training; DeepSeek-V3, arXiv
2412.19437, section 3.3.1; *Pretraining LLMs with NVFP4*, arXiv 2509.25149.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

NO_RECIPE: Final = "none"

FLOAT8, FLOAT4 = "float8", "float4"
"""Types of the arithmetic of recipes."""

FLOAT4_BYTES: Final = 0.5
"""Bytes of an operand element, its scale apart."""


class Recipe(NamedTuple):
    """A recipe of narrow products.

    Attributes:
        product: Type of the arithmetic.
        operand, weight: Bytes per element of an activation or gradient, and of a weight, with their scales.
        layouts: Copies of an operand: products of gradients read it along its other side.
        separate: The second copy is made of 16 bits, since scales are of blocks along one side; not of the first one.
        measured: Tensors are read once more before, for their largest value.
        rotated: Second copies of inputs and of gradients, the operands of gradients of weights, are rotated (random
            Hadamard transform of 16 points), by a kernel that reads the tensor again.
        squares: Scales of weights are of squares, so that the second copy of a weight is the first one transposed.
        promoted: Sums of so many terms as share a scale are added up in 32 bits in every pass, not in those of
            gradients alone.
        joined: Policies of fusion under which norms write operands.
        weight_layouts: Copies of a weight.
        cached: Copies of weights are made once for all microbatches; not in each.
    """

    product: str
    operand: float
    weight: float
    layouts: int = 2
    separate: bool = False
    measured: bool = False
    rotated: bool = False
    squares: bool = False
    promoted: bool = False
    joined: tuple[str, ...] = ()
    weight_layouts: int = 2
    cached: bool = True

    def on(self, *, transposes: bool) -> "Recipe":
        """Return the recipe on a machine that `transposes` operands, or reads them along either side as they are.

        Blocks of scales lie along one side, whatever the machine: then there are two copies on all.
        """
        return self if transposes or self.separate else self._replace(layouts=1, weight_layouts=1)

    @property
    def copies(self) -> float:
        """Bytes of all copies of a weight, per element."""
        return self.weight_layouts * self.weight

    def conversion(self, stored: float) -> float:
        """Return the bytes per element that making the copies of a weight moves, which is stored in so many."""
        return (2 if self.measured else 1) * stored + self.copies

    def gathered(self, stored: float) -> tuple[float, float]:
        """Return bytes per element in which narrow weights are gathered, and that making the copies of them moves.

        A layout is gathered as it is multiplied, and the other transposed of it, if there is one. Scales of blocks
        along one side (mxfp8) let neither layout be made of the other: both are made of weights gathered as stored.
        Those of squares (blockwise) are the same either way. Source: Megatron-LM, ``--fp8-param-gather`` and
        ``--reuse-grad-buf-for-mxfp8-param-ag``; Transformer Engine documentation, *FP8 Blockwise Scaling*.
        """
        if self.separate and not self.squares:
            return stored, self.conversion(stored)
        return self.weight, 2 * self.weight * (self.weight_layouts - 1)


COMPILED = ("compile", "max")
"""Policies of fusion that join elementwise chains."""

RECIPES: Mapping[str, Recipe] = {
    "delayed": Recipe(FLOAT8, 1, 1, joined=COMPILED),
    "tensorwise": Recipe(FLOAT8, 1, 1, measured=True),
    "blockwise": Recipe(
        FLOAT8,
        1 + 4 / 128,
        1 + 4 / 128**2,
        separate=True,
        squares=True,
        promoted=True,
        joined=("max",),
    ),
    "mxfp8": Recipe(FLOAT8, 1 + 1 / 32, 1 + 1 / 32, separate=True, joined=("max",)),
    "nvfp4": Recipe(
        FLOAT4,
        FLOAT4_BYTES + 1 / 16,
        FLOAT4_BYTES + 1 / 16,
        separate=True,
        measured=True,
        rotated=True,
        squares=True,
    ),
}
"""Recipes of Transformer Engine by the names of Megatron-LM.

``delayed`` has factors of the largest values of steps before, ``tensorwise`` of the tensor itself. ``blockwise`` has a
scale of 4 bytes for 128 values, and for squares of 128 of weights; ``mxfp8`` one of a byte for 32 values; ``nvfp4`` one
of a byte for 16 values, and one for the tensor, whose largest value is therefore measured. Gradients of ``nvfp4`` are
rounded stochastically, by instructions of their own, which moves no bytes.

Source: Transformer Engine documentation, *FP8 Blockwise Scaling*, *MXFP8*, *NVFP4*; its
``pytorch/csrc/quantizer.cpp``: ``nvte_hadamard_transform_amax`` reads a tensor for both largest values, then one kernel
makes rows and ``nvte_hadamard_transform_cast_fusion_columnwise`` another the columns.
"""

PRODUCTS_IN_FLOAT8: Mapping[str, Recipe] = {
    "delayed": RECIPES["delayed"]._replace(weight_layouts=1, cached=False),
    "current": RECIPES["tensorwise"]._replace(weight_layouts=1, cached=False),
}
"""What ``matmul_dtype`` float8 alone means, by ``float8_scaling``.

The same kernels, but that copies of weights are made in every microbatch, in one layout, as torchao has them, and
operands in both on every machine.
"""

MODULES_WITHOUT: Mapping[str, tuple[str, ...]] = {"delayed": ("norm", "moe_act")}
"""Modules that are not computed again under a recipe: factors of steps before would be counted twice.

Source: Megatron-LM, ``core/transformer/transformer_config.py``: delayed scaling excludes modules whose outputs are
discarded.
"""

GATHERED = ("delayed", "tensorwise", "blockwise", "mxfp8")
"""Recipes with which weights themselves can be kept narrow (Megatron-LM, ``--fp8-param-gather``)."""
