"""What makes a recipe of narrow products valid: the machine, what is stored, and what else asks for a type."""

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.named_values import DATATYPE_BYTES, LEAST_RESULT_BYTES
from calculon.declarations.recipes import FLOAT8, GATHERED, MODULES_WITHOUT, NO_RECIPE, RECIPES
from calculon.plan.columns import field_of
from calculon.plan.rules.overlap_rules import recomputes
from calculon.plan.rules.rule import Request, Requests, Rule, expected

_RECIPE, _GATHER = ("fp8_recipe",), ("fp8_param_gather",)
_NAMES = (NO_RECIPE, *RECIPES)
assert field_of("fp8_recipe").declaration.choices == _NAMES


def _of_recipe(r: Requests, *values: bool) -> Array:
    """Return for each execution the value of its recipe; true without one."""
    found: Array = np.array([True, *values])[r.plan.fp8_recipe]
    return found


def _none(r: Requests) -> Array:
    return r.plan.is_choice("fp8_recipe", NO_RECIPE)


def _is_run(r: Requests) -> Array:
    """Hold where the machine runs the recipe, and its engine has the type of its products."""
    return _of_recipe(r, *(name in r.system.recipes for name in RECIPES))


def _explain_machine(one: Request) -> Problem:
    known = ", ".join((NO_RECIPE, *one.system.recipes))
    name = one.execution.fp8_recipe
    product = RECIPES[name].product
    hint = "ext.recipes of a system states what it runs: calculon describe system"
    if product not in {*one.system.matrix, *(one.system.ext.matrix or {})}:
        hint = f"its products are in {product}, of which the matrix engine states no rate"
    return Problem("fp8_recipe", f"a recipe that {one.system.name} runs: {known}", name, hint)


def _stores_more(r: Requests) -> Array:
    wide = np.array([size >= LEAST_RESULT_BYTES for size in DATATYPE_BYTES.values()])
    return _none(r) | wide[r.plan.datatype]


def _agrees(r: Requests) -> Array:
    """Hold where ``matmul_dtype`` says nothing, or with its scaling what the recipe says."""
    current = r.plan.is_choice("float8_scaling", "current")
    in_float8 = _of_recipe(r, *(recipe.product == FLOAT8 for recipe in RECIPES.values()))
    scaled = ~current | r.plan.is_choice("fp8_recipe", "tensorwise")
    agrees = r.plan.is_choice("matmul_dtype", FLOAT8) & in_float8 & scaled
    return _none(r) | r.plan.is_choice("matmul_dtype", "same") | agrees


def _explain_types(one: Request) -> Problem:
    e = one.execution
    return Problem(
        "matmul_dtype",
        f"same, since fp8_recipe={e.fp8_recipe} says what products are in",
        e.matmul_dtype
        if e.float8_scaling == "delayed"
        else f"{e.matmul_dtype}, {e.float8_scaling}",
    )


def _keeps_modules(r: Requests) -> Array:
    """Hold where nothing is computed again that the recipe excludes."""
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
    hint = "its factors are of largest values of steps before, which would be counted twice"
    return Problem("recompute_modules", wanted, e.recompute_modules, hint)


def _is_gathered(r: Requests) -> Array:
    known = _of_recipe(r, *(name in GATHERED for name in RECIPES))
    return ~r.plan.fp8_param_gather | (known & ~_none(r))


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
            "weights are kept as a recipe of 8 bits multiplies them",
        ),
        _GATHER,
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
            "false, since {model.name} has modules that predict further tokens (mtp_layers)",
            "weights of these modules are kept in the datatype",
        ),
        _GATHER,
    ),
)
