"""Rules of data types: matrix arithmetic, FP8 and other low-precision recipes, and optimizer steps."""

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.named_values import (
    DATATYPE_BYTES,
    MATMUL_BYTES,
    MIN_RESULT_BYTES,
    multiplied,
)
from calculon.declarations.presets import COMMON
from calculon.declarations.recipes import (
    FLOAT8,
    GATHERED,
    MODULES_WITHOUT,
    NO_RECIPE,
    RECIPES,
    WITH_ATTENTION,
)
from calculon.hardware.kernels.laws import EXACT
from calculon.plan.columns import FIELDS, PLAIN, code, field_of
from calculon.plan.rules.expert_rules import recomputes
from calculon.plan.rules.rule import Request, Requests, Rule, expected

_TYPES = next(field.declaration.choices for field in FIELDS if field.name == "matmul_dtype")
_WIDTHS = np.array([MATMUL_BYTES.get(name, 0) for name in _TYPES])  # same: fits every datatype
_KERNELS = next(field.declaration.choices for field in FIELDS if field.name == "attn_kernel")
_STORED = np.array(list(DATATYPE_BYTES.values()))


def _explain_wider(one: Request) -> Problem:
    stored = DATATYPE_BYTES[one.execution.datatype]
    return Problem(
        "matmul_dtype",
        f"a type of at most {stored} bytes, as datatype={one.execution.datatype}",
        repr(one.execution.matmul_dtype),
        "widen datatype: weights and the residual stream are stored in it",
    )


def _explain_known(one: Request) -> Problem:
    wanted = f"a type that {one.system.name} multiplies: {', '.join(one.system.matmul_types)}"
    return Problem("matmul_dtype", wanted, repr(one.execution.matmul_dtype))


def _has_kernel(r: Requests) -> Array:
    """Return a mask of executions whose attention kernel has system constants for the type of attention.

    A kernel of a framework's preset always passes: systems without constants for it use their default kernel.
    """
    known = np.zeros((len(DATATYPE_BYTES), len(_TYPES), len(_KERNELS)), dtype=bool)
    for i, stored in enumerate(DATATYPE_BYTES):
        for j, name in enumerate(_TYPES):
            kernels = ("auto", *r.system.attention_kernels(stored, name))
            known[i, j] = [kernel in kernels for kernel in _KERNELS]
    found: Array = known[r.plan.datatype, r.multiplied, r.plan.attn_kernel]
    return found | (r.plan.preset > code("preset", COMMON))


def _explain_kernel(one: Request) -> Problem:
    e = one.execution
    found = repr(e.attn_kernel)
    known = one.system.attention_kernels(e.datatype, multiplied(e.matmul_dtype, e.fp8_recipe))
    if not known:
        hint = "ext.kernels.attention of a system states kernels by name: calculon describe system"
        wanted = f"auto, since {one.system.name} has no kernels of attention by name in this type"
        return Problem("attn_kernel", wanted, found, hint)
    wanted = f"auto, or a kernel that {one.system.name} has: {', '.join(known)}"
    return Problem("attn_kernel", wanted, found, f"auto is {known[0]}")


PRECISION_RULES: tuple[Rule, ...] = (
    Rule(
        "matmul_wider",
        lambda r: _WIDTHS[r.plan.matmul_dtype] <= _STORED[r.plan.datatype],
        _explain_wider,
        ("matmul_dtype",),
    ),
    Rule(
        "matmul_engine",
        lambda r: np.array([name in ("same", *r.system.matmul_types) for name in _TYPES])[
            r.plan.matmul_dtype
        ],
        _explain_known,
        ("matmul_dtype",),
    ),
    Rule(
        "kernel_needs_flash",
        lambda r: (
            (r.plan.attn_kernel == PLAIN["attn_kernel"]) | r.plan.is_choice("attn_impl", "flash")
        ),
        expected(
            "attn_kernel", "auto, unless attn_impl is flash", "eager attention has no fused kernel"
        ),
        ("attn_kernel",),
    ),
    Rule("attention_kernel", _has_kernel, _explain_kernel, ("attn_kernel",)),
)


# Recipes of low-precision products: supported machines, stored types, and options that state types as well.

_RECIPE, _GATHER = ("fp8_recipe",), ("fp8_param_gather",)
_NAMES = (NO_RECIPE, *RECIPES)
assert field_of("fp8_recipe").declaration.choices == _NAMES


