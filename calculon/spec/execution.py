"""The execution: how a model is split over processors, and which memory, time and traffic is traded for which.

Every field is declared once, with its scope (:class:`~calculon.spec.fields.Scope`). Named values and switches
of a scope are a frozen record below, by which rows of a table share costs; numbers are columns of the table.
"""

from typing import Any, ClassVar, Final

from calculon.frozen import dataclass
from calculon.spec.fields import (
    ABOVE_ONE,
    Scope,
    check_record,
    declare,
    optional_defaults,
    spec_fields,
)
from calculon.spec.lists_of_counts import ListsOfCounts

DATATYPE_BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes per element of each datatype."""

MATMUL_BYTES = DATATYPE_BYTES | {"tfloat32": 4}
"""Bytes per operand element of each type of matrix arithmetic; TF32 reads 4-byte operands."""

OPTIMIZERS = ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon")
"""Optimizers whose step is known."""


MASTER_BYTES: Final = 4
"""Bytes of a master copy of a weight, and of a gradient in the arithmetic of a step."""

LEAST_RESULT_BYTES = 2
"""8-bit products have 16-bit results (Micikevicius et al., arXiv 2209.05433, section 3)."""

_MOMENTS = ("adam", "lion", "sgd_momentum", "muon")
"""Optimizers that keep moments whose type can be chosen."""

_GATHERED = ("3", "fsdp")
"""Data-parallel strategies whose weights are gathered for each pass."""


def arithmetic_type(datatype: str, matmul_dtype: str) -> str:
    """Return the type in which products with weights are computed."""
    return datatype if matmul_dtype == "same" else matmul_dtype


ATTENTION_KERNELS = ("flash1", "triton", "flash2", "flash3", "cudnn")
"""Kernels of fused attention: FlashAttention 1 to 3, the first one in Triton (Dao's of 2022), and that of cuDNN."""

ZERO_STAGES = ("auto", "0", "1", "2", "3", "fsdp", "owner")
"""Data-parallel strategies: DDP, ZeRO-n, FSDP, layer-wise sharding; auto is the published one."""

COLLECTIVES = (
    "published",
    "auto",
    "ring",
    "tree",
    "nvls",
    "nvls_tree",
    "hierarchical",
    "pipelined",
    "collnet",
)
"""Algorithms of collectives."""

MESH_ORDERS = ("stated", "tp-dp-pp", "tp-pp-dp")
"""Numberings of ranks: process groups on explicit networks, or dimensions fastest first."""

ENDS_AS_BLOCKS = {
    "embedding_as_block": (1, 0),
    "head_as_block": (0, 1),
    "both_as_blocks": (1, 1),
}
"""Layouts of pipelines in which embedding and output head count as so many blocks."""

PP_LAYOUTS = ("uniform", "balanced", *ENDS_AS_BLOCKS)
"""How blocks are laid out over the stages of a pipeline."""

PP_SCHEDULES = ("1f1b", "gpipe", "zb_h1")
"""Orders of passes of a pipeline that trains."""

LAUNCH_MODES = ("eager", "compile", "graph", "blocking")
"""Ways in which a host launches kernels."""

PUBLISHED, CORRECTED = "sc23", "corrected"
EDITION_NAMES = (PUBLISHED, CORRECTED)
"""Editions of the cost model; the first is that of an execution that names none."""

PRESETS = (
    "published",
    "common",
    "megatron-lm",
    "megatron-lm-ub",
    "megatron-lm-2021",
    "torchtitan",
    "deepspeed",
    "llm-foundry",
    "huggingface",
)
"""Presets of the catalog: the published forms, what all frameworks share, and frameworks (:mod:`calculon.presets`)."""

LAYOUT, BLOCK, STEP, BATCH = Scope.LAYOUT, Scope.BLOCK, Scope.STEP, Scope.BATCH


_STAGE_LISTS = ListsOfCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The plan of one training step (or one inference pass): the 23 published fields, and optional ones.

    The order of the fields is that of the published files and of every table. The optional fields need the corrected
    edition.
    """

    unknown_keys: ClassVar[str] = "error"
    overlays: ClassVar[bool] = True
    completed_where: ClassVar[tuple[tuple[str, str], ...]] = (
        ("edition", CORRECTED),
        *(("preset", name) for name in PRESETS[1:]),
    )
    """Fields, and their values, with which a preset fills in what is left out."""

    num_procs: int = declare(
        "processors; the product of the three degrees of parallelism",
        at_least=1,
        scope=BATCH,
        searched="argument",
    )
    tensor_par: int = declare("tensor-parallel degree (TP)", at_least=1, scope=BLOCK | STEP | BATCH)
    pipeline_par: int = declare(
        "pipeline-parallel degree (PP)",
        at_least=1,
        scope=BATCH,
        adds="pipeline degrees that leave stages uneven",
    )
    data_par: int = declare("data-parallel degree (DP)", at_least=1, scope=STEP | BATCH)
    tensor_par_net: int = declare(
        "network of the tensor-parallel groups", at_least=0, scope=BLOCK | BATCH
    )
    pipeline_par_net: int = declare("network of the pipeline", at_least=0, scope=BATCH)
    data_par_net: int = declare("network of the data-parallel groups", at_least=0, scope=BATCH)
    batch_size: int = declare(
        "global batch",
        unit="sequences",
        at_least=1,
        scope=BATCH,
        adds="batch sizes below the largest",
    )
    microbatch_size: int = declare(
        "sequences per microbatch", unit="sequences", at_least=1, scope=BLOCK | BATCH
    )
    datatype: str = declare(
        "type of weights, activations and matrix arithmetic",
        choices=tuple(DATATYPE_BYTES),
        scope=LAYOUT,
        searched="argument",
    )
    fused_activation: bool = declare(
        "GeLU fused with its neighbours: its input is not stored", scope=LAYOUT
    )
    attention_type: str = declare(
        "multihead, or multiquery with one shared key/value head",
        choices=("multihead", "multiquery"),
        scope=LAYOUT | BATCH,
        adds="multiquery beside multihead",
    )
    activation_recompute: str = declare(
        "what the backward pass computes again instead of storing: all, the attention core (of flash attention, which "
        "stores no more than its inputs, for nothing), nothing",
        choices=("full", "attn_only", "none"),
        scope=BLOCK | BATCH,
        adds="attn_only, where a preset leaves it out",
    )
    pipeline_interleaving: int = declare(
        "model chunks per processor (virtual stages)", at_least=1, scope=BATCH
    )
    optimizer_sharding: bool = declare(
        "optimizer state split over data parallelism (ZeRO-1)", scope=BATCH
    )
    tensor_par_comm_type: str = declare(
        "all-reduce; split into reduce-scatter and all-gather around pipeline transfers; or split "
        "everywhere (sequence parallelism)",
        choices=("ar", "p2p_rs_ag", "rs_ag"),
        scope=LAYOUT | BLOCK,
    )
    tensor_par_overlap: str = declare(
        "tensor-parallel collectives overlapped with their matrix products, in tiles",
        choices=("none", "ring", "pipe"),
        scope=LAYOUT | BLOCK,
        adds="ring or pipe, where a preset leaves them out",
    )
    seq_par_ag_redo: bool = declare(
        "sequence parallelism stores split inputs and gathers them again in the backward pass",
        scope=BLOCK,
    )
    data_par_overlap: bool = declare(
        "data-parallel traffic overlapped with the backward pass", scope=BATCH
    )
    weight_offload: bool = declare(
        "weights kept in tier-2 memory", scope=BATCH, adds="true, where a preset leaves it out"
    )
    activations_offload: bool = declare(
        "activations kept in tier-2 memory",
        scope=BATCH,
        adds="true: also with full recomputation, and where a preset leaves it out",
    )
    optimizer_offload: bool = declare(
        "optimizer state kept in tier-2 memory",
        scope=BATCH,
        adds="true, where a preset leaves it out",
    )
    training: bool = declare(
        "training step; false is inference, forward only",
        scope=BLOCK | STEP | BATCH,
        searched="argument",
    )
    edition: str = declare(
        "edition of the cost model: as published, or with its defects corrected",
        choices=EDITION_NAMES,
        default=PUBLISHED,
        scope=LAYOUT | STEP | BATCH,
        searched="argument",
    )
    attn_impl: str = declare(
        "attention kernel: eager stores the matrix of scores, flash never has it in memory",
        choices=("eager", "flash"),
        default="eager",
        scope=LAYOUT,
        label="{} attention",
        mark="{}",
        adds="flash beside eager attention",
    )
    attn_kernel: str = declare(
        "kernel of flash attention: the default of the system, or one that its file has constants of",
        choices=("auto", *ATTENTION_KERNELS),
        default="auto",
        scope=LAYOUT,
        label="attention kernel {}",
        mark="{}",
        needs={"attn_impl": ("flash",)},
        why="a fused kernel runs",
        adds="attention kernels by name",
    )
    ce_impl: str = declare(
        "cross-entropy: eager holds logits, a 4-byte copy, its log-softmax and gradient, as PyTorch; megatron logits "
        "and a 4-byte copy that it works in; fused works in place",
        choices=("eager", "megatron", "fused"),
        default="eager",
        scope=LAYOUT,
        label="{} cross-entropy",
        mark="{} CE",
        adds="megatron or fused beside eager cross-entropy",
    )
    grad_buffer: str = declare(
        "gradients that wait for a sharded optimizer: split with it, or whole (grad_dtype auto: in 4 bytes); "
        "zero_stage 0 and 1 leave them whole by themselves",
        choices=("sharded", "full"),
        default="sharded",
        scope=STEP,
        label="{} gradients",
        mark={"full": "whole gradients"},
        needs={"zero_stage": ("auto", "0", "1")},
        why="gradients are not split",
        adds="full beside sharded gradients",
    )
    grad_comm_dtype: str = declare(
        "type in which gradients are reduced over data parallelism; same: that of the weights",
        choices=("same", *DATATYPE_BYTES),
        default="same",
        scope=BLOCK,
        label="gradients reduced in {}",
        mark="{} gradients",
        adds="types in which gradients are reduced",
    )
    optimizer: str = declare(
        "what turns gradients into new weights",
        choices=OPTIMIZERS,
        default="adam",
        scope=STEP,
        label="optimizer {}",
        mark="{}",
        adds="optimizers beside adam",
    )
    optimizer_impl: str = declare(
        "optimizer step: fused into one pass; one pass over all weights for each of its operations; "
        "or one kernel for each operation and weight tensor",
        choices=("fused", "foreach", "loop"),
        default="fused",
        scope=STEP,
        label="{} optimizer step",
        mark="{}",
        adds="foreach and loop beside a fused step",
    )
    optimizer_state_dtype: str = declare(
        "type of the optimizer's moments",
        choices=("float32", "bfloat16"),
        default="float32",
        scope=STEP,
        label="{} moments",
        mark="{} moments",
        needs={"optimizer": _MOMENTS},
        why="a type can be chosen",
        adds="bfloat16 beside float32 moments",
    )
    grad_dtype: str = declare(
        "type in which gradients are added up and wait, the buffer read again by each microbatch after the first; "
        "auto: 4 bytes while whole, sharded that of the weights, nothing read again",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        scope=BLOCK | STEP | BATCH,
        label="gradients added up in {}",
        mark="adds in {}",
        adds="types in which gradients are added up",
    )
    main_grad: bool = declare(
        "gradients of fewer than 4 bytes are copied to 4 for the step",
        default=False,
        scope=STEP,
        label="4-byte copy of gradients",
        mark="4 B copy",
        needs={"grad_dtype": ("bfloat16", "float16")},
        why="with gradients of 2 bytes",
        adds="true: a 4-byte copy of smaller gradients",
    )
    grad_flat: bool = declare(
        "smaller gradients are laid out in one piece before they are copied to 4 bytes for the step (DeepSpeed's ZeRO "
        "1 and 2); of no effect without main_grad",
        default=False,
        scope=STEP,
        label="gradients in one piece",
        mark="flat gradients",
        adds="true: gradients in one piece before their 4-byte copy",
    )
    grad_sums: bool = declare(
        "gradients of fewer than 4 bytes are added to sums of 4 bytes beside them after every microbatch, in a pass of "
        "its own; the step reads the sums",
        default=False,
        scope=STEP | BATCH,
        label="4-byte sums beside gradients",
        mark="4 B sums",
        needs={
            "zero_stage": ("0", "1", "2"),
            "grad_dtype": ("bfloat16", "float16"),
            "main_grad": (False,),
        },
        why="gradients that wait beside whole weights",
        adds="true: 4-byte sums beside smaller gradients",
    )
    grad_fusion: bool = declare(
        "gradients of later microbatches are added up in the products that make them; false: those of every microbatch "
        "in a pass of its own, with a kernel for each weight tensor",
        default=True,
        scope=BLOCK | BATCH,
        label="gradients added up in a pass of its own",
        mark="added in a pass",
        adds="false: gradients added up in a pass of its own",
    )
    grad_clip: bool = declare(
        "gradients are scaled to a largest norm before the step",
        default=False,
        scope=STEP,
        label="gradient clipping",
        mark="clipping",
        adds="true: gradients scaled to a largest norm",
    )
    latency_per_step: bool = declare(
        "a collective pays its latency in every step of a ring, not once",
        default=False,
        scope=BLOCK | BATCH,
        label="latency in every step",
        mark="latency per step",
        needs={"coll_algo": ("published",)},
        why="other algorithms pay it anyway",
        adds="true: latency in every step of a collective",
    )
    fusion: str = declare(
        "kernels of elementwise operators: as in the published layers; one for each operator, as PyTorch runs them; "
        "chains compiled into one; also into the products before them",
        choices=("published", "none", "compile", "max"),
        default="published",
        scope=LAYOUT,
        label="fusion {}",
        mark={"none": "unfused", "compile": "compiled", "max": "max fusion"},
        adds="none, compile or max beside the published kernels",
    )
    compile_scope: str = declare(
        "what fusion compile and max cover: the whole step; or blocks one by one, as torch.compile of single modules: "
        "nothing is joined from one to the next, and embedding, last norm, head and loss run operator by operator, or "
        "all of these but the loss",
        choices=("step", "blocks", "blocks_and_loss"),
        default="step",
        scope=LAYOUT,
        label="compiled: {}",
        mark={"blocks": "compiled blocks", "blocks_and_loss": "compiled blocks, loss"},
        needs={"fusion": ("compile", "max")},
        why="where something is compiled",
        adds="blocks or blocks_and_loss beside whole compiled steps",
    )
    rotary_impl: str = declare(
        "rotary embeddings as products of real numbers; or of complex ones of 4 bytes each part, which compilers leave "
        "as they are",
        choices=("real", "complex"),
        default="real",
        scope=LAYOUT,
        label="{} rotary embeddings",
        mark="{} rotary",
        needs={"fusion": ("none", "compile", "max")},
        why="kernels that are not the published ones",
        adds="complex beside real rotary embeddings",
    )
    launch_mode: str = declare(
        "how the host launches kernels: operator by operator, compiled, as a graph, or operator by operator and "
        "waiting for each kernel (CUDA_LAUNCH_BLOCKING=1, which overlaps nothing); auto: eager with fusion none, "
        "compile with compile or max, and with published kernels it is never waited for",
        choices=("auto", *LAUNCH_MODES),
        default="auto",
        scope=LAYOUT | STEP,
        label="{} launches",
        mark="{} launches",
        adds="how kernels are launched",
    )
    matmul_dtype: str = declare(
        "type of matrix arithmetic, where it is smaller than the datatype; same: the datatype",
        choices=("same", *MATMUL_BYTES),
        default="same",
        scope=LAYOUT,
        label="products in {}",
        mark="{}",
        adds="types of matrix arithmetic",
    )
    float8_scaling: str = declare(
        "factor of 8-bit operands: of the largest values of steps before, so that norms write 8 bits (delayed); or of "
        "the tensor itself, which is read once more before it is converted (current)",
        choices=("delayed", "current"),
        default="delayed",
        scope=LAYOUT,
        label="8-bit scaling {}",
        mark={"current": "current scaling"},
        needs={"matmul_dtype": ("float8",)},
        adds="current beside delayed, for products in float8",
    )
    vocab_pad_multiple: int = declare(
        "the vocabulary on each tensor-parallel rank is filled up to a multiple of this",
        at_least=1,
        default=1,
        scope=BLOCK | STEP | BATCH,
        label="vocabulary in multiples of {}",
        mark="padded to {}",
        adds="multiples that the vocabulary is filled up to",
        samples=(128,),
    )
    seq_length: int = declare(
        "sequence length; 0: the model's own",
        unit="tokens",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="sequences of {} tokens",
        mark="sequences of {}",
        adds="sequence lengths beside the model's own",
        samples=(64, 1024),
    )
    tp_impl: str = declare(
        "tensor parallelism: column- then row-split products (megatron); or every product split by columns and its "
        "output gathered, so that all ranks hold whole inputs (allgather)",
        choices=("megatron", "allgather"),
        default="megatron",
        scope=LAYOUT,
        label="TP form {}",
        mark={"allgather": "all-gather TP"},
        needs={"tensor_par_comm_type": ("ar",), "tensor_par_overlap": ("none",)},
        adds="allgather beside megatron",
    )
    seq_par_copies: bool = declare(
        "gathered tensors, and those to be reduced, are copied whole, since batch-first tensors are split along their "
        "second dimension",
        default=False,
        scope=LAYOUT,
        label="copies around collectives of split sequences",
        mark="split copies",
        needs={
            "tensor_par": ABOVE_ONE,
            "tensor_par_comm_type": ("rs_ag",),
            "tensor_par_overlap": ("none",),
            "tp_async": (False,),
        },
        why="collectives of split sequences that run alone",
        adds="true: copies around collectives of split sequences",
    )
    tp_async: bool = declare(
        "the collective of an input's gradient runs beside the weight gradients of the same products, and a repeated "
        "gather beside the gradients of their inputs",
        default=False,
        scope=BLOCK,
        label="gradients reduced behind weight gradients",
        mark="async TP",
        needs={
            "training": (True,),
            "tensor_par": ABOVE_ONE,
            "tensor_par_overlap": ("none",),
            "tp_impl": ("megatron",),
        },
        adds="true: gradients of inputs reduced behind those of weights",
    )
    tp_user_buffers: bool = declare(
        "overlap of Transformer Engine's user buffers: gathers go round a ring, the forward pass reduces beside a "
        "product in 4 pieces, and the backward pass of column-split products gathers and reduces beside whole ones; "
        "false: all go round a ring",
        default=False,
        scope=LAYOUT,
        label="user buffers",
        mark="user buffers",
        needs={"tensor_par_overlap": ("ring",), "tensor_par_comm_type": ("rs_ag",)},
        adds="true: rings, pieces and whole products as Transformer Engine's user buffers",
    )
    tp_hidden_percent: int = declare(
        "share of what the overlap of cut products hides by the model that it hides in a step: pieces wait for each "
        "other's copies, and run below the rate that they have alone",
        unit="%",
        at_least=0,
        at_most=100,
        default=100,
        scope=BLOCK,
        label="{} % of it hidden",
        mark="{} % hidden",
        needs={"tensor_par_overlap": ("ring", "pipe")},
        adds="shares that cut products hide",
        samples=(0, 25),
    )
    bias_after_reduce: bool = declare(
        "biases of row-split products are added in a pass of their own after the reduction; false: in the product",
        default=False,
        scope=LAYOUT,
        label="biases after the reduction",
        mark="late bias",
        needs={"tp_impl": ("megatron",)},
        adds="true: biases in a pass after the reduction",
    )
    matmul_impl: str = declare(
        "products with weights: matrix products; or multiplied and summed on the vector engine, "
        "with all single products in memory between the two (mul_sum) or in one kernel (mul_sum_fused)",
        choices=("gemm", "mul_sum", "mul_sum_fused"),
        default="gemm",
        scope=LAYOUT,
        label="products as {}",
        mark={"mul_sum": "mul + sum", "mul_sum_fused": "mul + sum, fused"},
        needs={"tensor_par_overlap": ("none",), "matmul_dtype": ("same",)},
        adds="mul_sum or mul_sum_fused beside gemm",
    )
    zero_stage: str = declare(
        "what replicas share: auto as optimizer_sharding says, by the published laws; 0 nothing (DDP), 1 optimizer "
        "state, 2 also gradients, 3 also weights (ZeRO); fsdp: 3 with 4-byte weights and no other copy; owner: each "
        "layer is whole on one rank, nothing overlaps",
        choices=ZERO_STAGES,
        default="auto",
        scope=STEP | BATCH,
        label="replicas share: zero_stage {}",
        mark={
            "0": "DDP",
            "1": "ZeRO-1",
            "2": "ZeRO-2",
            "3": "ZeRO-3",
            "fsdp": "FSDP",
            "owner": "owned layers",
        },
        needs={"training": (True,)},
        adds="data-parallel strategies: 0, 1, 2, 3, fsdp, owner",
    )
    dp_shard: int = declare(
        "ranks that share what zero_stage splits, replicated over the others (hybrid sharding); 0: all replicas",
        at_least=0,
        default=0,
        scope=STEP | BATCH,
        label="over groups of {} replicas",
        mark="shards of {}",
        needs={"zero_stage": ("1", "2", *_GATHERED)},
        why="what is split over some of the replicas",
        adds="ranks that share what zero_stage splits",
        samples=(2,),
    )
    fsdp_unit: int = declare(
        "blocks whose weights are gathered together (zero_stage 3, fsdp)",
        at_least=1,
        default=1,
        scope=BATCH,
        label="units of {} blocks",
        mark="units of {}",
        needs={"zero_stage": _GATHERED},
        why="weights that are gathered",
        adds="blocks that are gathered together",
        samples=(2,),
    )
    fsdp_prefetch: int = declare(
        "units gathered ahead of their computation (zero_stage 3, fsdp); 0: nothing overlaps",
        at_least=0,
        default=1,
        scope=BATCH,
        label="{} units gathered ahead",
        mark="{} ahead",
        needs={"zero_stage": _GATHERED},
        why="weights that are gathered",
        adds="units that are gathered ahead",
        samples=(0, 2),
    )
    reshard_after_forward: bool = declare(
        "weights are dropped after the forward pass and gathered again (zero_stage 3, fsdp)",
        default=True,
        scope=BATCH,
        label="gathered weights kept until the backward pass",
        mark="kept weights",
        needs={"zero_stage": _GATHERED},
        why="weights that are gathered",
        adds="false: gathered weights stay until the backward pass",
    )
    ddp_bucket_mib: int = declare(
        "gradients reduced together (zero_stage 0 to 2); 0: those of a block",
        unit="MiB",
        at_least=0,
        default=0,
        scope=BATCH,
        label="gradient buckets of {} MiB",
        mark="buckets {} MiB",
        needs={"zero_stage": ("0", "1", "2")},
        why="gradients that are reduced in buckets",
        adds="sizes of gradient buckets",
        samples=(1, 25),
    )
    no_sync: bool = declare(
        "gradients are reduced once per batch, not after every microbatch (zero_stage 0 and 1)",
        default=True,
        scope=BATCH,
        label="gradients reduced after every microbatch",
        mark="reduced each microbatch",
        needs={"zero_stage": ("0", "1")},
        why="gradients that wait for the end of the batch",
        adds="false: gradients reduced after every microbatch",
    )
    grad_group: int = declare(
        "microbatches that pass a chunk of a stage before its gradients, whole until then, are reduced and split",
        unit="microbatches",
        at_least=1,
        default=1,
        scope=BATCH,
        label="gradients split after {} microbatches",
        mark="split after {}",
        needs={"zero_stage": ("2",)},
        why="gradients that are split and reduced in groups",
        adds="microbatches whose gradients are reduced together",
        samples=(2, 4),
    )
    overlap_param_gather: bool = declare(
        "new weights are gathered beside the next forward pass (zero_stage 1 and 2)",
        default=False,
        scope=BATCH,
        label="new weights gathered beside the forward pass",
        mark="late gather",
        needs={"zero_stage": ("1", "2")},
        why="weights that are gathered after the step",
        adds="true: new weights gathered beside the next forward pass",
    )
    mem_reserved_mib: int = declare(
        "tier-1 memory of each processor that is not the model's: context, libraries, communicators; -1: as the system "
        "states it (ext.memory)",
        unit="MiB",
        at_least=-1,
        default=-1,
        scope=BATCH,
        label="{} MiB reserved",
        mark="{} MiB reserved",
        adds="memory that is not the model's",
        samples=(0, 64, 512),
    )
    mem_fragments_percent: int = declare(
        "fragments of the allocator, as a share of activations, their gradients and buffers in tier 1; -1: as the "
        "system states it (ext.memory)",
        unit="%",
        at_least=-1,
        default=-1,
        scope=BATCH,
        label="{} % of fragments",
        mark="{} % fragments",
        adds="shares of fragments",
        samples=(0, 3),
    )
    data_par_slowdown: int = declare(
        "time that work takes longer beside overlapped data-parallel collectives, as a share of theirs: they take "
        "multiprocessors, memory bandwidth and power; 0: the multiprocessors alone (processor_usage of the system)",
        unit="%",
        at_least=0,
        below=100,
        default=0,
        scope=BATCH,
        label="work beside data-parallel collectives slowed by {} % of their time",
        mark="{} % slowed",
        adds="slow-downs of work beside data-parallel collectives",
        samples=(60,),
    )
    coll_algo: str = declare(
        "algorithm of collectives: published is the formula of the network's ops, auto the fastest of those that "
        "libraries choose from; any other one where it can run, and auto elsewhere",
        choices=COLLECTIVES,
        default="published",
        scope=BLOCK | BATCH,
        label="collectives {}",
        mark="{} collectives",
        adds="algorithms of collectives",
    )
    mesh_order: str = declare(
        "how ranks are numbered, fastest dimension first: groups then use the networks that they span, whatever "
        "the three *_net say; stated: each group is on its *_net",
        choices=MESH_ORDERS,
        default="stated",
        scope=BLOCK | BATCH,
        label="ranks numbered {}",
        mark="{}",
        searched="fixed",
    )
    pp_schedule: str = declare(
        "order of passes in a training pipeline: 1f1b (interleaved with several chunks), gpipe (all forward passes "
        "first), zb_h1 (gradients of weights fill the drain)",
        choices=PP_SCHEDULES,
        default="1f1b",
        scope=BATCH,
        label="pipeline schedule {}",
        mark={"gpipe": "GPipe", "zb_h1": "ZB-H1"},
        needs={"training": (True,), "pipeline_par": ABOVE_ONE, "pipeline_interleaving": (1,)},
        adds="gpipe or zb_h1 beside 1f1b",
    )
    pp_layout: str = declare(
        "blocks of pipeline stages: uniform; balanced, where the output head counts as the blocks that its weights "
        "are worth; or the embedding, the head or both count as one block each",
        choices=PP_LAYOUTS,
        default="uniform",
        scope=BATCH,
        label="{} pipeline stages",
        mark="{}",
        needs={"pipeline_par": ABOVE_ONE},
        adds="layouts beside uniform pipeline stages",
    )
    first_stage_blocks: int = declare(
        "blocks of the first pipeline stage; 0: as pp_layout says",
        at_least=0,
        default=0,
        scope=BATCH,
        label="first stage of {} blocks",
        mark="first {}",
        needs={"pipeline_par": ABOVE_ONE, "pp_layout": ("uniform",)},
        adds="blocks of the first pipeline stage",
        samples=(1, 2),
    )
    last_stage_blocks: int = declare(
        "blocks of the last pipeline stage; 0: as pp_layout says",
        at_least=0,
        default=0,
        scope=BATCH,
        label="last stage of {} blocks",
        mark="last {}",
        needs={"pipeline_par": ABOVE_ONE, "pp_layout": ("uniform",)},
        adds="blocks of the last pipeline stage",
        samples=(1, 2),
    )
    stage_blocks: str = declare(
        "blocks of each pipeline stage, in order, or of each chunk: of the first chunk of all stages, then of the "
        "second, and so on; empty: as pp_layout says",
        choices=_STAGE_LISTS,
        default="",
        scope=BATCH,
        label="stages of {} blocks",
        mark="stages {}",
        needs={
            "pipeline_par": ABOVE_ONE,
            "pp_layout": ("uniform",),
            "first_stage_blocks": (0,),
            "last_stage_blocks": (0,),
        },
        adds="lists of the blocks of all stages, such as 9-8-8-7",
        samples=("2-2", "3-1"),
    )
    p2p_overlap: bool = declare(
        "transfers between pipeline stages run beside other passes, but for one trip of a microbatch",
        default=False,
        scope=BATCH,
        label="pipeline transfers overlapped",
        mark="p2p overlap",
        needs={"pipeline_par": ABOVE_ONE},
        adds="true: pipeline transfers beside other passes",
    )
    stage_stop_us: int = declare(
        "time for which each stage of a pipeline stands still beside a microbatch, while the host runs the "
        "instructions of a pipeline engine and reads what other stages send",
        unit="us",
        at_least=0,
        default=0,
        scope=BATCH,
        label="stages stand still for {} us beside each microbatch",
        mark="{} us beside a microbatch",
        adds="times for which stages stand still beside a microbatch",
        samples=(0, 100, 10_000),
    )

    recompute_modules: str = declare(
        "which operators of a block the backward pass computes again instead of storing their results: norms, "
        "activations, both, the whole MLP; or ops, all but attention, reductions of split sequences and every other "
        "product",
        choices=("none", "norm", "activation", "norm_activation", "mlp", "ops"),
        default="none",
        scope=BLOCK,
        label="recomputed: {}",
        mark={
            "norm": "norms again",
            "activation": "activations again",
            "norm_activation": "norms, activations again",
            "mlp": "MLP again",
            "ops": "selective ops",
        },
        needs={
            "training": (True,),
            "activation_recompute": ("none", "attn_only"),
            "tp_impl": ("megatron",),
            "matmul_impl": ("gemm",),
        },
        adds="operators that are computed again",
    )
    recompute_every: int = declare(
        "of so many blocks one recomputes, the others store everything",
        unit="blocks",
        at_least=1,
        default=1,
        scope=BLOCK | BATCH,
        label="one of {} blocks recomputes",
        mark="1 of {} again",
        needs={"activation_recompute": ("full", "attn_only")},
        why="something is recomputed, which recompute_modules may say, too",
        adds="that one of so many blocks recomputes",
        samples=(2, 3),
    )

    preset: str = declare(
        "framework that fills in the fields that are left out, and whose limits hold; common is what all share, and "
        "the default of edition corrected; published are the published forms",
        choices=PRESETS,
        default=PRESETS[0],
        scope=BATCH,
        label="as {} runs it",
        mark="{}",
        searched="argument",
    )

    def __post_init__(self) -> None:
        stage: Any = self.zero_stage
        if type(stage) is int:  # as in most files
            object.__setattr__(self, "zero_stage", str(stage))
        blocks: Any = self.stage_blocks
        if isinstance(blocks, (list, tuple)):
            object.__setattr__(self, "stage_blocks", _STAGE_LISTS.plain(blocks))
        check_record(self)

    @property
    def matmul_type(self) -> str:
        """Type of the arithmetic of products with weights."""
        return arithmetic_type(self.datatype, self.matmul_dtype)

    @property
    def extensions(self) -> dict[str, Any]:
        """The optional fields that do not have their default."""
        defaults = optional_defaults(Execution)
        return {name: v for name in defaults if (v := getattr(self, name)) != defaults[name]}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file: the 23 in published order, then those that differ from their default.

        In edition corrected, which fills in what is left out, every field is written.
        """
        every = {field.name: getattr(self, field.name) for field in spec_fields(Execution)}
        if self.edition != PUBLISHED:
            return every
        optional = optional_defaults(Execution)
        return {name: v for name, v in every.items() if name not in optional} | self.extensions
