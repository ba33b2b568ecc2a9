"""Recipes of training that a machine runs, and what its matrix engine asks of their operands."""

from collections.abc import Mapping

from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeUse:
    """How a machine runs a recipe.

    Source: NVIDIA, *Transformer Engine* documentation, performance considerations (handling transposes); cuBLAS,
    ``cublasLtMatmul``: 8-bit kernels of compute capability 8.9, 9.0 and 12 want A transposed and B not.
    """

    transposes: bool = declare(
        "its products read operands only with the terms of a sum side by side, so that transposed copies exist of what "
        "has no scales of blocks; false: they read one copy along either side",
        default=False,
    )


OF_EVERY_ENGINE: Mapping[str, RecipeUse] = {
    "delayed": RecipeUse(transposes=True),
    "tensorwise": RecipeUse(transposes=True),
}
"""Recipes of an engine of 8 bits of which nothing is stated: factors of tensors scale results, whatever the engine."""
