"""Hybrid families: linear attention in some blocks, or blocks of a single part (Qwen3-Next, Nemotron-H, ...)."""

from collections.abc import Sequence
from typing import Any

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import (
    ATTENTION_BIAS,
    GATED,
    PLAIN,
    SHAPE,
    TIED,
    Family,
    Fields,
    Sources,
    one_in,
    rotary,
    switch,
)
from calculon.declarations.families.mixtures import MINIMAX_TEXT, QWEN, READS, RELEASED
from calculon.declarations.fields import shown
from calculon.declarations.hybrid_fields import OF_LINEAR, OF_SOFTMAX

_FULL, _LINEAR = "full_attention", "linear_attention"

_PERIODIC = "linear attention in all blocks, or in all but the last of every n"
"""Patterns that a period can express, for a message."""


def _softmax_blocks(config: Configuration, fields: Fields) -> list[bool] | None:
    """Return for each block whether it has softmax attention, from a list of the configuration; None without a list."""
    for name, softmax, linear in (
        ("layer_types", _FULL, _LINEAR),
        ("attn_type_list", 1, 0),
    ):
        kinds = config.get(name)
        if kinds is None:
            continue
        blocks = fields["num_blocks"]
        known = isinstance(kinds, list) and all(kind in (softmax, linear) for kind in kinds)
        if not known or len(kinds) != blocks:
            wanted = f"{linear!r} or {softmax!r} for each of {blocks} blocks"
            config.refuse(name, wanted, shown(kinds))
        return [kind == softmax for kind in kinds]
    return None


