"""Which modules the backward pass may compute again: those that the model has, in blocks that have modules."""

from functools import cache

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.declarations.module_sets import modules_of
from calculon.plan.columns import field_of
from calculon.plan.rules.rule import Request, Requests, Rule, expected


@cache
def absent_modules(model: Model) -> dict[str, str]:
    """Map the modules that no block of a model has, and ``ops`` where it is unknown what it keeps, to why."""
    absent = {}
    if not model.latent:
        absent["mla_up_proj"] = "kv_lora_rank is 0"
    if model.num_experts < 2:  # of one the router has no choice
        absent |= dict.fromkeys(("moe", "moe_act"), f"num_experts is {model.num_experts}")
    if not model.shared_feedforward:
        absent["shared_experts"] = "shared_feedforward is 0"
    if model.linear_attention != "gated_delta" or not model.has_linear:
        absent["gdn_norm_out"] = f"linear_attention is {model.linear_attention}"
    if model.in_parts and "-" not in model.layer_pattern:
        absent["mlp"] = "layer_pattern has no letter -"
    if model.has_linear or model.in_parts:
        absent["ops"] = (
            "it is unknown which results of linear attention, or of single parts, are kept"
        )
    if not model.has_softmax:
        absent["core_attn"] = "no block has attention with softmax"
    if model.has_experts:
        if not model.mixes_kinds:
            absent["mlp"] = "every block has experts"
        absent["ops"] = "it is unknown which results of experts are kept"
    return absent


def _missing(model: Model, value: str) -> str:
    """Return the first module of a value that the model does not have, or nothing."""
    absent = absent_modules(model)
    return next((one for one in (value, *sorted(modules_of(value))) if one in absent), "")


@cache
def _known(model: Model) -> Array:
    """Return which values of ``recompute_modules``, by their code, name what a model has."""
    values = field_of("recompute_modules").declaration.choices
    return np.array([not _missing(model, value) for value in values])


def _explain(one: Request) -> Problem:
    value = one.execution.recompute_modules
    missing = _missing(one.model, value)
    wanted = f"a set without {missing}, since {absent_modules(one.model)[missing]}"
    return Problem("recompute_modules", f"{wanted} in {one.model.name}", value)


def _names(r: Requests, module: str) -> Array:
    """Return which executions compute a module again."""
    values = field_of("recompute_modules").declaration.choices
    named: Array = np.array([module in modules_of(value) for value in values])
    return named[r.plan.recompute_modules]


def _nothing(r: Requests) -> Array:
    return r.plan.is_choice("recompute_modules", "none")


def stores_some_blocks(r: Requests) -> Array:
    """Return which executions do not recompute all of their blocks."""
    fewer: Array = r.plan.recompute_every > np.maximum(1, r.plan.recompute_blocks)
    return fewer


def _explain_blocks(one: Request) -> Problem:
    e = one.execution
    found = str(e.recompute_blocks)
    if e.activation_recompute == e.recompute_modules == "none":
        return Problem("recompute_blocks", "0, since nothing is recomputed", found)
    wanted = f"at most recompute_every = {e.recompute_every}"
    hint = "recompute_every is the blocks of which so many recompute, such as those of a stage"
    return Problem("recompute_blocks", wanted, found, hint)


MODULE_RULES = (
    Rule(
        "modules_need_training",
        lambda r: r.plan.training | _nothing(r),
        expected("recompute_modules", "none, since there is no backward pass in inference"),
        ("recompute_modules",),
    ),
    Rule(
        "modules_alone",
        lambda r: _nothing(r) | ~r.plan.is_choice("activation_recompute", "full"),
        expected("recompute_modules", "none with activation_recompute: full, which is all of them"),
        ("recompute_modules",),
    ),
    Rule(
        "modules_of_products",
        lambda r: (
            _nothing(r)
            | (r.plan.is_choice("tp_impl", "megatron") & r.plan.is_choice("matmul_impl", "gemm"))
        ),
        expected("recompute_modules", "none, unless tp_impl is megatron and matmul_impl is gemm"),
        ("recompute_modules",),
    ),
    Rule(
        "modules_of_blocks",
        lambda r: _nothing(r) | (r.model.part == "block" and not r.model.parallel_attention),
        expected(
            "recompute_modules",
            "none, since blocks of {model.name} are not attention and then an MLP",
        ),
        ("recompute_modules",),
    ),
    Rule(
        "modules_of_model",
        lambda r: _nothing(r) | _known(r.model)[r.plan.recompute_modules],
        _explain,
        ("recompute_modules",),
    ),
    Rule(
        "modules_say_attention",
        lambda r: ~_names(r, "core_attn") | r.plan.is_choice("activation_recompute", "none"),
        expected(
            "recompute_modules", "a set without core_attn, which is activation_recompute: attn_only"
        ),
        ("recompute_modules",),
    ),
    Rule(
        "every_block_recomputes",
        lambda r: (
            (r.plan.recompute_every == 1)
            | ~(r.plan.is_choice("activation_recompute", "none") & _nothing(r))
            & ~r.plan.activations_offload
        ),
        expected(
            "recompute_every",
            "1, unless something is recomputed and activations are not offloaded",
        ),
        ("recompute_every",),
    ),
    Rule(
        "some_blocks_recompute",
        lambda r: (
            (r.plan.recompute_blocks == 0)
            | ~(r.plan.is_choice("activation_recompute", "none") & _nothing(r))
            & (r.plan.recompute_blocks <= r.plan.recompute_every)
        ),
        _explain_blocks,
        ("recompute_blocks",),
    ),
)
"""Requirements of recomputation by module and of some blocks, in the order of checking."""
