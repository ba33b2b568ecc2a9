"""Fields of low-precision training: FP8, MXFP8 and NVFP4 recipes."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.sequence_fields import SequenceFields
from calculon.declarations.fields import LAYOUT, NamedValues, declare
from calculon.declarations.recipes import GATHERED, NO_RECIPE, RECIPES, WITH_ATTENTION


class _Recipes(NamedValues):
    """Low-precision recipes, with a hint for ``fp8``, which alone does not name a recipe."""

    __slots__ = ()

    def hint(self, value: object) -> str | None:
        """Suggest the usual recipe if only the precision is named."""
        if str(value).lower() in ("fp8", "float8"):
            return "write delayed, the usual FP8 recipe"
        return super().hint(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFields(SequenceFields):
    """Fields of low-precision training."""

    fp8_recipe: str = declare(
        "recipe of training with products in fewer than 16 bits; operands are converted from the stored tensors. "
        "Scales of a tensor come from earlier steps (delayed) or from the tensor itself (tensorwise); scales of "
        "blocks cover 128 (blockwise), 32 (mxfp8) or, in 4 bits, 16 values (nvfp4; nvfp4_plain omits rotation). "
        "Weights, norms, attention, residual stream, embedding, head and optimizer keep their types",
        choices=_Recipes((NO_RECIPE, *RECIPES)),
        default=NO_RECIPE,
        scope=LAYOUT,
        label="recipe {}",
        mark="{} recipe",
        needs={"matmul_dtype": ("same", "float8"), "matmul_impl": ("gemm",)},
        adds=f"recipes of products in 8 and 4 bits: {', '.join(RECIPES)}",
        with_="matmul_dtype",
    )
    fp8_param_gather: bool = declare(
        "keep and gather product weights in the type in which the recipe multiplies them, with separate 4-byte master "
        "weights; false: in the datatype, with separate copies for the recipe",
        default=False,
        scope=LAYOUT,
        label="weights gathered in 8 bits",
        mark="8-bit weights",
        needs={"training": (True,), "fp8_recipe": GATHERED},
        adds="true: weights stored and gathered in 8 bits",
    )
    fp8_attention: bool = declare(
        "fused attention in 8 bits (fp8_dpa of Transformer Engine): queries, keys, values and the gradient of the "
        "output are converted, and kept in 8 bits for the backward pass; outputs and other gradients keep their type",
        default=False,
        scope=LAYOUT,
        label="attention in 8 bits",
        mark="8-bit attention",
        needs={"attn_impl": ("flash",), "fp8_recipe": WITH_ATTENTION},
        adds="true: attention in 8 bits",
    )
