"""Low-precision training recipes (FP8, MXFP8, NVFP4): size of operands, and cost of making and keeping them.

Under every recipe, only operands of products with block weights are narrow. Weights, norms, the attention core, the
residual stream, embedding, head, routers, gradients between operators, their sums and the optimizer state keep their
types. Source: NVIDIA, *Transformer Engine* documentation, low precision training; DeepSeek-V3, arXiv 2412.19437,
section 3.3.1; *Pretraining LLMs with NVFP4*, arXiv 2509.25149.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

NO_RECIPE: Final = "none"

FLOAT8, FLOAT4 = "float8", "float4"
"""Arithmetic types of recipes."""

FLOAT4_BYTES: Final = 0.5
"""Bytes of an operand element, without its scale."""


class Recipe(NamedTuple):
    """Recipe of low-precision products.

    Attributes:
        product: Type of the arithmetic.
        operand, weight: Bytes per element of an activation or gradient, and of a weight, including scales.
        layouts: Copies of an operand; gradient products read it along its other dimension.
        separate: The second copy is made from 16 bits rather than from the first copy, since scales cover blocks along
            one dimension.
        measured: Tensors are read once more beforehand, to find their largest value.
        rotated: The second copies of inputs and gradients (operands of weight gradients) are rotated by a random
            Hadamard transform of 16 points, in a kernel that reads the tensor again.
        squares: Scales of weights cover squares, so that the second copy of a weight is the first one transposed.
        promoted: Partial sums over blocks with one scale are accumulated in 32 bits in every pass, rather than only in
            gradient products.
        joined: Fusion policies under which norms write operands.
        weight_layouts: Copies of a weight.
        cached: Copies of weights are made once for all microbatches, rather than in each.
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
        """Return the recipe on a machine that `transposes` operands, or reads them along either dimension.

        If scales cover blocks along one dimension, every machine needs two copies.
        """
        return self if transposes or self.separate else self._replace(layouts=1, weight_layouts=1)

    @property
    def copies(self) -> float:
        """Bytes of all copies of a weight, per element."""
        return self.weight_layouts * self.weight

    def conversion(self, stored: float) -> float:
        """Return the bytes per element moved to make the copies of a weight with `stored` bytes per element."""
        return (2 if self.measured else 1) * stored + self.copies

    def gathered(self, stored: float) -> tuple[float, float]:
        """Return the bytes per element of gathered low-precision weights, and of the traffic of making their copies.

        One layout is gathered as multiplied, and the other, if any, is its transpose. With scales of blocks along one
        dimension (mxfp8), neither layout can be made from the other, so both are made from weights gathered as stored.
        Scales of squares (blockwise) serve both layouts. Source: Megatron-LM, ``--fp8-param-gather`` and
        ``--reuse-grad-buf-for-mxfp8-param-ag``; Transformer Engine documentation, *FP8 Blockwise Scaling*.
        """
        if self.separate and not self.squares:
            return stored, self.conversion(stored)
        return self.weight, 2 * self.weight * (self.weight_layouts - 1)


COMPILED = ("compile", "max")
"""Fusion policies that fuse elementwise chains."""

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
    "nvfp4_plain": Recipe(
        FLOAT4,
        FLOAT4_BYTES + 1 / 16,
        FLOAT4_BYTES + 1 / 16,
        separate=True,
        measured=True,
    ),
}
"""Recipes of Transformer Engine, with the names of Megatron-LM.

``delayed`` scales by the largest values of earlier steps, ``tensorwise`` by the largest value of the tensor itself.
``blockwise`` has a 4-byte scale per 128 values, and per 128 x 128 square of weights; ``mxfp8`` a 1-byte scale per 32
values; ``nvfp4`` a 1-byte scale per 16 values and one per tensor, which requires its largest value. Gradients of
``nvfp4`` are rounded stochastically, by dedicated instructions without memory traffic. ``nvfp4_plain`` omits rotation,
stochastic rounding and squares (``NVTE_NVFP4_DISABLE_RHT``, ``NVTE_NVFP4_DISABLE_STOCHASTIC_ROUNDING`` and
``NVTE_NVFP4_DISABLE_2D_QUANTIZATION``), as in submissions to MLPerf Training 5.1 (``config_common_fp4.sh``).

Source: Transformer Engine documentation, *FP8 Blockwise Scaling*, *MXFP8*, *NVFP4*; its
``pytorch/csrc/quantizer.cpp``: ``nvte_hadamard_transform_amax`` reads a tensor for both largest values, then one kernel
makes rows and ``nvte_hadamard_transform_cast_fusion_columnwise`` another the columns.
"""

PRODUCTS_IN_FLOAT8: Mapping[str, Recipe] = {
    "delayed": RECIPES["delayed"]._replace(weight_layouts=1, cached=False),
    "current": RECIPES["tensorwise"]._replace(weight_layouts=1, cached=False),
}
"""Meaning of ``matmul_dtype`` float8 without a recipe, by ``float8_scaling``.

The kernels are the same, except that copies of weights are made in every microbatch and in one layout, as in torchao,
and copies of operands in both layouts on every machine.
"""

MODULES_WITHOUT: Mapping[str, tuple[str, ...]] = {"delayed": ("norm", "moe_act")}
"""Modules that cannot be recomputed under a recipe, since the scaling statistics would be updated twice.

Source: Megatron-LM, ``core/transformer/transformer_config.py``: delayed scaling excludes modules whose outputs are
discarded.
"""

WITH_ATTENTION = ("delayed", "tensorwise", "mxfp8", "nvfp4", "nvfp4_plain")
"""Recipes with which attention can run in 8 bits.

Source: Transformer Engine, ``fp8_dpa``, which ``Float8BlockScaling`` refuses.
"""

GATHERED = ("delayed", "tensorwise", "blockwise", "mxfp8")
"""Recipes with which the weights themselves can be kept in low precision (Megatron-LM, ``--fp8-param-gather``)."""
