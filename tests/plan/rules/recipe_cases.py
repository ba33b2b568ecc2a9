"""Executions that rules on recipes refuse, with field, requirement and value; and the systems they are tried on."""

CORRECTED = {"edition": "corrected"}
DELAYED = CORRECTED | {"fp8_recipe": "delayed"}
GATHERED = DELAYED | {"fp8_param_gather": True}

MALFORMED = {
    "recipe_rate": (
        CORRECTED | {"fp8_recipe": "nvfp4"},
        "fp8_recipe: a recipe that h100_80g_sxm runs: none, delayed, tensorwise, blockwise",
    ),
    "recipe_storage": (DELAYED | {"datatype": "float8"}, "fp8_recipe: none with datatype=float8"),
    "recipe_products": (
        DELAYED | {"matmul_dtype": "bfloat16"},
        "matmul_dtype: same, since fp8_recipe=delayed determines the type of products",
    ),
    "recipe_gemm": (
        DELAYED | {"matmul_impl": "mul_sum"},
        "fp8_recipe: none, unless matmul_impl is gemm",
    ),
    "recipe_modules": (
        DELAYED | {"recompute_modules": "norm+core_attn"},
        "recompute_modules: a set without norm and moe_act, since fp8_recipe is delayed",
    ),
    "gather_needs_recipe": (
        CORRECTED | {"fp8_param_gather": True},
        "fp8_param_gather: false, unless fp8_recipe is one of delayed, tensorwise, blockwise, mxfp8",
    ),
    "narrow_attention": (
        CORRECTED | {"fp8_attention": True},
        "fp8_attention: false, unless attn_impl is flash, attn_kernel auto or cudnn, fp8_recipe one of delayed, "
        "tensorwise, mxfp8, nvfp4, nvfp4_plain, and the system has constants of cudnn in float8",
    ),
    "gather_needs_training": (
        GATHERED | {"training": False},
        "fp8_param_gather: false, since nothing is gathered in inference",
    ),
    "gather_keeps_weights": (
        GATHERED | {"weight_offload": True},
        "fp8_param_gather: false with zero_stage 3 or owner, and with weight_offload",
    ),
    "gather_without_modules": (
        GATHERED,
        "fp8_param_gather: false, since model has MTP modules (mtp_layers)",
    ),
}
SYSTEMS = dict.fromkeys(MALFORMED, "h100_80g_sxm")