def _of_recipe(r: Requests, *values: bool) -> Array:
    """Return a value for the recipe of each execution; True without a recipe."""
    result: Array = np.array([True, *values])[r.plan.fp8_recipe]
    return result


def _none(r: Requests) -> Array:
    return r.plan.is_choice("fp8_recipe", NO_RECIPE)


def _is_run(r: Requests) -> Array:
    """Return a mask of executions whose machine supports the recipe and the type of its products."""
    return _of_recipe(r, *(name in r.system.recipes for name in RECIPES))


def _explain_machine(one: Request) -> Problem:
    known = ", ".join((NO_RECIPE, *one.system.recipes))
    name = one.execution.fp8_recipe
    product = RECIPES[name].product
    hint = "ext.recipes of a system lists its recipes: calculon describe system"
    if product not in {*one.system.matrix, *(one.system.ext.matrix or {})}:
        hint = f"the system file states no {product} matmul rate"
    return Problem("fp8_recipe", f"a recipe that {one.system.name} runs: {known}", name, hint)


def _stores_more(r: Requests) -> Array:
    wide = np.array([size >= MIN_RESULT_BYTES for size in DATATYPE_BYTES.values()])
    return _none(r) | wide[r.plan.datatype]


def _agrees(r: Requests) -> Array:
    """Return a mask of executions whose ``matmul_dtype`` is unset, or agrees with the recipe, as must its scaling."""
    current = r.plan.is_choice("float8_scaling", "current")
    in_float8 = _of_recipe(r, *(recipe.product == FLOAT8 for recipe in RECIPES.values()))
    scaled = ~current | r.plan.is_choice("fp8_recipe", "tensorwise")
    agrees = r.plan.is_choice("matmul_dtype", FLOAT8) & in_float8 & scaled
    return _none(r) | r.plan.is_choice("matmul_dtype", "same") | agrees


def _explain_types(one: Request) -> Problem:
    e = one.execution
    return Problem(
        "matmul_dtype",
        f"same, since fp8_recipe={e.fp8_recipe} determines the type of products",
        e.matmul_dtype
        if e.float8_scaling == "delayed"
        else f"{e.matmul_dtype}, {e.float8_scaling}",
    )


def _keeps_modules(r: Requests) -> Array:
    """Return a mask of executions that recompute no module that the recipe excludes."""
    good = _none(r)
    for name in RECIPES:
        excluded = np.zeros(1, bool)
        for module in MODULES_WITHOUT.get(name, ()):
            excluded = excluded | recomputes(module, r.plan)
        good = good | (r.plan.is_choice("fp8_recipe", name) & ~excluded)
    return good


def _explain_modules(one: Request) -> Problem:
    e = one.execution
    without = " and ".join(MODULES_WITHOUT[e.fp8_recipe])
    wanted = f"a set without {without}, since fp8_recipe is {e.fp8_recipe}"
    hint = "its scaling factors come from maxima of earlier steps, which would be counted twice"
    return Problem("recompute_modules", wanted, e.recompute_modules, hint)


def _is_gathered(r: Requests) -> Array:
    known = _of_recipe(r, *(name in GATHERED for name in RECIPES))
    return ~r.plan.fp8_param_gather | (known & ~_none(r))


def _narrow_attention(r: Requests) -> Array:
    """Return a mask of executions with attention in 16 bits, or a recipe, machine and kernel that support 8 bits."""
    plan = r.plan
    recipe = _of_recipe(r, *(name in WITH_ATTENTION for name in RECIPES)) & ~_none(r)
    exact = (plan.attn_kernel == PLAIN["attn_kernel"]) | plan.is_choice("attn_kernel", EXACT[0])
    known = np.array(EXACT[0] in r.system.fused_kernels(FLOAT8))
    return ~plan.fp8_attention | (recipe & exact & plan.is_choice("attn_impl", "flash") & known)


def _stays_whole(r: Requests) -> Array:
    plan = r.plan
    split = plan.is_choice("zero_stage", "3") | plan.is_choice("zero_stage", "owner")
    return ~plan.fp8_param_gather | ~(split | plan.weight_offload)


