"""Fields of operators: attention kernels (FlashAttention), fusion, launches, types, optimizer, tensor parallelism."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.published_tool import PublishedFields
from calculon.declarations.fields import ABOVE_ONE, BATCH, BLOCK, LAYOUT, STEP, declare
from calculon.declarations.named_values import (
    ATTENTION_KERNELS,
    DATATYPE_BYTES,
    EDITION_NAMES,
    LAUNCH_MODES,
    MATMUL_BYTES,
    OPTIMIZERS,
    PUBLISHED,
)

_MOMENTS = ("adam", "lion", "sgd_momentum", "muon")
"""Optimizers with moments of a selectable type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFields(PublishedFields):
    """Fields of operators: kernels, fusion and launches, precisions, optimizer, forms of tensor parallelism."""

    edition: str = declare(
        "edition of the cost model: as published, or with its defects corrected",
        choices=EDITION_NAMES,
        default=PUBLISHED,
        scope=LAYOUT | STEP | BATCH,
        searched="argument",
        of="question",
        instead="use the option of the edition: --edition, or edition=... in Python",
    )
    attn_impl: str = declare(
        "attention kernel: eager stores the score matrix, flash does not materialize it",
        choices=("eager", "flash"),
        default="eager",
        scope=LAYOUT,
        label="{} attention",
        mark="{}",
        adds="flash in addition to eager attention",
        control="Attention kernel",
        saves=("flash",),
    )
    attn_kernel: str = declare(
        "FlashAttention kernel: the default of the system, or a kernel with constants in the system file",
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
        "cross-entropy: eager, as in PyTorch, holds logits, a 4-byte copy, its log-softmax and gradient; megatron "
        "holds logits and a 4-byte copy, and works in the copy; fused works in place",
        choices=("eager", "megatron", "fused"),
        default="eager",
        scope=LAYOUT,
        label="{} cross-entropy",
        mark="{} CE",
        adds="megatron or fused in addition to eager cross-entropy",
        control="Cross-entropy",
        saves=("fused",),
    )
    grad_buffer: str = declare(
        "gradients kept for a sharded optimizer: sharded with it, or full (grad_dtype auto: in 4 bytes); "
        "zero_stage 0 and 1 always keep full gradients",
        choices=("sharded", "full"),
        default="sharded",
        scope=STEP,
        label="{} gradients",
        mark={"full": "full gradients"},
        needs={"zero_stage": ("auto", "0", "1")},
        why="gradients are not split",
        adds="full in addition to sharded gradients",
    )
    grad_comm_dtype: str = declare(
        "type of the data-parallel gradient reduction; same: type of the weights",
        choices=("same", *DATATYPE_BYTES),
        default="same",
        scope=BLOCK,
        label="gradients reduced in {}",
        mark="{} gradients",
        adds="types in which gradients are reduced",
    )
    optimizer: str = declare(
        "optimizer",
        choices=OPTIMIZERS,
        default="adam",
        scope=STEP,
        label="optimizer {}",
        mark="{}",
        adds="optimizers other than adam",
    )
    optimizer_impl: str = declare(
        "optimizer step: fused into one pass; foreach, one pass over all weights per operation; "
        "loop, one kernel per operation and weight tensor",
        choices=("fused", "foreach", "loop"),
        default="fused",
        scope=STEP,
        label="{} optimizer step",
        mark="{}",
        adds="foreach and loop in addition to a fused step",
    )
    optimizer_state_dtype: str = declare(
        "type of the optimizer's moments",
        choices=("float32", "bfloat16"),
        default="float32",
        scope=STEP,
        label="{} moments",
        mark="{} moments",
        needs={"optimizer": _MOMENTS},
        why="the type can be chosen",
        adds="bfloat16 in addition to float32 moments",
        saves=("bfloat16",),
    )
    grad_dtype: str = declare(
        "gradient accumulation dtype; each microbatch after the first reads the buffer again. auto: 4 bytes for full "
        "gradients; sharded gradients have the type of the weights and are not read again",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        scope=BLOCK | STEP | BATCH,
        label="gradients accumulated in {}",
        mark="accumulates in {}",
        adds="gradient accumulation dtypes",
        saves=("bfloat16",),
    )
    main_grad: bool = declare(
        "copy gradients of fewer than 4 bytes to 4 bytes for the optimizer step",
        default=False,
        scope=STEP,
        label="4-byte copy of gradients",
        mark="4 B copy",
        needs={"grad_dtype": ("bfloat16", "float16")},
        why="with gradients of 2 bytes",
        adds="true: a 4-byte copy of smaller gradients",
    )
    grad_flat: bool = declare(
        "concatenate smaller gradients before they are copied to 4 bytes for the optimizer step (DeepSpeed's ZeRO 1 "
        "and 2); no effect without main_grad",
        default=False,
        scope=STEP,
        label="gradients concatenated",
        mark="flat gradients",
        adds="true: gradients concatenated before their 4-byte copy",
    )
    grad_sums: bool = declare(
        "accumulate gradients of fewer than 4 bytes in separate 4-byte sums after every microbatch, in a separate "
        "pass; the optimizer step reads the sums",
        default=False,
        scope=STEP | BATCH,
        label="4-byte gradient sums",
        mark="4 B sums",
        needs={
            "zero_stage": ("0", "1", "2"),
            "grad_dtype": ("bfloat16", "float16"),
            "main_grad": (False,),
        },
        why="full gradients of 2 bytes are kept until the step",
        adds="true: separate 4-byte sums of smaller gradients",
    )
    grad_fusion: bool = declare(
        "accumulate gradients of later microbatches inside the products that compute them (gradient accumulation "
        "fusion); false: in a separate pass per microbatch, with a kernel per weight tensor",
        default=True,
        scope=BLOCK | BATCH,
        label="gradients accumulated in a separate pass",
        mark="accumulated in a pass",
        adds="false: gradients accumulated in a separate pass",
    )
    grad_clip: bool = declare(
        "clip gradients to a maximum norm before the step",
        default=False,
        scope=STEP,
        label="gradient clipping",
        mark="clipping",
        adds="true: gradients clipped to a maximum norm",
    )
    latency_per_step: bool = declare(
        "a collective pays its latency in every step of a ring instead of once",
        default=False,
        scope=BLOCK | BATCH,
        label="latency in every step",
        mark="latency per step",
        needs={"coll_algo": ("published",)},
        why="other algorithms always pay it",
        adds="true: latency in every step of a collective",
        of="circumstance",
    )
    fusion: str = declare(
        "kernels of elementwise operators: published, as in the published layers; none, one kernel per operator, as "
        "PyTorch runs them; compile, chains compiled into one kernel; max, also fused into the products before them",
        choices=("published", "none", "compile", "max"),
        default="published",
        scope=LAYOUT,
        label="fusion {}",
        mark={"none": "unfused", "compile": "compiled", "max": "max fusion"},
        adds="none, compile or max in addition to the published kernels",
    )
    compile_scope: str = declare(
        "scope of fusion compile and max: step, the whole step; blocks, torch.compile of each block: no fusion across "
        "blocks, and embedding, last norm, head and loss run operator by operator; blocks_and_loss, the same with a "
        "compiled loss",
        choices=("step", "blocks", "blocks_and_loss"),
        default="step",
        scope=LAYOUT,
        label="compiled: {}",
        mark={"blocks": "compiled blocks", "blocks_and_loss": "compiled blocks, loss"},
        needs={"fusion": ("compile", "max")},
        why="a compiler is used",
        adds="blocks or blocks_and_loss in addition to whole compiled steps",
    )
    rotary_impl: str = declare(
        "rotary embeddings as real products; as complex products with 4 bytes per part, which compilers do not fuse; "
        "or unfused: as real products operator by operator, even if other operators are fused",
        choices=("real", "complex", "unfused"),
        default="real",
        scope=LAYOUT,
        label="{} rotary embeddings",
        mark="{} rotary",
        needs={"fusion": ("none", "compile", "max")},
        why="kernels are not the published ones",
        adds="complex and unfused in addition to real rotary embeddings",
    )
    launch_mode: str = declare(
        "kernel launches: eager, operator by operator; compile; graph, of a whole iteration; graph_parts, graphs of "
        "layers whose shapes do not depend on the routing to experts, and eager for the others (memory of graphs, a "
        "few GB, is not counted); blocking, operator by operator with a wait for each kernel (CUDA_LAUNCH_BLOCKING=1, "
        "which prevents all overlap); auto: eager with fusion none and in blocks with experts, compile with fusion "
        "compile or max, and with published kernels no launch time",
        choices=("auto", *LAUNCH_MODES),
        default="auto",
        scope=LAYOUT | STEP,
        label="{} launches",
        mark="{} launches",
        adds="launch modes",
    )
    matmul_dtype: str = declare(
        "type of matrix arithmetic if smaller than the datatype; same: the datatype",
        choices=("same", *MATMUL_BYTES),
        default="same",
        scope=LAYOUT,
        label="products in {}",
        mark="{}",
        adds="types of matrix arithmetic",
    )
    float8_scaling: str = declare(
        "scale of 8-bit operands: delayed, from the largest values of earlier steps, so that norms can write 8 bits; "
        "current, from the tensor itself, which is read once more before the conversion",
        choices=("delayed", "current"),
        default="delayed",
        scope=LAYOUT,
        label="8-bit scaling {}",
        mark={"current": "current scaling"},
        needs={"matmul_dtype": ("float8",)},
        adds="current in addition to delayed, for products in float8",
        with_="matmul_dtype",
    )
    vocab_pad_multiple: int = declare(
        "pad the vocabulary of each tensor-parallel rank to a multiple of this number",
        at_least=1,
        default=1,
        scope=BLOCK | STEP | BATCH,
        label="vocabulary in multiples of {}",
        mark="padded to {}",
        adds="multiples to which the vocabulary is padded",
        samples=(128,),
    )
    seq_length: int = declare(
        "sequence length; 0: sequence length of the model",
        unit="tokens",
        at_least=0,
        default=0,
        scope=BLOCK | BATCH,
        label="sequences of {} tokens",
        mark="sequences of {}",
        adds="sequence lengths other than that in the model file",
        samples=(64, 1024),
        of="question",
        words={0: "the model's length"},
    )
    tp_impl: str = declare(
        "tensor parallelism: megatron, column-split then row-split products; allgather, every product split by columns "
        "and its output gathered, so that all ranks hold full inputs",
        choices=("megatron", "allgather"),
        default="megatron",
        scope=LAYOUT,
        label="TP form {}",
        mark={"allgather": "all-gather TP"},
        needs={"tensor_par_comm_type": ("ar",), "tensor_par_overlap": ("none",)},
        adds="allgather in addition to megatron",
    )
    seq_par_copies: bool = declare(
        "copy gathered tensors and tensors to be reduced as a whole, since batch-first tensors are split along their "
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
        why="collectives of sequence parallelism run alone",
        adds="true: copies around collectives of split sequences",
    )
    tp_async: bool = declare(
        "overlap the collective of an input gradient with the weight gradients of the same products, and a repeated "
        "gather with the input gradients",
        default=False,
        scope=BLOCK,
        label="input-gradient reduction overlapped with weight gradients",
        mark="async TP",
        needs={
            "training": (True,),
            "tensor_par": ABOVE_ONE,
            "tensor_par_overlap": ("none",),
            "tp_impl": ("megatron",),
        },
        adds="true: input-gradient reduction overlapped with weight gradients",
        control="Asynchronous TP gradients",
        switches={False: 0},
    )
    tp_user_buffers: bool = declare(
        "overlap with Transformer Engine's user buffers: gathers use a ring, the forward pass overlaps its reduction "
        "with a product in 4 pieces, and the backward pass of column-split products overlaps gathers and reductions "
        "with whole products; false: rings for all",
        default=False,
        scope=LAYOUT,
        label="user buffers",
        mark="user buffers",
        needs={"tensor_par_overlap": ("ring",), "tensor_par_comm_type": ("rs_ag",)},
        adds="true: overlap by rings, pieces and whole products as in Transformer Engine's user buffers",
    )
    tp_hidden_percent: int = declare(
        "share of the modeled overlap of split products that a real step reaches: pieces wait for each other's "
        "copies, and run more slowly than alone",
        unit="%",
        at_least=0,
        at_most=100,
        default=100,
        scope=BLOCK,
        label="{} % of the modeled overlap",
        mark="{} % hidden",
        needs={"tensor_par_overlap": ("ring", "pipe")},
        adds="shares of the modeled overlap of split products",
        samples=(0, 25),
        of="circumstance",
    )
    bias_after_reduce: bool = declare(
        "add the biases of row-split products in a separate pass after the reduction; false: in the product",
        default=False,
        scope=LAYOUT,
        label="biases after the reduction",
        mark="late bias",
        needs={"tp_impl": ("megatron",)},
        adds="true: biases in a pass after the reduction",
    )
    matmul_impl: str = declare(
        "products with weights: gemm, matrix products; mul_sum, multiplied and summed on the vector engine, with all "
        "elementwise products in memory in between; mul_sum_fused, the same in one kernel",
        choices=("gemm", "mul_sum", "mul_sum_fused"),
        default="gemm",
        scope=LAYOUT,
        label="products as {}",
        mark={"mul_sum": "mul + sum", "mul_sum_fused": "mul + sum, fused"},
        needs={"tensor_par_overlap": ("none",), "matmul_dtype": ("same",)},
        adds="mul_sum or mul_sum_fused in addition to gemm",
    )
