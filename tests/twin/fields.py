"""What the twin knows of the three files: every field, and every named value of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from calculon.frozen import dataclass

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
    vocab: int = 0
    tied: bool = False
    positions: int = 0
    embedding_norm: bool = False
    part: str = "block"

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.attn_heads

    @property
    def gated(self) -> bool:
        return self.activation in ("swiglu", "geglu")

    @property
    def plain(self) -> bool:
        """Whether only the published fields say anything."""
        return all(
            getattr(self, f.name) == f.default for f in fields(self) if f.default is not MISSING
        )

    @property
    def mean_keys(self) -> float:
        """Keys that a query attends to: counted token by token, and over the blocks."""
        s, window = self.seq_size, self.sliding_window
        whole = self._keys(s)
        if not 0 < window < s:
            return whole
        every = self.full_attention_every
        full = self.num_blocks // every if every else 0
        return (full * whole + (self.num_blocks - full) * self._keys(window)) / self.num_blocks

    def _keys(self, reach: int) -> float:
        """Return the mean keys of a query that reaches back so far."""
        if not self.causal:
            return reach
        return sum(min(seen, reach) for seen in range(1, self.seq_size + 1)) / self.seq_size


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
    preset: str = "published"  # a name without effect: the twin has no limits of frameworks


OPTIONS = {f.name: f.default for f in fields(Execution) if f.default is not MISSING}
"""Fields of an execution that only the corrected edition knows, and what leaves them out."""

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
    "rotary_impl": ("real", "complex"),
    "launch_mode": ("auto", "eager", "compile", "graph", "blocking"),
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
    "recompute_modules": ("none", "norm", "activation", "norm_activation", "mlp", "ops"),
    "pp_schedule": ("1f1b", "gpipe", "zb_h1"),
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
    ),
}
"""Named values of an execution that the twin knows; other fields are whole numbers or switches."""

MODEL_CHOICES: Mapping[str, tuple[str, ...]] = {
    "activation": ("gelu", "relu", "squared_relu", "swiglu", "geglu"),
    "norm": ("layernorm", "layernorm_no_bias", "layernorm_plain", "rmsnorm"),
    "qk_norm": ("none", "head", "full"),
    "part": ("block", "attention", "mlp", "linear"),
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
    "launch": ("kernel", "eager", "compile", "graph", "step"),
    "networks": (
        "kind",
        "step_latency",
        "ramp",
        "in_network_reduction",
        "operations",
        "processor_usage",
        "torus",
    ),
    "memory": (
        "withheld_GiB",
        "context_MiB",
        "workspaces_MiB",
        "communicator_MiB",
        "fragmentation",
        "host_share",
    ),
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
