"""The declaration of a family of transformers, and the fields that many families share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations.families.configuration import Configuration, Key

Fields = Mapping[str, Any]
"""Fields of a model that are known so far."""

Rule = Callable[[Configuration, Fields], Any]
"""A field derived from several keys; rules come after the fields that have a key of their own."""

Sources = dict[str, Key | Rule | str | float]
"""Where each field of a model comes from; a field that is not named keeps its default."""


REGULAR = "the whole sequence in all blocks, in none, or in one of every n blocks"
"""Patterns of full attention next to a sliding window, for a message."""


def no_block(_: Configuration, __: Fields) -> int:
    """Return 0: no block attends to the whole sequence."""
    return 0


def one_in(blocks: Sequence[bool]) -> int | None:
    """Return n where the last of every n blocks is true, 0 where none is; None for another pattern.

    >>> one_in([False, True, False, True]), one_in([False]), one_in([True, False])
    (2, 0, None)
    """
    every = blocks.index(True) + 1 if True in blocks else 0
    regular = all(one == (every > 0 and (i + 1) % every == 0) for i, one in enumerate(blocks))
    return every if regular else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the configurations of one ``model_type`` are read.

    Attributes:
        fields: For each field of a model its key, its rule, or its value in the whole family.
        window: Tokens of the sliding window; 0 for none.
        full_every: One of every n blocks attends to the whole sequence, where there is a window and no ``layer_types``;
            0: none.
        chunked: Its windows do not slide: they begin anew after so many tokens.
        only: Keys, each with the values that a model can express.
        equal: Keys, each with the field that it must be equal to.
        blocks: Fields that say which block has what, from lists and patterns: others than those of windows. None leaves
            a field that was read at its default.
        inside: Key of the object that describes the text model of several.
        reads: Keys of features that it reads, or need not read, where others are refused.
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
"""Activations of an MLP that has a gate."""

PLAIN = {"relu": "relu", "relu2": "squared_relu", **dict.fromkeys(_GELUS, "gelu")}
"""Activations of an MLP that has none."""


def switch(name: str, default: Any) -> Key:
    """Return a key that is true or false."""
    return Key(name, default, bool)


def dropout(*names: str, default: float = 0.0) -> Rule:
    """Return a rule for whether any of these probabilities is above 0."""
    keys = [Key(name, default, float) for name in names]
    return lambda config, _: max(config.read(key) for key in keys) > 0


def inner(name: str) -> Rule:
    """Return a rule for the stated width of the MLP, or four times the hidden width."""
    return lambda config, fields: config.read(Key(name, 0)) or 4 * fields["hidden"]


def rotary(default: float) -> Key:
    """Return the key of the share of a head that rotary position embeddings turn."""
    also = ("rotary_pct", "rope_parameters.partial_rotary_factor")
    return Key("partial_rotary_factor", default, float, also)


def head_size(config: Configuration, fields: Fields) -> int:
    """Return the stated width of a head, or its share of the hidden width."""
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
"""The usual keys of a shape."""

TIED: Sources = {"tied": switch("tie_word_embeddings", default=True)}
"""Embedding and head share weights unless the configuration says otherwise."""

ATTENTION_BIAS: Sources = dict.fromkeys(
    ("qkv_bias", "out_bias"), switch("attention_bias", default=False)
)
"""One key for the biases of all projections of attention."""

ALL_BIASES: Sources = {"qkv_bias": True, "out_bias": True, "mlp_bias": True}
"""Every product of a block has a bias."""

PREDICTED: Sources = {"mtp_layers": Key("num_nextn_predict_layers", 0, null=0)}
"""Modules that predict further tokens."""
