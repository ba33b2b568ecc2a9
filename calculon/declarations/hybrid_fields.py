"""Fields of hybrid models, in which some blocks lack softmax attention, and checks for contradictions between them."""

from collections.abc import Iterator, Sequence
from typing import Any

from calculon.base.errors import Problem
from calculon.declarations.fields import optional_defaults

LINEAR_KINDS = ("gated_delta", "mamba2", "lightning")
"""Linear attention, with cost linear in the sequence length: a state of fixed size replaces the KV cache.

Source: Yang et al., *Gated Delta Networks*, arXiv 2412.06464; Dao and Gu, *Mamba-2*, arXiv 2405.21060; Qin et al.,
*Lightning Attention-2*, arXiv 2401.04658.
"""

LETTERS = "M*-E"
"""Parts of a ``layer_pattern``: linear attention, softmax attention, MLP, experts.

Source: Megatron-LM, ``core/ssm/mamba_hybrid_layer_allocation.py``, ``--hybrid-override-pattern``.
"""

_OF_KIND: dict[str, tuple[str, ...]] = {
    "gated_delta": (
        "linear_key_heads",
        "linear_value_heads",
        "linear_key_dim",
        "linear_value_dim",
        "linear_conv",
    ),
    "mamba2": ("ssm_heads", "ssm_head_dim", "ssm_state", "ssm_groups", "ssm_conv", "ssm_chunk"),
    "lightning": (),
}
"""Fields that apply to one kind of linear attention only."""

_HEADS = {"gated_delta": ("linear_key_heads", "linear_value_heads"), "mamba2": ("ssm_heads",)}
"""Fields of each kind that must be stated."""

OF_LINEAR = ("linear_attention", *(name for names in _OF_KIND.values() for name in names))
"""Fields of linear attention."""

OF_SOFTMAX = (
    "kv_heads",
    "qk_norm",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "qkv_bias",
    "out_bias",
    "rotary",
    "sliding_window",
    "chunked_window",
    "attention_sinks",
    "attention_gate",
)
"""Fields that apply to softmax attention only."""

_NOT_LINEAR = {
    "causal": "its state holds only earlier tokens",
    "kv_lora_rank": "latent attention in the other blocks is not modeled",
    "parallel_attention": "it shares no product with the MLP",
}
"""Fields that linear attention cannot be combined with, and the reason."""

_NOT_IN_PARTS = {
    "full_attention_every": "it defines the kind of each block",
    "first_k_dense": "it defines the kind of each block",
    "moe_layer_freq": "it defines the kind of each block",
    "kv_lora_rank": "latents in parts of blocks are not modeled",
    "norms": "each part has one norm",
    "parallel_attention": "its parts run one after the other",
    "part": "it defines the part of each block",
}
"""Fields that a pattern of parts cannot be combined with, and the reason."""


def hybrid_contradictions(model: Any) -> Iterator[Problem]:
    """Yield contradictions of linear attention, and of a pattern of parts, in a model record."""
    yield from _of_other_kinds(model)
    if model.linear_attention != "none":
        yield from _of_linear(model)
        if not model.layer_pattern:
            yield from _of_period(model)
    if model.layer_pattern:
        yield from _of_pattern(model)
    if not model.has_softmax and model.part in ("block", "attention"):
        yield from _stated(model, OF_SOFTMAX, "no block has attention with softmax")


def _stated(model: Any, names: Sequence[str], why: str, hint: str = "") -> Iterator[Problem]:
    """Yield a problem for each named field that differs from its default, with the reason why it must not."""
    record: Any = type(model)
    defaults = optional_defaults(record)
    for name in names:
        if (value := getattr(model, name)) != defaults[name]:
            yield Problem(name, f"{_text(defaults[name])}, since {why}", _text(value), hint)


def _text(value: Any) -> str:
    """Return a value in the notation of files."""
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def _of_other_kinds(model: Any) -> Iterator[Problem]:
    """Yield fields of another kind of linear attention than the kind of the model."""
    kind = model.linear_attention
    for of, names in _OF_KIND.items():
        if of != kind:
            why = f"linear_attention is {kind}"
            yield from _stated(model, names, why, f"it applies to {of} only")


def _of_linear(model: Any) -> Iterator[Problem]:
    """Yield fields that linear attention lacks or cannot be combined with."""
    kind = model.linear_attention
    for name in _HEADS.get(kind, ()):
        if not getattr(model, name):
            yield Problem(name, f"at least 1, since linear_attention is {kind}", "0")
    keys, values = model.linear_key_heads, model.linear_value_heads
    if kind == "gated_delta" and keys and values % keys:
        yield Problem("linear_value_heads", f"a multiple of linear_key_heads={keys}", str(values))
    if kind == "mamba2" and model.ssm_heads % model.ssm_groups:
        wanted = f"a divisor of ssm_heads={model.ssm_heads}"
        yield Problem("ssm_groups", wanted, str(model.ssm_groups))
    for name, why in _NOT_LINEAR.items():
        yield from _stated(model, (name,), f"linear_attention is {kind}: {why}")


def _of_period(model: Any) -> Iterator[Problem]:
    """Yield contradictions of linear attention in all blocks, or in all but one of every n."""
    every, kind = model.full_attention_every, model.linear_attention
    if every == 1 or every > model.num_blocks:
        wanted = f"0, or from 2 to num_blocks={model.num_blocks}, since linear_attention is {kind}"
        yield Problem("full_attention_every", wanted, str(every), "1 leaves no block with it")
    if every:
        hint = "blocks with softmax have full attention; layer_pattern supports windows"
        yield from _stated(model, ("sliding_window",), f"linear_attention is {kind}", hint)


def _of_pattern(model: Any) -> Iterator[Problem]:
    """Yield contradictions of a pattern of parts with itself and with other fields."""
    pattern = model.layer_pattern
    if strange := sorted(set(pattern) - set(LETTERS)):
        hint = "M linear attention, * attention, - MLP, E experts"
        yield Problem("layer_pattern", f"letters of {LETTERS}", "".join(strange), hint)
    if len(pattern) != model.num_blocks:
        wanted = f"a letter for each of num_blocks={model.num_blocks}"
        yield Problem("layer_pattern", wanted, f"{len(pattern)} letters", "a letter is a block")
    for letter, name, some in (
        ("M", "linear_attention", "a kind of it"),
        ("E", "num_experts", "at least 1"),
    ):
        if letter not in pattern:
            yield from _stated(model, (name,), f"layer_pattern has no letter {letter}")
        elif not list(_stated(model, (name,), "")):
            wanted = f"{some}, since layer_pattern has the letter {letter}"
            yield Problem(name, wanted, str(getattr(model, name)))
    if "-" not in pattern:
        yield from _stated(model, ("mlp_bias",), "layer_pattern has no letter -")
    if not ("*" in pattern and {*"-E"} & {*pattern}):
        why = "layer_pattern has no letter *, or neither - nor E: a module has both parts"
        yield from _stated(model, ("mtp_layers",), why)
    for name, why in _NOT_IN_PARTS.items():
        yield from _stated(model, (name,), f"layer_pattern is stated: {why}")
