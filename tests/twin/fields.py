"""What the twin knows of the three files: every field, and every named value of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from itertools import combinations
from typing import Any

from calculon.base.frozen import dataclass

BYTES_PER_ELEMENT = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
MULTIPLIED_BYTES = {**BYTES_PER_ELEMENT, "tfloat32": 4}
"""Bytes of an operand by type of matrix arithmetic."""


@dataclass(frozen=True)
class Model:
    """A transformer: a stack of identical blocks, or of one part of them."""

    hidden: int  # width of the residual stream
    feedforward: int  # inner width of the MLP
    seq_size: int  # tokens per sequence
    attn_heads: int
    attn_size: int  # width of one head; heads * width need not equal `hidden`
    num_blocks: int
    kv_heads: int = 0  # 0: one per query head
    activation: str = "gelu"
    norm: str = "layernorm"
    norms: int = 2
    qk_norm: str = "none"
    q_lora_rank: int = 0
    kv_lora_rank: int = 0  # above 0: keys and values come from a latent
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    parallel_attention: bool = False
    dropout: bool = True
    rotary: float = 0.0
    causal: bool = True
    sliding_window: int = 0
    full_attention_every: int = 0
    chunked_window: bool = False
    attention_sinks: bool = False
    attention_gate: bool = False
    linear_attention: str = "none"
    layer_pattern: str = ""  # a letter for each block, which is one part
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 128
    linear_value_dim: int = 128
    linear_conv: int = 4
    ssm_heads: int = 0
    ssm_head_dim: int = 64
    ssm_state: int = 128
    ssm_groups: int = 8
    ssm_conv: int = 4
    ssm_chunk: int = 128
    num_experts: int = 0
    experts_per_token: int = 1
    expert_feedforward: int = 0  # 0: as wide as `feedforward`
    shared_feedforward: int = 0
    shared_gate: bool = False
    first_k_dense: int = 0
    moe_layer_freq: int = 1
    router_bias: bool = False
    expert_bias: bool = False
    moe_latent: int = 0  # above 0: routed experts read and write rows of this width
    router_groups: int = 0
    router_group_topk: int = 0
    vocab: int = 0
    tied: bool = False
    positions: int = 0
    embedding_norm: bool = False
    mtp_layers: int = 0  # modules that predict one more token each
    part: str = "block"

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.attn_heads

    @property
    def value_size(self) -> int:
        """Width of a value head."""
        return self.v_head_dim if self.kv_lora_rank else self.attn_size

    @property
    def mixes(self) -> bool:
        """Whether a block has experts."""
        return self.num_experts > 0 and self.part in ("block", "mlp")

    def kinds(self) -> list[Model]:
        """Return for each block the model that has only blocks like it."""
        if self.layer_pattern:
            return [self._of_letter(letter) for letter in self.layer_pattern]
        found = self._feed_forwards() if self.mixes else [self] * self.num_blocks
        if self.linear and self.full_attention_every:
            every = self.full_attention_every
            last = [number % every == every - 1 for number in range(self.num_blocks)]
            pairs = zip(found, last, strict=True)
            return [block._with_softmax() if one else block._linear() for block, one in pairs]
        if not self.mixes:
            return found
        if not self.sliding_window or self.full_attention_every < 2 or self.part == "mlp":
            return found
        for number, block in enumerate(found):
            found[number] = replace(block, full_attention_every=0)
            if number % self.full_attention_every == self.full_attention_every - 1:
                found[number] = replace(found[number], sliding_window=0, chunked_window=False)
        return found

    def module_kinds(self) -> list[Model]:
        """Return the models of the blocks of a module: the last one, or attention and the last MLP or experts."""
        if not self.mtp_layers:
            return []
        if not self.layer_pattern:
            return self.kinds()[-1:]
        found = [self._of_letter(letter) for letter in self.layer_pattern if letter in "-E"]
        return [self._of_letter("*"), found[-1]]

    @property
    def linear(self) -> bool:
        """Whether it has attention without scores."""
        return self.linear_attention != "none" and self.part in ("block", "attention")

    @property
    def scores(self) -> bool:
        """Whether some block has attention with scores."""
        if self.layer_pattern:
            return "*" in self.layer_pattern
        every_linear = self.linear and not self.full_attention_every
        return self.part in ("block", "attention") and not every_linear

    def _without(self, *starts: str) -> Model:
        """Forget fields whose names begin so."""
        forgotten: dict[str, Any] = {
            f.name: f.default for f in fields(self) if f.name.startswith(starts)
        }
        return replace(self, **forgotten)

    def _with_softmax(self) -> Model:
        return self._without("linear_", "ssm_", "full_attention_every")

    def _linear(self) -> Model:
        starts = ("kv_", "qk", "q_", "v_", "out_bias", "rotary", "sliding", "chunked", "attention_")
        return self._without("full_attention_every", *starts)

    def _of_letter(self, letter: str) -> Model:
        """Return the model that has only blocks of a letter."""
        found = replace(self, layer_pattern=letter * self.num_blocks, mtp_layers=0)
        if letter != "M":
            found = found._with_softmax()
        if letter != "*":
            found = found._linear()
        if letter != "E":
            found = found._without_experts()
        return found if letter == "-" else replace(found, mlp_bias=False)

    def _feed_forwards(self) -> list[Model]:
        """Return for each block the model whose blocks all have experts, or all have none."""
        with_experts = replace(self, first_k_dense=0, moe_layer_freq=1)
        if self == with_experts:
            return [self] * self.num_blocks
        dense = with_experts._without_experts()
        found = [dense] * self.first_k_dense
        while len(found) < self.num_blocks:
            group = [dense] * (self.moe_layer_freq - 1)
            found += [*group, replace(with_experts, mlp_bias=False)]
        return found[: self.num_blocks]

    def _without_experts(self) -> Model:
        return self._without("num_experts", "expert", "shared_", "router_", "moe_latent")

    @property
    def row_width(self) -> int:
        """Width of what routed experts read and write."""
        return self.moe_latent or self.hidden

    @property
    def inner_width(self) -> int:
        """Inner width of the MLP or of each expert."""
        return (
            self.expert_feedforward if self.mixes and self.expert_feedforward else self.feedforward
        )

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "geglu")

    @property
    def plain(self) -> bool:
        """Whether only the published fields say anything."""
        return all(
            getattr(self, f.name) == f.default for f in fields(self) if f.default is not MISSING
        )

    def mean_keys(self, length: float) -> float:
        """Keys that a query of a document attends to: counted token by token, and over the blocks."""
        window = self.sliding_window
        whole = self._keys(length, length)
        if not 0 < window < length:
            return whole
        every = self.full_attention_every
        full = self.num_blocks // every if every else 0
        cut = self._keys(length, window)
        return (full * whole + (self.num_blocks - full) * cut) / self.num_blocks

    def _keys(self, length: float, reach: float) -> float:
        """Return the mean keys of a query that reaches back so far; the last token may be a part of one."""
        restarts = self.chunked_window and reach < length
        if not self.causal:
            rest = length % reach if restarts else 0
            return (length // reach * reach**2 + rest**2) / length if restarts else reach
        tokens = int(length)
        part = length - tokens
        seen, last = [float(keys) for keys in range(1, tokens + 1)], tokens + (part + 1) / 2
        if restarts:
            seen, last = [(keys - 1) % reach + 1 for keys in seen], tokens % reach + (part + 1) / 2
        elif reach < length:
            seen, last = [min(keys, reach) for keys in seen], reach
        return (sum(seen) + part * last) / length


@dataclass(frozen=True)
class Execution:
    """How the model is run; the fields of an execution file in canonical order, then options."""

    num_procs: int
    tensor_par: int
    pipeline_par: int
    data_par: int
    tensor_par_net: int
    pipeline_par_net: int
    data_par_net: int
    batch_size: int  # global, in sequences
    microbatch_size: int  # sequences
    datatype: str
    fused_activation: bool
    attention_type: str
    activation_recompute: str
    pipeline_interleaving: int  # chunks per processor
    optimizer_sharding: bool
    tensor_par_comm_type: str
    tensor_par_overlap: str
    seq_par_ag_redo: bool
    data_par_overlap: bool
    weight_offload: bool
    activations_offload: bool
    optimizer_offload: bool
    training: bool
    edition: str = "sc23"
    attn_impl: str = "eager"
    attn_kernel: str = "auto"
    ce_impl: str = "eager"
    grad_buffer: str = "sharded"
    grad_comm_dtype: str = "same"
    optimizer: str = "adam"
    optimizer_impl: str = "fused"
    optimizer_state_dtype: str = "float32"
    grad_dtype: str = "auto"
    main_grad: bool = False
    grad_flat: bool = False
    grad_sums: bool = False
    grad_fusion: bool = True
    grad_clip: bool = False
    latency_per_step: bool = False
    fusion: str = "published"
    compile_scope: str = "step"
    rotary_impl: str = "real"
    launch_mode: str = "auto"
    matmul_dtype: str = "same"
    float8_scaling: str = "delayed"
    vocab_pad_multiple: int = 1
    seq_length: int = 0  # tokens per sequence; 0: those of the model
    tp_impl: str = "megatron"
    seq_par_copies: bool = False
    tp_async: bool = False
    tp_user_buffers: bool = False
    tp_hidden_percent: int = 100
    bias_after_reduce: bool = False
    matmul_impl: str = "gemm"
    zero_stage: str = "auto"
    dp_shard: int = 0
    fsdp_unit: int = 1
    fsdp_prefetch: int = 1
    reshard_after_forward: bool = True
    sync_once: bool = False
    ddp_bucket_mib: int = 0
    no_sync: bool = True
    grad_group: int = 1
    overlap_param_gather: bool = False
    mem_reserved_mib: int = -1
    mem_fragments_percent: int = -1
    data_par_slowdown: int = 0
    coll_algo: str = "published"
    mesh_order: str = "stated"
    pp_schedule: str = "1f1b"
    pp_layout: str = "uniform"
    first_stage_blocks: int = 0
    last_stage_blocks: int = 0
    stage_blocks: str = ""
    p2p_overlap: bool = False
    stage_stop_us: int = 0
    recompute_modules: str = "none"
    recompute_every: int = 1
    recompute_blocks: int = 0  # of these; 0: one
    expert_par: int = 1
    expert_par_net: int = 0
    expert_tensor_par: int = 0  # 0: tensor_par
    moe_dispatcher: str = "alltoall"
    moe_imbalance_percent: int = 100
    moe_capacity_percent: int = 0
    moe_pad_to_capacity: bool = False
    moe_router_fusion: bool = True
    moe_permute_fusion: bool = True
    dispatch_dtype: str = "same"
    combine_dtype: str = "same"
    ep_overlap: str = "none"
    delay_wgrad: bool = False
    moe_shared_overlap: bool = False
    context_par: int = 1
    context_par_net: int = 0
    cp_comm: str = "p2p"
    cp_a2a_size: int = 0
    cp_kv_replicate: bool = False
    cp_balance: str = "zigzag"
    cp_skip: bool = False
    packed_percent: int = 100  # of a sequence that a document has
    pack_imbalance_percent: int = 100
    fp8_recipe: str = "none"
    fp8_param_gather: bool = False
    fp8_attention: bool = False
    preset: str = "published"  # a name without effect: the twin has no limits of frameworks


OPTIONS = {f.name: f.default for f in fields(Execution) if f.default is not MISSING}
"""Fields of an execution that only the corrected edition knows, and what leaves them out."""


def _module_sets() -> tuple[str, ...]:
    """The older names, then sets of modules by size; shared experts and activations are part of *moe*."""
    found = ["none", "norm", "activation", "norm_activation", "mlp", "ops"]
    modules = ["norm", "core_attn", "mla_up_proj", "mlp", "moe_act", "shared_experts", "moe"]
    modules.append("gdn_norm_out")
    for size in range(1, len(modules) + 1):
        for chosen in combinations(modules, size):
            twice = "moe" in chosen and ("moe_act" in chosen or "shared_experts" in chosen)
            if not twice and "+".join(chosen) not in found:
                found.append("+".join(chosen))
    return tuple(found)


CHOICES: Mapping[str, tuple[str, ...]] = {
    "datatype": tuple(BYTES_PER_ELEMENT),
    "attention_type": ("multihead", "multiquery"),
    "activation_recompute": ("full", "attn_only", "none"),
    "tensor_par_comm_type": ("ar", "p2p_rs_ag", "rs_ag"),
    "tensor_par_overlap": ("none", "ring", "pipe"),
    "edition": ("sc23", "corrected"),
    "attn_impl": ("eager", "flash"),
    "attn_kernel": ("auto", "flash1", "triton", "flash2", "flash3", "cudnn"),
    "ce_impl": ("eager", "megatron", "fused"),
    "grad_buffer": ("sharded", "full"),
    "grad_comm_dtype": ("same", *BYTES_PER_ELEMENT),
    "optimizer": ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon"),
    "optimizer_impl": ("fused", "foreach", "loop"),
    "optimizer_state_dtype": ("float32", "bfloat16"),
    "grad_dtype": ("auto", "float32", "bfloat16", "float16"),
    "fusion": ("published", "none", "compile", "max"),
    "compile_scope": ("step", "blocks", "blocks_and_loss"),
    "rotary_impl": ("real", "complex", "unfused"),
    "launch_mode": ("auto", "eager", "compile", "graph", "graph_parts", "blocking"),
    "matmul_dtype": ("same", *MULTIPLIED_BYTES),
    "float8_scaling": ("delayed", "current"),
    "tp_impl": ("megatron", "allgather"),
    "matmul_impl": ("gemm", "mul_sum", "mul_sum_fused"),
    "zero_stage": ("auto", "0", "1", "2", "3", "fsdp", "owner"),
    "coll_algo": (
        "published",
        "auto",
        "ring",
        "tree",
        "nvls",
        "nvls_tree",
        "hierarchical",
        "pipelined",
        "collnet",
    ),
    "mesh_order": ("stated", "tp-dp-pp", "tp-pp-dp"),
    "recompute_modules": _module_sets(),
    "cp_comm": ("p2p", "all_gather", "a2a", "a2a_p2p"),
    "cp_balance": ("zigzag", "contiguous", "striped"),
    "moe_dispatcher": ("alltoall", "allgather", "deepep", "hybridep"),
    "dispatch_dtype": ("same", "float8", "bfloat16"),
    "ep_overlap": ("none", "1f1b", "two_batch"),
    "combine_dtype": ("same", "float8", "bfloat16"),
    "fp8_recipe": ("none", "delayed", "tensorwise", "blockwise", "mxfp8", "nvfp4", "nvfp4_plain"),
    "pp_schedule": ("1f1b", "gpipe", "zb_h1", "zb_h2", "zbv", "dualpipe", "dualpipev"),
    "pp_layout": (
        "uniform",
        "balanced",
        "embedding_as_block",
        "head_as_block",
        "both_as_blocks",
    ),
    "preset": (
        "published",
        "common",
        "megatron-lm",
        "megatron-lm-ub",
        "megatron-lm-2021",
        "torchtitan",
        "deepspeed",
        "llm-foundry",
        "huggingface",
        "megatron-bridge",
        "maxtext",
    ),
}
"""Named values of an execution that the twin knows; other fields are whole numbers or switches."""

MODEL_CHOICES: Mapping[str, tuple[str, ...]] = {
    "activation": ("gelu", "relu", "squared_relu", "swiglu", "geglu"),
    "norm": ("layernorm", "layernorm_no_bias", "layernorm_plain", "rmsnorm"),
    "qk_norm": ("none", "head", "full"),
    "part": ("block", "attention", "mlp", "linear"),
    "linear_attention": ("none", "gated_delta", "mamba2", "lightning"),
}
"""The same of a model."""

EXTENSIONS: Mapping[str, tuple[str, ...]] = {
    "traffic": ("efficiency", "backward", "start"),
    "attention": ("efficiency",),
    "matrix": ("tflops", "gflops_efficiency"),
    "gemm": (
        "max_efficiency",
        "multiprocessors",
        "half_depth",
        "wave_overlap",
        "start",
        "memory_efficiency",
        "sustained",
        "weight_gradients",
        "gradients",
        "alignment",
        "tiles",
    ),
    "launch": ("kernel", "eager", "training", "compile", "product_loop", "graph", "step"),
    "networks": (
        "kind",
        "step_latency",
        "ramp",
        "in_network_reduction",
        "operations",
        "processor_usage",
        "torus",
        "synchronous",
        "uplink",
    ),
    "memory": (
        "withheld_GiB",
        "context_MiB",
        "workspaces_MiB",
        "communicator_MiB",
        "fragmentation",
        "host_share",
    ),
    "ep_library": ("nvlink_efficiency", "nic_efficiency", "num_sms", "multiprocessors"),
    "linear_efficiency": (),
    "recipes": ("transposes",),
    "host": ("GBps", "efficiency", "processors", "network"),
}
"""Keys of `ext` in a system file that the twin knows, and what stands below each."""


LINK_KINDS = ("nvlink", "pcie", "net")
"""Kinds of the links of a network."""

TYPES = {"int": int, "float": float, "bool": bool, "str": str}


def known() -> dict[str, Any]:
    """Return for each field of an execution the values that the twin knows: names, or a type."""
    return {f.name: CHOICES.get(f.name, TYPES.get(str(f.type))) for f in fields(Execution)}


def known_of_models() -> dict[str, Any]:
    """Return the same for each field of a model."""
    return {f.name: MODEL_CHOICES.get(f.name, TYPES.get(str(f.type))) for f in fields(Model)}
