"""Fields of a model that several keys of a configuration decide together."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.declarations.families.configuration import Configuration, Key
from calculon.declarations.families.family import Fields, Rule
from calculon.declarations.fields import shown
from calculon.declarations.hybrid_fields import OF_LINEAR, OF_SOFTMAX

REGULAR = "the whole sequence in all blocks, in none, or in one of every n blocks"
"""Patterns of full attention next to a sliding window, for a message."""

_PERIODIC = "linear attention in all blocks, or in all but the last of every n"
_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
_DROPOUTS = (
    *("resid_pdrop", "embd_pdrop", "emb_pdrop", "attn_pdrop", "attn_config.attn_pdrop"),
    *("attention_dropout", "hidden_dropout", "embedding_dropout", "residual_dropout"),
)


def switch(name: str, default: Any) -> Key:
    """Return a key with a boolean value."""
    return Key(name, default, bool)


def one_in(blocks: Sequence[bool]) -> int | None:
    """Return n if the last of every n blocks is true, 0 if none is, None for any other pattern.

    >>> one_in([False, True, False, True]), one_in([False]), one_in([True, False])
    (2, 0, None)
    """
    every = blocks.index(True) + 1 if True in blocks else 0
    regular = all(one == (every > 0 and (i + 1) % every == 0) for i, one in enumerate(blocks))
    return every if regular else None


def listed(config: Configuration, name: str, known: Sequence[Any], blocks: int) -> list[Any] | None:
    """Return the kind of each block, as listed under a name; None without a list."""
    kinds = config.get(name)
    if kinds is None:
        return None
    if (
        not isinstance(kinds, list)
        or len(kinds) != blocks
        or any(one not in known for one in kinds)
    ):
        wanted = f"{' or '.join(map(str, known))} for each of {blocks} blocks"
        config.refuse(name, wanted, shown(kinds))
    return kinds


def full_every(
    config: Configuration, name: str, full: Any, other: Sequence[Any], blocks: int
) -> int | None:
    """Return n if one in n listed blocks has full attention, 0 if none has; None without a list."""
    kinds = listed(config, name, (full, *other), blocks)
    if kinds is None:
        return None
    every = one_in([kind == full for kind in kinds])
    if every is None:
        config.refuse(name, REGULAR, shown(kinds))
    return every


# -- sizes ------------------------------------------------------------------------------------------------------------


def dropout(*names: str, default: float = 0.0) -> Rule:
    """Return a rule that is true if any of these probabilities is above 0; by default all usual names."""
    keys = [Key(name, default, float) for name in names or _DROPOUTS]
    return lambda config, _: max(config.read(key) for key in keys) > 0


def inner(name: str) -> Rule:
    """Return a rule for the MLP width: as stated, or four times the hidden width."""
    return lambda config, fields: config.read(Key(name, 0)) or 4 * fields["hidden"]


def head_size(config: Configuration, fields: Fields) -> int:
    """Return the width of a head: as stated, or the hidden width divided by the number of heads."""
    size: int = config.read(Key("head_dim", 0, also=("attention_head_dim", "kv_channels")))
    hidden, heads = fields["hidden"], fields["attn_heads"]
    if not size and hidden % heads:
        config.refuse("head_dim", f"a width, as {heads} heads do not divide {hidden}", "nothing")
    return size or hidden // heads


def value_size(config: Configuration, fields: Fields) -> int:
    """Return the width of a value head: as stated, or the hidden width divided by the number of heads."""
    stated: int = config.read(Key("v_head_dim", 0))
    return stated or fields["hidden"] // fields["attn_heads"]


def latent_size(_: Configuration, fields: Fields) -> int:
    """Return the width of a query head of latent attention."""
    return int(fields["qk_nope_head_dim"] + fields["qk_rope_head_dim"])


def rotary(default: float) -> Rule:
    """Return a rule for the share of each head with rotary position embeddings."""
    also = ("rotary_pct", "rope_parameters.partial_rotary_factor")
    share = Key("partial_rotary_factor", default, float, also)

    def rule(config: Configuration, fields: Fields) -> float:
        width: int = config.read(Key("rotary_dim", 0, null=0))
        return min(width / fields["attn_size"], 1.0) if width else float(config.read(share))

    return rule


def either(key: Key, if_true: Any, if_false: Any) -> Rule:
    """Return a rule that selects one of two values by a switch."""
    return lambda config, _: if_true if config.read(key) else if_false


# -- sliding windows --------------------------------------------------------------------------------------------------

WINDOW = Key("sliding_window", 4096, null=0)


def shorter_window(config: Configuration, fields: Fields) -> int:
    """Return the window; 0 for one as long as the sequence."""
    tokens: int = config.read(Key("sliding_window", 0, null=0))
    return tokens if tokens < fields["seq_size"] else 0


def used_window(config: Configuration, _: Fields) -> int:
    """Return the stated window if it is in use, else 0."""
    return config.read(WINDOW) if config.read(switch("use_sliding_window", default=False)) else 0


def first_blocks(config: Configuration, fields: Fields) -> int:
    """Return 1 if the first blocks have full attention (only accepted for all blocks), else 0."""
    first = config.read(Key("max_window_layers", 28))
    if 0 < first < fields["num_blocks"]:
        config.refuse("max_window_layers", REGULAR, str(first))
    return int(first > 0)


def period(default: int) -> Rule:
    """Return a rule for the period of full attention: a number, or a text with a letter for each of its blocks."""
    names = ("sliding_window_pattern", "_sliding_window_pattern")

    def rule(config: Configuration, _: Fields) -> int:
        for name in names:
            if isinstance(text := config.get(name), str) and one_in(
                [c == "G" for c in text]
            ) == len(text):
                return len(text)
        return int(config.read(Key(names[0], default, also=names[1:])))

    return rule


def without_rotary(config: Configuration, fields: Fields) -> int:
    """Return n if one in n blocks has no rotary positions; such blocks of Llama 4 attend to the whole sequence."""
    if config.get("no_rope_layers"):
        return full_every(config, "no_rope_layers", 0, (1,), fields["num_blocks"]) or 0
    return int(config.read(Key("no_rope_layer_interval", 4)))


# -- experts ----------------------------------------------------------------------------------------------------------


def step(name: str) -> Rule:
    """Return a rule for n if the last of every n blocks has experts."""

    def rule(config: Configuration, _: Fields) -> int:
        every: int = config.read(Key(name, 1, null=1))
        if not every:
            config.refuse(name, "at least 1: the last of every n blocks has experts", "0")
        return every

    return rule


SPARSE, _INTERLEAVED = step("decoder_sparse_step"), step("interleave_moe_layer_step")


def first_dense(config: Configuration, fields: Fields) -> int:
    """Return the number of leading dense blocks: the listed ones, rounded down to whole periods."""
    blocks = config.get("mlp_only_layers") or []
    leading = isinstance(blocks, list) and len(blocks) < fields["num_blocks"]
    if not leading or any(block != i for i, block in enumerate(blocks)):
        wanted = "none, or the first blocks, and fewer than all"
        config.refuse("mlp_only_layers", wanted, shown(blocks))
    every: int = SPARSE(config, fields)
    return len(blocks) // every * every


def interleaved(config: Configuration, fields: Fields) -> int:
    """Return n if the last of every n blocks has experts: from the list of these blocks, or from the step."""
    blocks = config.get("moe_layers")
    if blocks is None:
        return int(_INTERLEAVED(config, fields))
    first = blocks[0] if isinstance(blocks, list) and blocks else -1
    every = first + 1 if type(first) is int else 0
    expected = range(first, fields["num_blocks"], every) if every > 0 else range(0)
    if not expected or blocks != [*expected]:
        config.refuse("moe_layers", "the last of every n blocks", shown(blocks))
    return every


def same_everywhere(name: str) -> Rule:
    """Return a rule for a number that is stated once, or once for each block."""

    def rule(config: Configuration, _: Fields) -> int:
        stated, key = config.get(name), Key(name)
        if not isinstance(stated, list):
            return int(config.read(key))
        if len({*map(str, stated)}) != 1:
            config.refuse(name, "the same number for each block", shown(stated))
        return int(Configuration({name: stated[0]}, config.file, config.path).read(key))

    return rule


def shared(count: Key, width: Key) -> Rule:
    """Return a rule for the total width of all shared experts."""

    def rule(config: Configuration, _: Fields) -> int:
        experts: int = config.read(count)
        return experts and experts * int(config.read(width))

    return rule


def router_groups(
    groups: int = 1, reached: int = 1, methods: tuple[str, ...] = (), usual: str = ""
) -> dict[str, Rule]:
    """Return rules for the groups of experts and the groups per token: 0 unless the routing method selects groups.

    Args:
        groups, reached: Defaults of missing keys.
        methods: Methods that select groups first; by default all.
        usual: Method if none is stated.
    """
    counts = {
        "router_groups": Key("n_group", groups, null=1),
        "router_group_topk": Key("topk_group", reached, null=1),
    }

    def rule(field: str) -> Rule:
        def number(config: Configuration, _: Fields) -> int:
            found = {name: int(config.read(key)) for name, key in counts.items()}
            limits = found["router_group_topk"] < found["router_groups"]
            selects = not methods or config.read(Key("topk_method", usual, str)) in methods
            return found[field] if limits and selects else 0

        return number

    return {field: rule(field) for field in counts}


def corrected(config: Configuration, _: Fields) -> bool:
    """Return True if the router has a bias per expert, which balances loads without an auxiliary loss."""
    return bool(config.read(Key("topk_method", "noaux_tc", str)) == "noaux_tc")


def minimax_norm(config: Configuration, fields: Fields) -> str:
    """Return the norm of queries and keys; blocks with linear attention are refused."""
    if config.get("attn_type_list") is not None:
        listed(config, "attn_type_list", (1,), fields["num_blocks"])
    return "full" if config.read(switch("use_qk_norm", default=True)) else "none"


def minimax_modules(config: Configuration, _: Fields) -> int:
    """Return the modules that predict further tokens, of one block each."""
    if not config.read(switch("use_mtp", default=True)):
        return 0
    modules: int = config.read(Key("num_mtp_modules", 0, null=0))
    layers: int = config.read(Key("mtp_transformer_layers", 1))
    if modules and layers != 1:
        config.refuse("mtp_transformer_layers", "1: a block for each module", str(layers))
    return modules


# -- linear attention, and blocks of one part -------------------------------------------------------------------------


def linear_period(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return the period of full attention, from a list of attention kinds or from ``full_attention_interval``."""
    blocks = fields["num_blocks"]
    name, every = "layer_types", None
    for name, full, linear in (
        ("layer_types", "full_attention", "linear_attention"),
        ("attn_type_list", 1, 0),
    ):
        kinds = listed(config, name, (linear, full), blocks)
        if kinds is not None:
            every = one_in([kind == full for kind in kinds])
            break
    else:
        name = "full_attention_interval"
        every = int(config.read(Key(name, 4)))
        every = every if every <= blocks else 0
    if every is None or every == 1:
        config.refuse(name, _PERIODIC, shown(config.get(name)))
    return {"full_attention_every": every} if every else dict.fromkeys(OF_SOFTMAX)


