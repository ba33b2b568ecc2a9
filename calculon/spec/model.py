"""The model: the shape of a transformer of equal blocks."""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, ClassVar

from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.spec.fields import check_record, declare, optional_defaults
from calculon.spec.origin import Origin

PUBLISHED_FIELDS = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
"""The fields of the published tool: alone they mean its block, as GPT-3 has it."""

GATED = ("swiglu", "geglu")
"""Activations of one product that scale another (Shazeer, *GLU variants*, arXiv 2002.05202)."""

PARTS = ("block", "attention", "mlp", "linear")
"""Kinds of the ``num_blocks`` equal blocks: a whole transformer block, or a part of one."""

_OF_ENDS = ("vocab", "tied", "positions", "embedding_norm", "head_bias")
"""Fields of embedding and LM head, which a chain of parts does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Shape of a transformer (the *application* of the published tool).

    The optional fields need the corrected edition. Embedding, head and loss count when ``vocab`` is stated.
    With another ``part`` than a whole block, fields of what is left out do not count.
    """

    unknown_keys: ClassVar[str] = "warning"
    silent_keys: ClassVar[tuple[str, ...]] = ("ext", "about", "calibration")

    hidden: int = declare("width of the residual stream", unit="elements", at_least=1)
    feedforward: int = declare("inner width of the MLP", unit="elements", at_least=1)
    seq_size: int = declare("sequence length", unit="tokens", at_least=1)
    attn_heads: int = declare("attention heads per block", at_least=1)
    attn_size: int = declare("width of one attention head", unit="elements", at_least=1)
    num_blocks: int = declare("transformer blocks", at_least=1)
    kv_heads: int = declare(
        "key/value heads per block (grouped- or multi-query attention); 0: as many as attn_heads",
        at_least=0,
        default=0,
    )
    activation: str = declare(
        "activation of the MLP; swiglu and geglu scale the product of a second matrix",
        choices=("gelu", "relu", "squared_relu", *GATED),
        default="gelu",
    )
    norm: str = declare(
        "normalisation: with gain and bias, without bias, without either, or RMS with gain",
        choices=("layernorm", "layernorm_no_bias", "layernorm_plain", "rmsnorm"),
        default="layernorm",
    )
    norms: int = declare(
        "norms per block: before attention and MLP (2), before and after each (4), one for both (1)",
        at_least=1,
        at_most=4,
        default=2,
    )
    qk_norm: str = declare(
        "norm of queries and keys: none, over each head, or over the full width",
        choices=("none", "head", "full"),
        default="none",
    )
    qkv_bias: bool = declare("query, key and value projections have a bias", default=False)
    out_bias: bool = declare("the output projection of attention has a bias", default=False)
    mlp_bias: bool = declare("the products of the MLP have a bias", default=False)
    head_bias: bool = declare("the output head has a bias", default=False)
    parallel_attention: bool = declare(
        "attention and MLP read the same normalised input, and are reduced together", default=False
    )
    dropout: bool = declare("dropout after attention, MLP and softmax", default=True)
    rotary: float = declare(
        "share of each query and key head that rotary position embeddings turn; 0: none",
        at_least=0,
        at_most=1,
        default=0.0,
    )
    causal: bool = declare(
        "tokens attend to those before them only; flash attention skips the others", default=True
    )
    sliding_window: int = declare(
        "tokens that a token attends to in blocks with a sliding window; 0: no such blocks",
        unit="tokens",
        at_least=0,
        default=0,
    )
    full_attention_every: int = declare(
        "with a sliding window: one block in so many attends to the whole sequence; 0: none does",
        at_least=0,
        default=0,
    )
    vocab: int = declare(
        "vocabulary; 0: embedding, head and loss are left out",
        unit="tokens",
        at_least=0,
        default=0,
    )
    tied: bool = declare("embedding and head share their weights", default=False)
    positions: int = declare(
        "rows of a table of learned positions; 0: none", unit="tokens", at_least=0, default=0
    )
    embedding_norm: bool = declare("a norm follows the embedding", default=False)
    part: str = declare(
        "what each block is: all of it; attention or MLP alone, with neither norm nor residual sum; or one linear "
        "layer, hidden wide, and its activation",
        choices=PARTS,
        default="block",
    )
    name: str = field(default="model", compare=False)
    origin: Origin | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", None)
        check_record(self)
        if problems := list(self._contradictions()):
            raise SpecError("Model", problems)

    def _contradictions(self) -> Iterator[Problem]:
        """Yield the contradictions between fields."""
        counts = (1, 2) if self.parallel_attention else (2, 4)
        if self.norms not in counts:
            kind = "attention and MLP" if self.parallel_attention else "attention, then MLP"
            wanted = f"{counts[0]} or {counts[1]}, in a block of {kind}"
            hint = "parallel_attention says which of the two a block is"
            yield Problem("norms", wanted, str(self.norms), hint)
        if self.kv_heads and self.attn_heads % self.kv_heads:
            yield Problem(
                "kv_heads", f"a divisor of attn_heads={self.attn_heads}", str(self.kv_heads)
            )
        if self.part != "block" and self.vocab:
            wanted = f"0, since part={self.part} has neither embedding nor head"
            yield Problem("vocab", wanted, str(self.vocab))
        if self.part == "linear" and self.feedforward != self.hidden:
            wanted = f"hidden={self.hidden}, since part=linear is one square product"
            yield Problem(
                "feedforward", wanted, str(self.feedforward), "part: mlp has two products"
            )
        if self.part == "linear" and self.gated:
            wanted = "one without a gate, since part=linear is one product"
            yield Problem("activation", wanted, self.activation, "part: mlp may have a gate")

    @property
    def extensions(self) -> dict[str, Any]:
        """The optional fields that do not have their default: what edition sc23 cannot express."""
        defaults = optional_defaults(Model)
        return {name: v for name in defaults if (v := getattr(self, name)) != defaults[name]}

    @property
    def key_value_heads(self) -> int:
        """Key/value heads of a block."""
        return self.kv_heads or self.attn_heads

    @property
    def groups_queries(self) -> bool:
        """Whether several query heads share each of several key/value heads."""
        return self.kv_heads not in (0, 1, self.attn_heads)

    @property
    def gated(self) -> bool:
        """Whether the MLP has a gate: two column-split products in place of one."""
        return self.activation in GATED

    @property
    def attends(self) -> bool:
        """Whether a block has attention."""
        return self.part in ("block", "attention")

    @property
    def feeds_forward(self) -> bool:
        """Whether a block has products of the MLP."""
        return self.part != "attention"

    @property
    def biased_output(self) -> bool:
        """Whether any product that tensor parallelism splits by rows has a bias."""
        if self.part == "linear":
            return False
        return (self.attends and self.out_bias) or (self.feeds_forward and self.mlp_bias)

    def only(self, part: str) -> "Model":
        """Return a chain of one part of this model's blocks, without embedding and LM head.

        Raises
        ------
        SpecError
            Where the part does not exist: a linear layer needs ``feedforward`` equal to ``hidden``, and no gate.
        """
        if part == "block":
            return replace(self, part=part)
        defaults = optional_defaults(Model)
        return replace(self, part=part, **{name: defaults[name] for name in _OF_ENDS})

    def published(self) -> "Model":
        """Return the shape that the six published fields describe."""
        return Model(**{name: getattr(self, name) for name in PUBLISHED_FIELDS}, name=self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a model file: the published six, then those that differ from their default."""
        return {name: getattr(self, name) for name in PUBLISHED_FIELDS} | self.extensions