RECIPE_RULES = (
    Rule("recipe_rate", _is_run, _explain_machine, _RECIPE),
    Rule(
        "recipe_storage",
        _stores_more,
        expected(
            "fp8_recipe",
            "none with datatype=float8",
            "recipes store bfloat16 and multiply in fewer bits: datatype=bfloat16",
        ),
        _RECIPE,
    ),
    Rule("recipe_products", _agrees, _explain_types, _RECIPE),
    Rule(
        "recipe_gemm",
        lambda r: _none(r) | r.plan.is_choice("matmul_impl", "gemm"),
        expected(
            "fp8_recipe", "none, unless matmul_impl is gemm", "the vector engine has no recipes"
        ),
        _RECIPE,
    ),
    Rule("recipe_modules", _keeps_modules, _explain_modules, _RECIPE),
    Rule(
        "gather_needs_recipe",
        _is_gathered,
        expected(
            "fp8_param_gather",
            f"false, unless fp8_recipe is one of {', '.join(GATHERED)}",
            "weights are kept in the 8 bits in which a recipe multiplies them",
        ),
        _GATHER,
    ),
    Rule(
        "narrow_attention",
        _narrow_attention,
        expected(
            "fp8_attention",
            "false, unless attn_impl is flash, attn_kernel auto or cudnn, fp8_recipe one of "
            f"{', '.join(WITH_ATTENTION)}, and the system has constants of cudnn in float8",
            "cuDNN has kernels of attention in 8 bits",
        ),
        ("fp8_attention",),
    ),
    Rule(
        "gather_needs_training",
        lambda r: ~r.plan.fp8_param_gather | r.plan.training,
        expected("fp8_param_gather", "false, since nothing is gathered in inference"),
        _GATHER,
    ),
    Rule(
        "gather_keeps_weights",
        _stays_whole,
        expected(
            "fp8_param_gather",
            "false with zero_stage 3 or owner, and with weight_offload",
            "weights that are split or offloaded are kept in the datatype; fsdp keeps masters",
        ),
        _GATHER,
    ),
    Rule(
        "gather_without_modules",
        lambda r: ~r.plan.fp8_param_gather | np.array(not r.model.mtp_layers),
        expected(
            "fp8_param_gather",
            "false, since {model.name} has MTP modules (mtp_layers)",
            "weights of these modules are kept in the datatype",
        ),
        _GATHER,
    ),
)


# Options of the optimizer step that exclude each other.

_MOMENTS = tuple(field_of("optimizer_state_dtype").declaration.needs["optimizer"])
_SMALL = tuple(field_of("main_grad").declaration.needs["grad_dtype"])
_MOMENT_CODES = [code("optimizer", name) for name in _MOMENTS]
_SMALL_CODES = [code("grad_dtype", name) for name in _SMALL]


def _explain_state(one: Request) -> Problem:
    e = one.execution
    why = {
        "adam_8bit": "whose moments have 8 bits",
        "adafactor": "which keeps 4-byte sums of rows and columns",
    }.get(e.optimizer, "which keeps no moments")
    wanted = f"float32 with optimizer: {e.optimizer}, {why}"
    hint = f"a type can be chosen for {', '.join(_MOMENTS)}"
    return Problem("optimizer_state_dtype", wanted, e.optimizer_state_dtype, hint)


def _explain_copy(one: Request) -> Problem:
    e = one.execution
    why = "gradients have 4 bytes" if e.grad_dtype == "float32" else "no smaller type is stated"
    wanted = f"false with grad_dtype: {e.grad_dtype}, since {why}"
    hint = f"a 4-byte copy is made of grad_dtype: {' or '.join(_SMALL)}"
    return Problem("main_grad", wanted, "true", hint)


def _explain_sums(one: Request) -> Problem:
    e = one.execution
    with_ = "main_grad: true" if e.main_grad else f"grad_dtype: {e.grad_dtype}"
    hint = (
        f"4-byte sums complement grad_dtype: {' or '.join(_SMALL)}, and are the input of the step"
    )
    return Problem("grad_sums", f"false with {with_}", "true", hint)


OPTIMIZER_RULES = (
    Rule(
        "state_dtype_needs_moments",
        lambda r: (
            r.plan.is_choice("optimizer_state_dtype", "float32")
            | np.isin(r.plan.optimizer, _MOMENT_CODES)
        ),
        _explain_state,
        ("optimizer_state_dtype",),
    ),
    Rule(
        "main_grad_needs_small_gradients",
        lambda r: ~r.plan.main_grad | np.isin(r.plan.grad_dtype, _SMALL_CODES),
        _explain_copy,
        ("main_grad",),
    ),
    Rule(
        "grad_sums_need_small_gradients",
        lambda r: ~r.plan.grad_sums | np.isin(r.plan.grad_dtype, _SMALL_CODES) & ~r.plan.main_grad,
        _explain_sums,
        ("grad_sums",),
    ),
)
"""Requirements on the optimizer step, in the order of checking."""