def _nemotron_pattern(config: Configuration, blocks: int) -> str:
    """Return the letter of each part, from the pattern or from the list of kinds."""
    name = "hybrid_override_pattern"
    pattern = config.get(name)
    kinds = (
        None if pattern is not None else listed(config, "layers_block_type", (*_LETTERS,), blocks)
    )
    if kinds is not None:
        return "".join(_LETTERS[kind] for kind in kinds)
    if not isinstance(pattern, str) or {*pattern} - {*_LETTERS.values()} or len(pattern) != blocks:
        wanted = f"one of the letters M, *, - and E for each of {blocks} layers"
        found = "nothing (the key is missing)" if pattern is None else shown(pattern)
        config.refuse(name, wanted, found)
    return pattern


def nemotron_parts(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return the fields of parts; fields of kinds that the pattern lacks keep their defaults."""
    pattern = _nemotron_pattern(config, fields["num_blocks"])
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
    count, width = Key("n_shared_experts", 1, null=0), Key("moe_shared_expert_intermediate_size")
    limits = {name: rule(config, fields) for name, rule in router_groups().items()}
    return {
        "num_experts": config.read(Key("n_routed_experts")),
        "experts_per_token": config.read(Key("num_experts_per_tok")),
        "expert_feedforward": config.read(Key("moe_intermediate_size")),
        "shared_feedforward": shared(count, width)(config, fields),
        "moe_latent": config.read(Key("moe_latent_size", 0, null=0)),
        "router_bias": True,
    } | limits


def with_experts(source: Key | Rule, default: int) -> Rule:
    """Return a rule for a field of experts; the default without routed experts."""

    def rule(config: Configuration, fields: Fields) -> int:
        if not fields["num_experts"]:
            return default
        return int(config.read(source) if isinstance(source, Key) else source(config, fields))

    return rule


def granite_feedforward(config: Configuration, _: Fields) -> int:
    """Return the width of the MLP; without routed experts it is the width of the shared experts."""
    routed = config.read(Key("num_local_experts", 0, null=0))
    return int(config.read(Key("intermediate_size" if routed else "shared_intermediate_size")))


def granite_rotary(config: Configuration, _: Fields) -> float:
    """Return the share of each head with rotary position embeddings: all or none."""
    words: Mapping[str, float] = {"rope": 1.0, "nope": 0.0}
    return float(config.read(Key("position_embedding_type", "rope", str, words=words)))


def _attention_or_mamba(config: Configuration, blocks: int) -> list[str]:
    """Return the kind of each block, from a list of kinds or from a list of the blocks with attention."""
    for name in ("layer_types", "layers_block_type"):
        if kinds := listed(config, name, ("mamba", "attention"), blocks):
            return kinds
    places = config.get("attn_layer_indices")
    if not isinstance(places, list):
        wanted = f"mamba or attention for each of {blocks} blocks"
        config.refuse("layer_types", wanted, "nothing (the key is missing)")
    return ["attention" if block in places else "mamba" for block in range(blocks)]


def mamba_blocks(config: Configuration, fields: Fields) -> dict[str, Any]:
    """Return a period if the last of every n blocks has attention, else a pattern with two parts per block."""
    kinds = _attention_or_mamba(config, fields["num_blocks"])
    every = one_in([kind == "attention" for kind in kinds])
    if every == 1:
        return dict.fromkeys(OF_LINEAR)
    if every is not None:
        return {"full_attention_every": every} if every else dict.fromkeys(OF_SOFTMAX)
    # Other arrangements need a pattern, in which attention and its MLP are separate parts with one letter each.
    second = "E" if fields.get("num_experts") else "-"
    pattern = "".join(_LETTERS[kind] + second for kind in kinds)
    return {"layer_pattern": pattern, "num_blocks": len(pattern)}
