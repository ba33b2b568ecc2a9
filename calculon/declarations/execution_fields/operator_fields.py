"""Fields of operators: kernels, fusion and launches, types of numbers, forms of tensor parallelism."""

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
"""Optimizers that keep moments whose type can be chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFields(PublishedFields):
    """Fields of operators: kernels, fusion and launches, types of numbers, forms of tensor parallelism."""

    edition: str = declare(
        "edition of the cost model: as published, or with its defects corrected",
        choices=EDITION_NAMES,
        default=PUBLISHED,
        scope=LAYOUT | STEP | BATCH,
        searched="argument",
        of="question",
        instead="the edition is an option of its own: --edition, or edition=... in Python",
    )
    attn_impl: str = declare(
        "attention kernel: eager stores the matrix of scores, flash never has it in memory",
        choices=("eager", "flash"),
        default="eager",
        scope=LAYOUT,
        label="{} attention",
        mark="{}",
        adds="flash beside eager attention",
        control="Attention kernel",
        saves=("flash",),
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
        control="Cross-entropy",
        saves=("fused",),
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
        saves=("bfloat16",),
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
        saves=("bfloat16",),
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
        of="circumstance",
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
        with_="matmul_dtype",
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
        of="question",
        words={0: "the model's own"},
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
        control="Asynchronous TP gradients",
        switches={False: 0},
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
        of="circumstance",
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
