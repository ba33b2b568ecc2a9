"""Fields of training in few bits."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.sequence_fields import SequenceFields
from calculon.declarations.fields import LAYOUT, NamedValues, declare
from calculon.declarations.recipes import GATHERED, NO_RECIPE, RECIPES


class _Recipes(NamedValues):
    """Recipes; ``fp8`` alone names none."""

    __slots__ = ()

    def hint(self, value: object) -> str | None:
        """Name the recipe that people mean who name none."""
        if str(value).lower() in ("fp8", "float8"):
            return "delayed is what FP8 means where nothing else is said"
        return super().hint(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFields(SequenceFields):
    """Fields of training in few bits."""

    fp8_recipe: str = declare(
        "recipe of training with products in fewer than 16 bits, of operands that are made of what is stored: factors "
        "of a tensor from steps before (delayed) or from itself (tensorwise), of blocks of 128 (blockwise), of 32 "
        "(mxfp8) or, in 4 bits, of 16 (nvfp4); weights, norms, attention, residual stream, embedding, head and "
        "optimizer keep their types",
        choices=_Recipes((NO_RECIPE, *RECIPES)),
        default=NO_RECIPE,
        scope=LAYOUT,
        label="recipe {}",
        mark="{} recipe",
        needs={"matmul_dtype": ("same", "float8"), "matmul_impl": ("gemm",)},
        adds="recipes of products in 8 and 4 bits: delayed, tensorwise, blockwise, mxfp8, nvfp4",
        with_="matmul_dtype",
    )
    fp8_param_gather: bool = declare(
        "weights of products are kept and gathered as the recipe multiplies them, beside masters of 4 bytes; false: "
        "in the datatype, and the recipe's copies beside them",
        default=False,
        scope=LAYOUT,
        label="weights gathered in 8 bits",
        mark="8-bit weights",
        needs={"training": (True,), "fp8_recipe": GATHERED},
        adds="true: weights kept and gathered in 8 bits",
    )
