"""Declaration of a model family, and fields that many families share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.families.configuration import Configuration, Key

Fields = Mapping[str, Any]
"""Fields of a model known so far."""

Rule = Callable[[Configuration, Fields], Any]
"""Function that derives a field from several keys; rules run after the fields with a key."""

Sources = dict[str, Key | Rule | str | float]
"""Source of each field of a model; fields that are not listed keep their default."""


REGULAR = "the whole sequence in all blocks, in none, or in one of every n blocks"
"""Patterns of full attention next to a sliding window, for a message."""


def no_block(_: Configuration, __: Fields) -> int:
    """Return 0: no block has full attention."""
    return 0


def one_in(blocks: Sequence[bool]) -> int | None:
    """Return n if the last of every n blocks is true, 0 if none is, None for any other pattern.

    >>> one_in([False, True, False, True]), one_in([False]), one_in([True, False])
    (2, 0, None)
    """
    every = blocks.index(True) + 1 if True in blocks else 0
    regular = all(one == (every > 0 and (i + 1) % every == 0) for i, one in enumerate(blocks))
    return every if regular else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Reader of the configurations of one ``model_type``.

    Attributes:
        fields: For each field of a model its key, its rule, or its constant value in the family.
        window: Tokens of the sliding window; 0 for none.
        full_every: One of every n blocks has full attention, if there is a window and no ``layer_types``; 0: none.
        chunked: Windows restart after a fixed number of tokens instead of sliding.
        only: Keys, each with the values that a model can express.
        equal: Keys, each with the field that it must equal.
        blocks: Rule for fields that depend on lists and patterns of blocks, other than windows. It returns None for a
            field that was read but keeps its default.
        inside: Key of the object that describes the text model of a multimodal one.
        reads: Keys of features that it reads or may ignore, although other families refuse them.
    """

    fields: Sources
    window: Key | Rule | None = None
    full_every: Rule = no_block
    chunked: bool = False
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    equal: Mapping[str, str] = field(default_factory=dict)
    blocks: Rule | None = None
    inside: str = ""
    reads: tuple[str, ...] = ()


_GELUS = ("gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh")
GATED = {"silu": "swiglu", "swish": "swiglu", **dict.fromkeys(_GELUS, "geglu")}
"""Activations of a gated MLP."""

PLAIN = {"relu": "relu", "relu2": "squared_relu", **dict.fromkeys(_GELUS, "gelu")}
"""Activations of an MLP without gate."""


def switch(name: str, default: Any) -> Key:
    """Return a key with a boolean value."""
    return Key(name, default, bool)


def dropout(*names: str, default: float = 0.0) -> Rule:
    """Return a rule that is true if any of these probabilities is above 0."""
    keys = [Key(name, default, float) for name in names]
    return lambda config, _: max(config.read(key) for key in keys) > 0


def inner(name: str) -> Rule:
    """Return a rule for the MLP width: as stated, or four times the hidden width."""
    return lambda config, fields: config.read(Key(name, 0)) or 4 * fields["hidden"]


def rotary(default: float) -> Key:
    """Return the key of the share of each head with rotary position embeddings."""
    also = ("rotary_pct", "rope_parameters.partial_rotary_factor")
    return Key("partial_rotary_factor", default, float, also)


def head_size(config: Configuration, fields: Fields) -> int:
    """Return the width of a head: as stated, or the hidden width divided by the number of heads."""
    size: int = config.read(Key("head_dim", 0))
    hidden, heads = fields["hidden"], fields["attn_heads"]
    if not size and hidden % heads:
        config.refuse("head_dim", f"a width, as {heads} heads do not divide {hidden}", "nothing")
    return size or hidden // heads


SHAPE: Sources = {
    "hidden": Key("hidden_size"),
    "feedforward": Key("intermediate_size"),
    "seq_size": Key("max_position_embeddings"),
    "attn_heads": Key("num_attention_heads"),
    "attn_size": head_size,
    "num_blocks": Key("num_hidden_layers"),
    "kv_heads": Key("num_key_value_heads", 0),
    "dropout": dropout("attention_dropout"),
    "vocab": Key("vocab_size"),
    "tied": switch("tie_word_embeddings", default=False),
}
"""Usual keys of the shape of a model."""

TIED: Sources = {"tied": switch("tie_word_embeddings", default=True)}
"""Embedding and head share weights unless the configuration states otherwise."""

ATTENTION_BIAS: Sources = dict.fromkeys(
    ("qkv_bias", "out_bias"), switch("attention_bias", default=False)
)
"""One key for the biases of all attention projections."""

ALL_BIASES: Sources = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
"""Every product of a block has a bias."""

PREDICTED: Sources = {"mtp_layers": Key("num_nextn_predict_layers", 0, null=0)}
"""Multi-token prediction modules."""
