"""The model: shape of a transformer, including grouped-query and latent attention, experts and hybrid blocks."""

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
"""Fields of the published tool; alone they describe its block, a GPT-3 block."""

GATED = ("swiglu", "geglu")
"""Gated activations, in which one product scales another (Shazeer, *GLU variants*, arXiv 2002.05202)."""

PARTS = ("block", "attention", "mlp", "linear")
"""Kinds of the ``num_blocks`` equal blocks: a whole transformer block, or a part of one."""

LATENT_WIDTHS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Head widths of latent attention: query and key without and with rotary positions, and value."""

_NOT_LATENT = {
    "kv_heads": "every query head has its own key and value",
    "qk_norm": "the latents are normalized",
    "rotary": "qk_rope_head_dim states the width with rotary positions",
    "qkv_bias": "no projection to or from a latent has a bias",
    "parallel_attention": "the MLP cannot share a product with projections of latents",
    "attention_gate": "queries come from a latent, without a gate",
}
"""Fields that do not apply to latent attention, and the reason."""

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
"""Fields that apply to experts only."""

_OF_ENDS = ("vocab", "tied", "positions", "embedding_norm", "head_bias", "mtp_layers")
"""Fields of embedding and LM head, which a stack of single parts lacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model(Displayed):
    """Shape of a transformer (the *application* of the published tool).

    Optional fields need the corrected edition. Embedding, head and loss count if ``vocab`` is stated. With another
    ``part`` than a whole block, fields of the missing parts do not count.
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
        "normalization: with gain and bias, without bias, without either, or RMS with gain",
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
        "width of the latent of keys and values (multi-head latent attention); 0: none",
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
        "with kv_lora_rank: width of a query head with rotary positions, and of the key part shared by all heads",
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
        "attention and MLP read the same normalized input, and are reduced together", default=False
    )
    dropout: bool = declare("dropout after attention, MLP and softmax", default=True)
    rotary: float = declare(
        "share of each query and key head with rotary position embeddings; 0: none",
        at_least=0,
        at_most=1,
        default=0.0,
    )
    causal: bool = declare(
        "tokens attend to earlier tokens only; flash attention skips the others", default=True
    )
    sliding_window: int = declare(
        "tokens that a token attends to in blocks with a sliding window; 0: no such blocks",
        unit="tokens",
        at_least=0,
        default=0,
    )
    full_attention_every: int = declare(
        "with a sliding window or linear attention: one of every N blocks has full attention; 0: none",
        at_least=0,
        default=0,
    )
    chunked_window: bool = declare(
        "with a sliding window: windows restart, and tokens attend within chunks of the window's width",
        default=False,
    )
    attention_sinks: bool = declare(
        "attention sinks: the softmax of each query head has a learned term in addition to the keys",
        default=False,
    )
    attention_gate: bool = declare(
        "each query head has a gate, projected with the queries; its sigmoid scales the output of attention",
        default=False,
    )
    linear_attention: str = declare(
        "attention of blocks without softmax, with cost linear in the sequence length: gated delta rule, Mamba-2, or "
        "lightning attention with attn_heads of attn_size",
        choices=("none", *LINEAR_KINDS),
        default="none",
    )
    layer_pattern: str = declare(
        "one letter per block, which is then a single part with one norm: M linear attention, * attention, - MLP, E "
        "experts; empty: every block has attention followed by an MLP or experts",
        default="",
    )
    linear_key_heads: int = declare(
        "with gated_delta: heads of queries and keys", at_least=0, default=0
    )
    linear_value_heads: int = declare(
        "with gated_delta: heads of values, several per key head", at_least=0, default=0
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
        "with mamba2: groups of heads that share the projections that write and read the state",
        at_least=1,
        default=8,
    )
    ssm_conv: int = declare(
        "with mamba2: tokens of the short convolution", unit="tokens", at_least=1, default=4
    )
    ssm_chunk: int = declare(
        "with mamba2: tokens of a chunk; states are passed from chunk to chunk",
        unit="tokens",
        at_least=1,
        default=128,
    )
    num_experts: int = declare(
        "experts per block with experts, in place of one MLP; 0: none",
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
        "total inner width of the shared experts, which process every token; 0: none",
        unit="elements",
        at_least=0,
        default=0,
    )
    shared_gate: bool = declare(
        "a gate per token scales the output of the shared experts", default=False
    )
    first_k_dense: int = declare(
        "leading dense blocks, with an MLP of width feedforward in place of experts",
        at_least=0,
        default=0,
    )
    moe_layer_freq: int = declare(
        "after the leading dense blocks, the last of every N blocks has experts; the others have an MLP",
        at_least=1,
        default=1,
    )
    router_bias: bool = declare("the router has a bias per expert", default=False)
    expert_bias: bool = declare("the products of experts have a bias", default=False)
    moe_latent: int = declare(
        "width of the latent that routed experts read and write, projected from and to hidden; 0: hidden itself",
        unit="elements",
        at_least=0,
        default=0,
    )
    router_groups: int = declare(
        "groups of experts; for each token the router first selects some groups (node-limited routing), which reduces "
        "traffic; 0: none",
        at_least=0,
        default=0,
    )
    router_group_topk: int = declare(
        "with router_groups: largest number of groups with experts of one token",
        at_least=0,
        default=0,
    )
    vocab: int = declare(
        "vocabulary; 0: without embedding, head and loss",
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
        "multi-token prediction modules after the blocks; each predicts one further token in training",
        at_least=0,
        default=0,
    )
    part: str = declare(
        "content of each block: all of it; attention or MLP alone, without norm and residual sum; or one linear layer "
        "of width hidden and its activation",
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
        """Yield contradictions between fields."""
        counts = (1, 2) if self.parallel_attention else (2, 4)
        if self.norms not in counts:
            kind = "attention and MLP" if self.parallel_attention else "attention, then MLP"
            wanted = f"{counts[0]} or {counts[1]}, in a block of {kind}"
            hint = "parallel_attention selects the kind of block"
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
            hint = "vocab states the number of words"
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
        """Yield contradictions of multi-head latent attention: fields without effect, or of another attention."""
        if not self.latent:
            for name in ("q_lora_rank", *LATENT_WIDTHS):
                if value := getattr(self, name):
                    wanted = "0, since kv_lora_rank is 0: attention without latents"
                    yield Problem(name, wanted, str(value), "kv_lora_rank states the latent width")
            return
        for name in LATENT_WIDTHS:
            if not getattr(self, name):
                wanted = f"at least 1, since kv_lora_rank={self.kv_lora_rank}"
                yield Problem(name, wanted, "0", "config.json states it under this name")
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
        """True for latent attention: keys and values come from a narrower latent (DeepSeek-V2, arXiv 2405.04434)."""
        return self.kv_lora_rank > 0

    @property
    def value_size(self) -> int:
        """Width of a value head, and of the output of an attention head."""
        return self.v_head_dim if self.latent else self.attn_size

    def _without_experts(self) -> Iterator[Problem]:
        """Yield fields of experts that have no effect because there are none."""
        defaults = optional_defaults(Model)
        for name in OF_EXPERTS:
            if (value := getattr(self, name)) != defaults[name]:
                wanted = f"{str(defaults[name]).lower()}, since num_experts is 0"
                yield Problem(name, wanted, str(value).lower(), "num_experts states their number")

    def _of_experts(self) -> Iterator[Problem]:
        """Yield contradictions between fields of experts."""
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
            yield Problem("mlp_bias", wanted, "true", "expert_bias is the bias of experts")
        if self.parallel_attention:
            wanted = "false, since experts read what attention has written"
            yield Problem("parallel_attention", wanted, "true")

    def _without_blocks_of_experts(self) -> Iterator[Problem]:
        """Yield fields of the block pattern that leave no block with experts."""
        if self.first_k_dense >= self.num_blocks:
            wanted = f"less than num_blocks={self.num_blocks}, since the blocks after these have the experts"
            yield Problem("first_k_dense", wanted, str(self.first_k_dense))
        elif self.moe_layer_freq > (rest := self.num_blocks - self.first_k_dense):
            wanted = f"at most num_blocks - first_k_dense = {rest}, since the last block of each group has the experts"
            yield Problem("moe_layer_freq", wanted, str(self.moe_layer_freq))

    def _of_router_groups(self) -> Iterator[Problem]:
        """Yield contradictions of the groups of experts that the router selects from."""
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
            hint = "leave out both fields if there is no limit"
            yield Problem("router_group_topk", wanted, str(limit), hint)
            return
        # The selected groups together must hold enough experts for a token, rounded up to whole groups.
        least = -(-self.experts_per_token * groups // self.num_experts)
        if limit < least:
            wanted = (
                f"at least {least}, to have experts_per_token={self.experts_per_token} "
                f"in groups of {self.num_experts // groups}"
            )
            yield Problem("router_group_topk", wanted, str(limit))

    @property
    def extensions(self) -> dict[str, Any]:
        """Optional fields whose value is not the default; edition sc23 cannot express them."""
        defaults = optional_defaults(Model)
        return {name: v for name in defaults if (v := getattr(self, name)) != defaults[name]}

    @property
    def key_value_heads(self) -> int:
        """Key/value heads of a block."""
        return self.kv_heads or self.attn_heads

    @property
    def groups_queries(self) -> bool:
        """True for grouped-query attention: several query heads share each of several key/value heads."""
        return self.kv_heads not in (0, 1, self.attn_heads)

    @property
    def gated(self) -> bool:
        """True if the MLP has a gate: two column-split products in place of one."""
        return self.activation in GATED

    @property
    def has_experts(self) -> bool:
        """True if some blocks have experts in place of an MLP."""
        return self.num_experts > 0 and self.part in ("block", "mlp")

    @property
    def mixes(self) -> bool:
        """True if there are several experts, some of which process each token."""
        return self.has_experts and self.num_experts > 1

    @property
    def in_parts(self) -> bool:
        """True if each block is a single part with one norm, as ``layer_pattern`` states."""
        return self.layer_pattern != ""

    @property
    def has_linear(self) -> bool:
        """True if some blocks have linear attention."""
        return self.linear_attention != "none" and self.part in ("block", "attention")

    @property
    def recomputes_operators(self) -> bool:
        """True if ``recompute_modules=ops`` has operators to recompute: each block is attention followed by an MLP."""
        return self.part == "block" and not self.parallel_attention

    @property
    def has_softmax(self) -> bool:
        """True if some blocks have softmax attention."""
        if self.in_parts:
            return "*" in self.layer_pattern
        linear = self.has_linear and not self.full_attention_every
        return self.part in ("block", "attention") and not linear

    @property
    def mixes_linear(self) -> bool:
        """True if some blocks have linear attention and others softmax attention."""
        return self.has_linear and not self.in_parts and self.full_attention_every > 0

    def linear_block(self, number: int) -> bool:
        """Return True if a block (numbered from 0) has linear attention; the last of each group has softmax.

        Source: Qwen3-Next and MiniMax-Text-01, ``config.json``, ``full_attention_interval`` and ``attn_type_list``.
        """
        if self.in_parts:
            return self.layer_pattern[number] == "M"
        every = self.full_attention_every
        return self.has_linear and not (every and (number + 1) % every == 0)

    @property
    def mixes_kinds(self) -> bool:
        """True if some blocks have experts and others an MLP."""
        if self.in_parts:
            return "E" in self.layer_pattern and "-" in self.layer_pattern
        return self.has_experts and (self.first_k_dense > 0 or self.moe_layer_freq > 1)

    @property
    def mixes_windows(self) -> bool:
        """True if some blocks have a sliding window and others full attention."""
        return self.attends and self.sliding_window > 0 and self.full_attention_every > 1

    def windowed_block(self, number: int) -> bool:
        """Return True if a block (numbered from 0) has a sliding window; the last of each group has none.

        Source: Gemma Team, arXiv 2503.19786, section 2; gpt-oss and Llama 4, ``config.json``, ``layer_types``.
        """
        every = self.full_attention_every
        return self.sliding_window > 0 and not (every and (number + 1) % every == 0)

    def expert_block(self, number: int) -> bool:
        """Return True if a block (numbered from 0) has experts.

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
        """True if a block has attention with ``attn_heads``: softmax or lightning attention."""
        return self.has_softmax or (self.has_linear and self.linear_attention == "lightning")

    @property
    def feeds_forward(self) -> bool:
        """True if a block has the products of an MLP."""
        if self.in_parts:
            return "-" in self.layer_pattern or "E" in self.layer_pattern
        return self.part != "attention"

    @property
    def biased_output(self) -> bool:
        """True if a product that tensor parallelism splits by rows has a bias."""
        if self.part == "linear":
            return False
        return (self.attends and self.out_bias) or (self.feeds_forward and self.mlp_bias)

    def executed(self, *, training: bool) -> "Model":
        """Return the executed part of the model: multi-token prediction modules run only in training.

        Source: DeepSeek-V3, arXiv 2412.19437, section 2.2: in inference the modules can be discarded.
        """
        return self if training or not self.mtp_layers else replace(self, mtp_layers=0)

    def only(self, part: str) -> "Model":
        """Return a stack of one part of this model's blocks, without embedding and LM head.

        Raises:
            SpecError: If the part does not exist: a linear layer needs ``feedforward`` equal to ``hidden``, and no
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
        """Return the fields as in a model file: the published six, then fields that differ from their default."""
        return {name: getattr(self, name) for name in PUBLISHED_FIELDS} | self.extensions
