"""Families with multi-head latent attention, and experts after leading dense blocks: DeepSeek-V2 and its successors."""

from dataclasses import replace

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import (
    GATED,
    PREDICTED,
    SHAPE,
    Family,
    Fields,
    Rule,
    Sources,
)
from calculon.declarations.families.mixtures import READS, RELEASED, all_shared

_LATENT = ("kv_lora_rank", "q_lora_rank")

INDEXED = "index_topk"
"""Key of the number of keys that an indexer selects per query. Models cannot express it, so all keys are attended."""


def _groups(methods: tuple[str, ...], usual: str, groups: int, reached: int) -> Sources:
    """Return fields for the groups of experts and the groups per token: 0 unless the routing method selects groups.

    Args:
        methods: Methods that select groups first.
        usual, groups, reached: Defaults of missing keys.
    """
    method = Key("topk_method", usual, str)
    counts = {
        "router_groups": Key("n_group", groups, null=1),
        "router_group_topk": Key("topk_group", reached, null=1),
    }

    def rule(field: str) -> Rule:
        def number(config: Configuration, _: Fields) -> int:
            found = {name: int(config.read(key)) for name, key in counts.items()}
            limits = found["router_group_topk"] < found["router_groups"]
            return found[field] if limits and config.read(method) in methods else 0

        return number

    return {field: rule(field) for field in counts}


def _corrected(config: Configuration, _: Fields) -> bool:
    """Return True if the router has a bias per expert, which balances loads without an auxiliary loss."""
    return bool(config.read(Key("topk_method", "noaux_tc", str)) == "noaux_tc")


_DEEPSEEK: Sources = {
    **{name: source for name, source in SHAPE.items() if name != "kv_heads"},
    "activation": Key("hidden_act", "silu", str, words=GATED),
    "norm": "rmsnorm",
    "q_lora_rank": Key("q_lora_rank", 1536, null=0),
    "kv_lora_rank": Key("kv_lora_rank", 512),
    "qk_nope_head_dim": Key("qk_nope_head_dim", 128),
    "qk_rope_head_dim": Key("qk_rope_head_dim", 64),
    "v_head_dim": Key("v_head_dim", 128),
    "attn_size": lambda _, fields: fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"],
    "num_experts": Key("n_routed_experts"),
    "experts_per_token": Key("num_experts_per_tok"),
    "expert_feedforward": Key("moe_intermediate_size"),
    "shared_feedforward": all_shared,
    "first_k_dense": Key("first_k_dense_replace"),
}
_V2 = _DEEPSEEK | _groups(("group_limited_greedy",), "greedy", 1, 1)
_V3 = (
    _DEEPSEEK
    | {"router_bias": _corrected, **PREDICTED}
    | _groups(("group_limited_greedy", "noaux_tc"), "noaux_tc", 8, 4)
)
_ONLY = {"attention_bias": (False,), "mlp_bias": (False,), "moe_layer_freq": (1,)}
_EQUAL = {"num_key_value_heads": "attn_heads"}
_TRAINED = Family(reads=(*RELEASED, *_LATENT), fields=_V3, only=_ONLY, equal=_EQUAL)

FAMILIES = {
    "deepseek_v2": Family(reads=(*READS, *_LATENT), fields=_V2, only=_ONLY, equal=_EQUAL),
    **dict.fromkeys(("deepseek_v3", "kimi_k2"), _TRAINED),
    **dict.fromkeys(
        ("deepseek_v32", "glm_moe_dsa"), replace(_TRAINED, reads=(*_TRAINED.reads, INDEXED))
    ),
}
"""Families by ``model_type``."""