def _period(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return the period of full attention, from a list of attention kinds or from ``full_attention_interval``."""
    listed = _softmax_blocks(config, fields)
    name = "layer_types" if config.get("layer_types") is not None else "attn_type_list"
    every = one_in(listed) if listed is not None else None
    if listed is None:
        name, every = "full_attention_interval", int(config.read(Key("full_attention_interval", 4)))
        every = every if every <= fields["num_blocks"] else 0
    if every is None or every == 1:
        config.refuse(name, _PERIODIC, shown(config.get(name)))
    return {"full_attention_every": every} if every else dict.fromkeys(OF_SOFTMAX)


_DELTA: Sources = {
    **QWEN,
    **ATTENTION_BIAS,
    "attn_size": Key("head_dim", 256),
    "qk_norm": "head",
    "rotary": rotary(0.25),
    "attention_gate": switch("attn_output_gate", default=True),
    "shared_feedforward": Key("shared_expert_intermediate_size"),
    "shared_gate": True,
    "linear_attention": "gated_delta",
    "linear_key_heads": Key("linear_num_key_heads", 16),
    "linear_value_heads": Key("linear_num_value_heads", 32),
    "linear_key_dim": Key("linear_key_head_dim", 128),
    "linear_value_dim": Key("linear_value_head_dim", 128),
    "linear_conv": Key("linear_conv_kernel_dim", 4),
}
_DELTA_PREDICTING = _DELTA | {
    "feedforward": Key("intermediate_size", also=("moe_intermediate_size",)),
    "mtp_layers": Key("mtp_num_hidden_layers", 0, null=0),
}

_MINIMAX: Sources = MINIMAX_TEXT | {"linear_attention": "lightning"}

_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}


def _listed(config: Configuration, names: Sequence[str], known: Sequence[str]) -> list[str] | None:
    """Return the kinds of layers listed under one of several names; None without a list."""
    for name in names:
        kinds = config.get(name)
        if kinds is None:
            continue
        if not isinstance(kinds, list) or not kinds or any(kind not in known for kind in kinds):
            config.refuse(name, f"{' or '.join(known)} for each layer", shown(kinds))
        return kinds
    return None


def _nemotron_pattern(config: Configuration, fields: Fields) -> str:
    """Return the letter of each part, from the pattern or from the list of kinds."""
    pattern = config.get("hybrid_override_pattern")
    name = "hybrid_override_pattern"
    if pattern is None:
        kinds = _listed(config, ("layers_block_type",), tuple(_LETTERS))
        if kinds is None:
            config.refuse(name, "a letter for each layer", "nothing (the key is missing)")
        pattern, name = "".join(_LETTERS[kind] for kind in kinds), "layers_block_type"
    blocks = fields["num_blocks"]
    if not isinstance(pattern, str) or {*pattern} - {*_LETTERS.values()} or len(pattern) != blocks:
        wanted = f"one of the letters M, *, - and E for each of {blocks} layers"
        config.refuse(name, wanted, shown(pattern))
    return pattern


def _nemotron_shared(config: Configuration, _: Fields) -> int:
    """Return the total width of all shared experts."""
    experts: int = config.read(Key("n_shared_experts", 1, null=0))
    return experts and experts * int(config.read(Key("moe_shared_expert_intermediate_size")))


def _parts(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return the fields of parts; fields of kinds that the pattern lacks keep their defaults."""
    pattern = _nemotron_pattern(config, fields)
    result: dict[str, Any] = {"layer_pattern": pattern}
    if "M" not in pattern:
        result |= dict.fromkeys(OF_LINEAR)
    if "*" not in pattern:
        result |= dict.fromkeys(OF_SOFTMAX)
    if "-" not in pattern:
        result["mlp_bias"] = None
    if "E" in pattern:
        result |= _nemotron_experts(config, fields)
    if fields["mtp_layers"]:
        module = config.get("mtp_hybrid_override_pattern")
        if module not in (None, "*E"):
            wanted = "*E: attention and experts in each module"
            config.refuse("mtp_hybrid_override_pattern", wanted, shown(module))
    return result


def _nemotron_experts(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return the fields of experts."""
    groups, reached = (config.read(Key(name, 1, null=1)) for name in ("n_group", "topk_group"))
    limits = {"router_groups": groups, "router_group_topk": reached} if reached < groups else {}
    return {
        "num_experts": config.read(Key("n_routed_experts")),
        "experts_per_token": config.read(Key("num_experts_per_tok")),
        "expert_feedforward": config.read(Key("moe_intermediate_size")),
        "shared_feedforward": _nemotron_shared(config, fields),
        "moe_latent": config.read(Key("moe_latent_size", 0, null=0)),
        "router_bias": True,
    } | limits


_NEMOTRON_H: Sources = {
    **SHAPE,
    **ATTENTION_BIAS,
    "num_blocks": Key("num_hidden_layers"),
    "attn_size": Key("head_dim", also=("attention_head_dim",)),
    "activation": Key("mlp_hidden_act", "relu2", str, words=PLAIN),
    "norm": "rmsnorm",
    "mlp_bias": switch("mlp_bias", default=False),
    "linear_attention": "mamba2",
    "ssm_heads": Key("mamba_num_heads"),
    "ssm_head_dim": Key("mamba_head_dim", 64),
    "ssm_state": Key("ssm_state_size", 128),
    "ssm_groups": Key("n_groups", 8, also=("mamba_n_groups",)),
    "ssm_conv": Key("conv_kernel", 4),
    "ssm_chunk": Key("chunk_size", 128, also=("mamba_chunk_size",)),
    "mtp_layers": Key("num_nextn_predict_layers", 0, null=0),
}
_STATE_BIASES: dict[str, tuple[Any, ...]] = {
    "use_bias": (False,),
    "mamba_proj_bias": (False,),
    "use_conv_bias": (True,),
    "mamba_conv_bias": (True,),
}

_GRANITE_KINDS = ("mamba", "attention")


def _granite_feedforward(config: Configuration, _: Fields) -> int:
    """Return the width of the MLP; without routed experts it is the width of the shared experts."""
    routed = config.read(Key("num_local_experts", 0, null=0))
    name = "intermediate_size" if routed else "shared_intermediate_size"
    return int(config.read(Key(name)))


def _granite_shared(config: Configuration, fields: Fields) -> int:
    return int(config.read(Key("shared_intermediate_size"))) if fields["num_experts"] else 0


def _granite_each(config: Configuration, fields: Fields) -> int:
    return int(config.read(Key("num_experts_per_tok"))) if fields["num_experts"] else 1


def _granite_rotary(config: Configuration, _: Fields) -> float:
    words = {"rope": 1.0, "nope": 0.0}
    return float(config.read(Key("position_embedding_type", "rope", str, words=words)))


def _granite_blocks(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return a period if the last of every n blocks has attention, else a pattern with two parts per block."""
    kinds = _listed(config, ("layer_types", "layers_block_type"), _GRANITE_KINDS)
    if kinds is None or len(kinds) != fields["num_blocks"]:
        wanted = f"{' or '.join(_GRANITE_KINDS)} for each of {fields['num_blocks']} blocks"
        found = "nothing (the key is missing)" if kinds is None else shown(kinds)
        config.refuse("layer_types", wanted, found)
    every = one_in([kind == "attention" for kind in kinds])
    if every == 1:
        return dict.fromkeys(OF_LINEAR)
    if every is not None:
        return {"full_attention_every": every} if every else dict.fromkeys(OF_SOFTMAX)
    # Other arrangements need a pattern, in which attention and its MLP are separate parts with one letter each.
    second = "E" if fields["num_experts"] else "-"
    pattern = "".join(_LETTERS[kind] + second for kind in kinds)
    return {"layer_pattern": pattern, "num_blocks": len(pattern)}


_GRANITE: Sources = {
    **SHAPE,
    **TIED,
    **ATTENTION_BIAS,
    "feedforward": _granite_feedforward,
    "activation": Key("hidden_act", "silu", str, words=GATED),
    "norm": "rmsnorm",
    "rotary": _granite_rotary,
    "num_experts": Key("num_local_experts", 0, null=0),
    "experts_per_token": _granite_each,
    "shared_feedforward": _granite_shared,
    "linear_attention": "mamba2",
    "ssm_heads": Key("mamba_n_heads", 128),
    "ssm_head_dim": Key("mamba_d_head", 64),
    "ssm_state": Key("mamba_d_state", 256),
    "ssm_groups": Key("mamba_n_groups", 1),
    "ssm_conv": Key("mamba_d_conv", 4),
    "ssm_chunk": Key("mamba_chunk_size", 256),
}

_NEXT = Family(reads=READS, fields=_DELTA, blocks=_period)

FAMILIES = {
    "qwen3_next": _NEXT,
    **{
        kind: Family(
            reads=(*READS, "vision_config"),
            fields=_DELTA_PREDICTING,
            blocks=_period,
            inside=inside,
        )
        for kind, inside in {"qwen3_5_moe": "text_config", "qwen3_5_moe_text": ""}.items()
    },
    **dict.fromkeys(
        ("minimax", "minimax_text_01"),
        Family(
            reads=RELEASED,
            fields=_MINIMAX,
            blocks=_period,
            only={"shared_intermediate_size": (0, [0])},
        ),
    ),
    "granitemoehybrid": Family(
        reads=READS, fields=_GRANITE, blocks=_granite_blocks, only=_STATE_BIASES
    ),
    "nemotron_h": Family(
        reads=(*RELEASED, "num_nextn_predict_layers", "moe_latent_size"),
        fields=_NEMOTRON_H,
        blocks=_parts,
        only=_STATE_BIASES,
    ),
}
"""Families by ``model_type``."""
