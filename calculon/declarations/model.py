"""The model: the shape of a transformer of equal blocks."""

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Any, ClassVar

from calculon.base.display import Displayed
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import check_record, declare, optional_defaults
from calculon.declarations.hybrid_fields import LINEAR_KINDS, hybrid_contradictions
from calculon.declarations.origin import Origin

PUBLISHED_FIELDS = ("hidden", "feedforward", "seq_size", "attn_heads", "attn_size", "num_blocks")
"""The fields of the published tool: alone they mean its block, as GPT-3 has it."""

GATED = ("swiglu", "geglu")
"""Activations of one product that scale another (Shazeer, *GLU variants*, arXiv 2002.05202)."""

PARTS = ("block", "attention", "mlp", "linear")
"""Kinds of the ``num_blocks`` equal blocks: a whole transformer block, or a part of one."""

LATENT_WIDTHS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Widths of a head of latent attention: of query and key without and with rotary positions, and of a value."""

_NOT_LATENT = {
    "kv_heads": "every query head has a key and a value of its own",
    "qk_norm": "the latents are normalised",
    "rotary": "qk_rope_head_dim states what is turned",
    "qkv_bias": "no projection to or from a latent has a bias",
    "parallel_attention": "the MLP cannot share a product with what reads latents",
    "attention_gate": "queries come from a latent, and no gate beside them",
}
"""Fields that say nothing of latent attention, and why."""

OF_EXPERTS = (
    "experts_per_token",
    "expert_feedforward",
    "shared_feedforward",
    "shared_gate",
    "first_k_dense",
    "moe_layer_freq",
    "router_bias",
    "expert_bias",
    "moe_latent",
    "router_groups",
    "router_group_topk",
)
"""Fields that say something of experts only."""

_OF_ENDS = ("vocab", "tied", "positions", "embedding_norm", "head_bias", "mtp_layers")
"""Fields of embedding and LM head, which a chain of parts does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Displayed):
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
    num_blocks: int = declare("transformer blocks", at_least=1, at_most=100_000)
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
    q_lora_rank: int = declare(
        "with kv_lora_rank: width of the latent that queries are projected to and from; 0: one full projection",
        unit="elements",
        at_least=0,
        default=0,
    )
    kv_lora_rank: int = declare(
        "width of the latent that keys and values are projected to and from (multi-head latent attention); 0: none",
        unit="elements",
        at_least=0,
        default=0,
    )
    qk_nope_head_dim: int = declare(
        "with kv_lora_rank: width of a query or key head without rotary positions",
        unit="elements",
        at_least=0,
        default=0,
    )
    qk_rope_head_dim: int = declare(
        "with kv_lora_rank: width of a query head with rotary positions, and of the key part that all heads share",
        unit="elements",
        at_least=0,
        default=0,
    )
    v_head_dim: int = declare(
        "with kv_lora_rank: width of a value head", unit="elements", at_least=0, default=0
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
        "with a sliding window or linear attention: one block in so many attends to the whole sequence; 0: none does",
        at_least=0,
        default=0,
    )
    chunked_window: bool = declare(
        "with a sliding window: windows restart, and tokens attend within chunks of so many tokens",
        default=False,
    )
    attention_sinks: bool = declare(
        "each query head may attend to nothing: the softmax has a learned term besides the keys",
        default=False,
    )
    attention_gate: bool = declare(
        "each query head has a gate, projected with the queries, whose sigmoid scales what attention gives",
        default=False,
    )
    linear_attention: str = declare(
        "attention of blocks without softmax, linear in the length of the sequence: gated delta rule, Mamba-2, or "
        "lightning attention with attn_heads of attn_size",
        choices=("none", *LINEAR_KINDS),
        default="none",
    )
    layer_pattern: str = declare(
        "a letter for each block, which is then one part with one norm: M linear attention, * attention, - MLP, E "
        "experts; empty: every block has attention and then an MLP or experts",
        default="",
    )
    linear_key_heads: int = declare(
        "with gated_delta: heads of queries and keys", at_least=0, default=0
    )
    linear_value_heads: int = declare(
        "with gated_delta: heads of values, several for each key head", at_least=0, default=0
    )
    linear_key_dim: int = declare(
        "with gated_delta: width of a query or key head", unit="elements", at_least=1, default=128
    )
    linear_value_dim: int = declare(
        "with gated_delta: width of a value head", unit="elements", at_least=1, default=128
    )
    linear_conv: int = declare(
        "with gated_delta: tokens of the short convolution of queries, keys and values",
        unit="tokens",
        at_least=1,
        default=4,
    )
    ssm_heads: int = declare("with mamba2: heads", at_least=0, default=0)
    ssm_head_dim: int = declare(
        "with mamba2: width of a head", unit="elements", at_least=1, default=64
    )
    ssm_state: int = declare(
        "with mamba2: size of the state of each element of a head", at_least=1, default=128
    )
    ssm_groups: int = declare(
        "with mamba2: groups of heads that share what writes and reads the state",
        at_least=1,
        default=8,
    )
    ssm_conv: int = declare(
        "with mamba2: tokens of the short convolution", unit="tokens", at_least=1, default=4
    )
    ssm_chunk: int = declare(
        "with mamba2: tokens of a chunk, between which states are handed on",
        unit="tokens",
        at_least=1,
        default=128,
    )
    num_experts: int = declare(
        "experts of each block that has some, in place of one MLP; 0: none",
        at_least=0,
        default=0,
    )
    experts_per_token: int = declare(
        "experts that the router sends each token to", at_least=1, default=1
    )
    expert_feedforward: int = declare(
        "inner width of an expert; 0: feedforward", unit="elements", at_least=0, default=0
    )
    shared_feedforward: int = declare(
        "inner width of all shared experts together, which every token passes; 0: none",
        unit="elements",
        at_least=0,
        default=0,
    )
    shared_gate: bool = declare(
        "a gate per token scales what the shared experts add", default=False
    )
    first_k_dense: int = declare(
        "leading blocks that have an MLP of width feedforward in place of experts",
        at_least=0,
        default=0,
    )
    moe_layer_freq: int = declare(
        "after the leading dense blocks one block in so many has experts, the last of each group; the others an MLP",
        at_least=1,
        default=1,
    )
    router_bias: bool = declare("the router has a bias per expert", default=False)
    expert_bias: bool = declare("the products of experts have a bias", default=False)
    moe_latent: int = declare(
        "width of a latent that routed experts read and write, projected from and to hidden; 0: hidden itself",
        unit="elements",
        at_least=0,
        default=0,
    )
    router_groups: int = declare(
        "groups of experts, of which the router first chooses some for each token (node-limited routing), so that less "
        "is sent; 0: none",
        at_least=0,
        default=0,
    )
    router_group_topk: int = declare(
        "with router_groups: groups that a token's experts are in at most", at_least=0, default=0
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
    mtp_layers: int = declare(
        "modules after the blocks that predict one further token each in training (multi-token prediction)",
        at_least=0,
        default=0,
    )
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
        if self.chunked_window and not self.sliding_window:
            wanted = "false, since sliding_window is 0"
            yield Problem(
                "chunked_window", wanted, "true", "sliding_window is the width of a chunk"
            )
        yield from self._latent_contradictions()
        yield from hybrid_contradictions(self)
        yield from self._without_experts() if not self.num_experts else self._of_experts()
        if self.part != "block" and self.vocab:
            wanted = f"0, since part={self.part} has neither embedding nor head"
            yield Problem("vocab", wanted, str(self.vocab))
        if self.mtp_layers and not self.vocab:
            wanted = "0, since vocab is 0: a module looks up tokens, and predicts one"
            hint = "vocab states how many words there are"
            yield Problem("mtp_layers", wanted, str(self.mtp_layers), hint)
        if self.part == "linear" and self.feedforward != self.hidden:
            wanted = f"hidden={self.hidden}, since part=linear is one square product"
            yield Problem(
                "feedforward", wanted, str(self.feedforward), "part: mlp has two products"
            )
        if self.part == "linear" and self.gated:
            wanted = "one without a gate, since part=linear is one product"
            yield Problem("activation", wanted, self.activation, "part: mlp may have a gate")

    def _latent_contradictions(self) -> Iterator[Problem]:
        """Yield the contradictions of multi-head latent attention: what has no effect, or is another attention."""
        if not self.latent:
            for name in ("q_lora_rank", *LATENT_WIDTHS):
                if value := getattr(self, name):
                    wanted = "0, since kv_lora_rank is 0: attention without latents"
                    yield Problem(name, wanted, str(value), "kv_lora_rank states their width")
            return
        for name in LATENT_WIDTHS:
            if not getattr(self, name):
                wanted = f"at least 1, since kv_lora_rank={self.kv_lora_rank}"
                yield Problem(name, wanted, "0", "config.json has it under this name")
        if self.attn_size != (width := self.qk_nope_head_dim + self.qk_rope_head_dim):
            wanted = f"qk_nope_head_dim + qk_rope_head_dim = {width}, the width of a query head"
            yield Problem("attn_size", wanted, str(self.attn_size))
        defaults = optional_defaults(Model)
        for name, why in _NOT_LATENT.items():
            if (value := getattr(self, name)) != defaults[name]:
                wanted = (
                    f"{str(defaults[name]).lower()}, since kv_lora_rank={self.kv_lora_rank}: {why}"
                )
                yield Problem(name, wanted, str(value).lower())

    @property
    def latent(self) -> bool:
        """Whether keys and values come from a latent that is narrower than they are (DeepSeek-V2, arXiv 2405.04434)."""
        return self.kv_lora_rank > 0

    @property
    def value_size(self) -> int:
        """Width of a value head, and of the output of an attention head."""
        return self.v_head_dim if self.latent else self.attn_size

    def _without_experts(self) -> Iterator[Problem]:
        """Yield fields of experts that have no effect, as there are none."""
        defaults = optional_defaults(Model)
        for name in OF_EXPERTS:
            if (value := getattr(self, name)) != defaults[name]:
                wanted = f"{str(defaults[name]).lower()}, since num_experts is 0"
                yield Problem(name, wanted, str(value).lower(), "num_experts states the experts")

    def _of_experts(self) -> Iterator[Problem]:
        """Yield contradictions of fields with experts."""
        if self.experts_per_token > self.num_experts:
            wanted = f"at most num_experts={self.num_experts}"
            yield Problem("experts_per_token", wanted, str(self.experts_per_token))
        if self.shared_feedforward and self.num_experts == 1:
            wanted = "0, since every token passes the only expert"
            yield Problem("shared_feedforward", wanted, str(self.shared_feedforward))
        if self.moe_latent and self.num_experts == 1:
            wanted = "0, since every token passes the only expert"
            yield Problem("moe_latent", wanted, str(self.moe_latent))
        if self.shared_gate and not self.shared_feedforward:
            wanted = "false, since shared_feedforward is 0"
            yield Problem("shared_gate", wanted, "true", "there is no shared expert")
        yield from self._without_blocks_of_experts()
        yield from self._of_router_groups()
        if self.mlp_bias and not self.mixes_kinds:
            wanted = "false, since experts take the place of the MLP"
            yield Problem("mlp_bias", wanted, "true", "expert_bias is that of experts")
        if self.parallel_attention:
            wanted = "false, since experts read what attention has written"
            yield Problem("parallel_attention", wanted, "true")

    def _without_blocks_of_experts(self) -> Iterator[Problem]:
        """Yield fields of a pattern that leave no block with experts."""
        if self.first_k_dense >= self.num_blocks:
            wanted = f"less than num_blocks={self.num_blocks}, since the blocks after these have the experts"
            yield Problem("first_k_dense", wanted, str(self.first_k_dense))
        elif self.moe_layer_freq > (rest := self.num_blocks - self.first_k_dense):
            wanted = f"at most num_blocks - first_k_dense = {rest}, since the last block of each group has the experts"
            yield Problem("moe_layer_freq", wanted, str(self.moe_layer_freq))

    def _of_router_groups(self) -> Iterator[Problem]:
        """Yield contradictions of the groups of experts that the router chooses from."""
        groups, limit = self.router_groups, self.router_group_topk
        if not groups:
            if limit:
                wanted = "0, since router_groups is 0"
                yield Problem("router_group_topk", wanted, str(limit), "config.json: n_group")
            return
        if self.num_experts % groups:
            wanted = f"a divisor of num_experts={self.num_experts}"
            yield Problem("router_groups", wanted, str(groups))
            return
        if not 0 < limit < groups:
            wanted = f"from 1 to less than router_groups={groups}"
            hint = "without a limit leave both fields out"
            yield Problem("router_group_topk", wanted, str(limit), hint)
            return
        least = -(-self.experts_per_token * groups // self.num_experts)
        if limit < least:
            wanted = (
                f"at least {least}, so that there are experts_per_token={self.experts_per_token} "
                f"in groups of {self.num_experts // groups}"
            )
            yield Problem("router_group_topk", wanted, str(limit))

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
    def has_experts(self) -> bool:
        """Whether its blocks have experts in place of an MLP."""
        return self.num_experts > 0 and self.part in ("block", "mlp")

    @property
    def mixes(self) -> bool:
        """Whether they have several experts, of which each token passes some."""
        return self.has_experts and self.num_experts > 1

    @property
    def in_parts(self) -> bool:
        """Whether each block is one part with one norm, as ``layer_pattern`` says."""
        return self.layer_pattern != ""

    @property
    def has_linear(self) -> bool:
        """Whether some of its blocks have linear attention."""
        return self.linear_attention != "none" and self.part in ("block", "attention")

    @property
    def recomputes_operators(self) -> bool:
        """Whether ``recompute_modules=ops`` has operators to recompute: blocks are an attention and then an MLP."""
        return self.part == "block" and not self.parallel_attention

    @property
    def has_softmax(self) -> bool:
        """Whether some of its blocks have attention with softmax."""
        if self.in_parts:
            return "*" in self.layer_pattern
        linear = self.has_linear and not self.full_attention_every
        return self.part in ("block", "attention") and not linear

    @property
    def mixes_linear(self) -> bool:
        """Whether some of its blocks have linear attention, and others attention with softmax in its place."""
        return self.has_linear and not self.in_parts and self.full_attention_every > 0

    def linear_block(self, number: int) -> bool:
        """Whether the block of a number, counted from 0, has linear attention: the last of each group has softmax.

        Source: Qwen3-Next and MiniMax-Text-01, ``config.json``, ``full_attention_interval`` and ``attn_type_list``.
        """
        if self.in_parts:
            return self.layer_pattern[number] == "M"
        every = self.full_attention_every
        return self.has_linear and not (every and (number + 1) % every == 0)

    @property
    def mixes_kinds(self) -> bool:
        """Whether some of its blocks have experts, and others an MLP in their place."""
        if self.in_parts:
            return "E" in self.layer_pattern and "-" in self.layer_pattern
        return self.has_experts and (self.first_k_dense > 0 or self.moe_layer_freq > 1)

    @property
    def mixes_windows(self) -> bool:
        """Whether some of its blocks have a sliding window, and others attend to the whole sequence."""
        return self.attends and self.sliding_window > 0 and self.full_attention_every > 1

    def windowed_block(self, number: int) -> bool:
        """Whether the block of a number, counted from 0, has a sliding window: the last of each group has none.

        Source: Gemma Team, arXiv 2503.19786, section 2; gpt-oss and Llama 4, ``config.json``, ``layer_types``.
        """
        every = self.full_attention_every
        return self.sliding_window > 0 and not (every and (number + 1) % every == 0)

    def expert_block(self, number: int) -> bool:
        """Whether the block of a number, counted from 0, has experts.

        Source: DeepSeek-V3, arXiv 2412.19437, section 4.2 (``first_k_dense_replace``); Llama 4, ``config.json``,
        ``interleave_moe_layer_step``, whose blocks ``step - 1``, ``2 step - 1``, ... have the experts.
        """
        if self.in_parts:
            return self.layer_pattern[number] == "E"
        after = number - self.first_k_dense
        return self.has_experts and after >= 0 and (after + 1) % self.moe_layer_freq == 0

    @property
    def inner_width(self) -> int:
        """Inner width of the MLP, or of an expert."""
        return (self.has_experts and self.expert_feedforward) or self.feedforward

    @property
    def attends(self) -> bool:
        """Whether a block has attention with ``attn_heads``: with softmax, or lightning attention."""
        return self.has_softmax or (self.has_linear and self.linear_attention == "lightning")

    @property
    def feeds_forward(self) -> bool:
        """Whether a block has products of the MLP."""
        if self.in_parts:
            return "-" in self.layer_pattern or "E" in self.layer_pattern
        return self.part != "attention"

    @property
    def biased_output(self) -> bool:
        """Whether any product that tensor parallelism splits by rows has a bias."""
        if self.part == "linear":
            return False
        return (self.attends and self.out_bias) or (self.feeds_forward and self.mlp_bias)

    def executed(self, *, training: bool) -> "Model":
        """Return what of the model is executed: modules that predict further tokens only in training.

        Source: DeepSeek-V3, arXiv 2412.19437, section 2.2: in inference the modules can be discarded.
        """
        return self if training or not self.mtp_layers else replace(self, mtp_layers=0)

    def only(self, part: str) -> "Model":
        """Return a chain of one part of this model's blocks, without embedding and LM head.

        Raises:
            SpecError: Where the part does not exist: a linear layer needs ``feedforward`` equal to ``hidden``, and no
                gate.
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
