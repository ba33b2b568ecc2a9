"""Rules of models with latent (MLA) or linear attention, MTP modules, and selective activation recomputation."""

from collections.abc import Callable
from functools import cache

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.model import Model
from calculon.declarations.module_sets import modules_of
from calculon.plan.columns import field_of
from calculon.plan.rules.rule import Request, Requests, Rule, expected

# Options that multi-head latent attention (MLA) excludes; each rule names a combination that is not modeled.


def _of_latents(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Apply a rule to models with latent attention only."""

    def asked(r: Requests) -> Array:
        return holds(r) if r.model.latent and r.model.attends else np.array(True)

    return asked


_LATENT = "since kv_lora_rank={model.kv_lora_rank}"

LATENT_RULES = (
    Rule(
        "latent_multiquery",
        _of_latents(lambda r: r.plan.is_choice("attention_type", "multihead")),
        expected(
            "attention_type",
            f"multihead, {_LATENT}: every query head has its own key and value",
        ),
    ),
    Rule(
        "latent_overlap",
        _of_latents(lambda r: r.plan.is_choice("tensor_par_overlap", "none")),
        expected(
            "tensor_par_overlap",
            f"none, {_LATENT}: down-projections gather nothing that could be split into tiles",
        ),
    ),
    Rule(
        "latent_comm",
        _of_latents(lambda r: ~r.plan.is_choice("tensor_par_comm_type", "p2p_rs_ag")),
        expected(
            "tensor_par_comm_type",
            f"ar or rs_ag, {_LATENT}: latents are gathered, not what stages send",
        ),
    ),
    Rule(
        "latent_tp_impl",
        _of_latents(lambda r: r.plan.is_choice("tp_impl", "megatron")),
        expected("tp_impl", f"megatron, {_LATENT}: down-projections are not split over ranks"),
        ("tp_impl",),
    ),
    Rule(
        "latent_operators",
        _of_latents(lambda r: ~r.plan.is_choice("recompute_modules", "ops")),
        expected(
            "recompute_modules",
            f"a value other than ops, {_LATENT}: which products of latents are stored is not known",
        ),
        ("recompute_modules",),
    ),
)
"""Requirements of latent attention, in the order of checking."""


# Division of the heads of linear attention, and options that partial blocks (``layer_pattern``) exclude.


def _heads(model: Model) -> str:
    """Return the field of the heads that tensor parallelism divides; value heads are a multiple of key heads."""
    if not model.has_linear:
        return ""
    names = {"gated_delta": "linear_key_heads", "mamba2": "ssm_heads"}
    return names.get(model.linear_attention, "")  # lightning attention has attn_heads, with a rule


def _groups(model: Model) -> int:
    """Return the number of head groups of Mamba-2; 0 for other models."""
    return model.ssm_groups if model.has_linear and model.linear_attention == "mamba2" else 0


def _explain_heads(one: Request) -> Problem:
    name = _heads(one.model)
    wanted = f"a divisor of the model's {name}={getattr(one.model, name)}"
    return Problem("tensor_par", wanted, str(one.execution.tensor_par))


def _heads_split(r: Requests) -> Array:
    name = _heads(r.model)
    even: Array = np.array(getattr(r.model, name) if name else 0) % r.plan.tensor_par == 0
    return even


def _groups_split(r: Requests) -> Array:
    groups, degree = _groups(r.model), r.plan.tensor_par
    if not groups:
        return np.array(True)
    even: Array = (groups % degree == 0) | (degree % groups == 0)
    return even


def _contexts_split(r: Requests) -> Array:
    """Return a mask of executions whose tensor- and context-parallel ranks have whole heads, and groups that divide."""
    ranks, model = r.plan.tensor_par * r.plan.context_par, r.model
    if not model.has_linear:
        return np.array(True)
    groups = _groups(model)
    even: Array = getattr(model, _heads(model) or "attn_heads") % ranks == 0
    if groups:
        even = even & ((groups % ranks == 0) | (ranks % groups == 0))
    return even | (r.plan.context_par == 1)


def _explain_contexts(one: Request) -> Problem:
    name, groups = _heads(one.model) or "attn_heads", _groups(one.model)
    more = f", and divides or is a multiple of ssm_groups={groups}" if groups else ""
    wanted = f"such that tensor_par x context_par divides {name}={getattr(one.model, name)}{more}"
    hint = "linear attention exchanges heads over context-parallel ranks"
    return Problem("context_par", wanted, str(one.execution.context_par), hint)


def _in_parts(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Apply a rule only to models with partial blocks."""
    return lambda r: holds(r) if r.model.in_parts else np.array(True)


LINEAR_RULES = (
    Rule(
        "linear_heads_split",
        _heads_split,
        _explain_heads,
        counted=True,
    ),
    Rule(
        "linear_groups_split",
        _groups_split,
        expected(
            "tensor_par", "a divisor or a multiple of the model's ssm_groups={model.ssm_groups}"
        ),
        counted=True,
    ),
    Rule("cp_linear", _contexts_split, _explain_contexts, ("context_par",)),
    Rule(
        "pattern_comm",
        _in_parts(lambda r: ~r.plan.is_choice("tensor_par_comm_type", "p2p_rs_ag")),
        expected(
            "tensor_par_comm_type",
            "ar or rs_ag, since blocks of {model.name} are parts with one reduction each",
        ),
    ),
    Rule(
        "pattern_ep_overlap",
        _in_parts(lambda r: r.plan.is_choice("ep_overlap", "none")),
        expected(
            "ep_overlap",
            "none, since blocks of {model.name} are partial: attention and experts are in different blocks",
        ),
        ("ep_overlap",),
    ),
)
"""Requirements of linear attention and of parts of blocks, in the order of checking."""


# Options that multi-token prediction (MTP) modules exclude.


def _with_modules(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Apply a rule to models with MTP modules, in training only: inference leaves the modules out."""

    def asked(r: Requests) -> Array:
        return ~r.plan.training | holds(r) if r.model.mtp_layers else np.array(True)

    return asked


_PREDICTS = "since mtp_layers={model.mtp_layers}"

PREDICTION_RULES = (
    Rule(
        "mtp_overlap",
        _with_modules(lambda r: r.plan.is_choice("tensor_par_overlap", "none")),
        expected(
            "tensor_par_overlap",
            f"none, {_PREDICTS}: the output of the product of a module is gathered in one piece",
        ),
    ),
    Rule(
        "mtp_tp_impl",
        _with_modules(lambda r: r.plan.is_choice("tp_impl", "megatron")),
        expected(
            "tp_impl",
            f"megatron, {_PREDICTS}: the product of a module reads embeddings that every rank has whole",
        ),
        ("tp_impl",),
    ),
)
"""Requirements of MTP modules, in the order of checking."""


# Modules that selective recomputation can recompute: modules of the model, in blocks that consist of modules.


@cache
def absent_modules(model: Model) -> dict[str, str]:
    """Map modules that no block of a model has, and ``ops`` if its stored results are unknown, to the reason."""
    absent = {}
    if not model.latent:
        absent["mla_up_proj"] = "kv_lora_rank is 0"
    if model.num_experts < 2:  # a router needs a choice
        absent |= dict.fromkeys(("moe", "moe_act"), f"num_experts is {model.num_experts}")
    if not model.shared_feedforward:
        absent["shared_experts"] = "shared_feedforward is 0"
    if model.linear_attention != "gated_delta" or not model.has_linear:
        absent["gdn_norm_out"] = f"linear_attention is {model.linear_attention}"
    if model.in_parts and "-" not in model.layer_pattern:
        absent["mlp"] = "layer_pattern has no letter -"
    if model.has_linear or model.in_parts:
        absent["ops"] = (
            "which results of linear attention, or of single parts, are stored is not known"
        )
    if not model.has_softmax:
        absent["core_attn"] = "no block has attention with softmax"
    if model.has_experts:
        if not model.mixes_kinds:
            absent["mlp"] = "every block has experts"
        absent["ops"] = "which results of experts are stored is not known"
    return absent


def _missing(model: Model, value: str) -> str:
    """Return the first module of a value that the model lacks, or an empty text."""
    absent = absent_modules(model)
    return next((one for one in (value, *sorted(modules_of(value))) if one in absent), "")


@cache
def _known(model: Model) -> Array:
    """Return a mask over the values of ``recompute_modules``, by code, that the model supports."""
    values = field_of("recompute_modules").declaration.choices
    return np.array([not _missing(model, value) for value in values])


def _explain(one: Request) -> Problem:
    value = one.execution.recompute_modules
    missing = _missing(one.model, value)
    wanted = f"a set without {missing}, since {absent_modules(one.model)[missing]}"
    return Problem("recompute_modules", f"{wanted} in {one.model.name}", value)


def _names(r: Requests, module: str) -> Array:
    """Return a mask of executions that recompute a module."""
    values = field_of("recompute_modules").declaration.choices
    named: Array = np.array([module in modules_of(value) for value in values])
    return named[r.plan.recompute_modules]


def _nothing(r: Requests) -> Array:
    return r.plan.is_choice("recompute_modules", "none")


def stores_some_blocks(r: Requests) -> Array:
    """Return a mask of executions that do not recompute all of their blocks."""
    fewer: Array = r.plan.recompute_every > np.maximum(1, r.plan.recompute_blocks)
    return fewer


def _explain_blocks(one: Request) -> Problem:
    e = one.execution
    found = str(e.recompute_blocks)
    if e.activation_recompute == e.recompute_modules == "none":
        return Problem("recompute_blocks", "0, since nothing is recomputed", found)
    wanted = f"at most recompute_every = {e.recompute_every}"
    hint = "recompute_every is a number of blocks, such as the blocks of a stage, of which recompute_blocks recompute"
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
        lambda r: _nothing(r) | r.model.recomputes_operators,
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
