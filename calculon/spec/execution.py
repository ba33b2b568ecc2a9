"""The execution: how a model is split over processors and what is traded for what."""

from dataclasses import dataclass
from typing import Any, ClassVar

from calculon.spec.fields import check_record, declare, optional_defaults, spec_fields

DATATYPE_BYTES = {"float8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
"""Bytes per element of each datatype."""

MATMUL_BYTES = DATATYPE_BYTES | {"tfloat32": 4}
"""Bytes per operand element of each type of matrix arithmetic; TF32 reads 4-byte operands."""

OPTIMIZERS = ("adam", "adam_8bit", "lion", "sgd_momentum", "sgd", "adafactor", "muon")
"""Optimizers whose step is known."""


def arithmetic_type(datatype: str, matmul_dtype: str) -> str:
    """Return the type in which products with weights are computed."""
    return datatype if matmul_dtype == "same" else matmul_dtype


ZERO_STAGES = ("auto", "0", "1", "2", "3", "fsdp", "owner")
"""How replicas share weights, gradients and optimizer state."""

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
"""How ranks are laid out over the processors: groups are on stated networks, or dimensions fastest first."""

PP_SCHEDULES = ("1f1b", "gpipe", "zb_h1")
"""Orders of passes of a pipeline that trains."""

PUBLISHED, CORRECTED = "sc23", "corrected"
EDITION_NAMES = (PUBLISHED, CORRECTED)
"""Editions of the cost model; the first is that of an execution that names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One plan for one training step (or one inference pass): the 23 published knobs, and optional ones.

    The order of the fields is that of the published files and of every table. The optional knobs need the corrected
    edition.
    """

    unknown_keys: ClassVar[str] = "error"

    num_procs: int = declare(
        "processors; the product of the three degrees of parallelism", at_least=1
    )
    tensor_par: int = declare("tensor-parallel degree (TP)", at_least=1)
    pipeline_par: int = declare("pipeline-parallel degree (PP)", at_least=1)
    data_par: int = declare("data-parallel degree (DP)", at_least=1)
    tensor_par_net: int = declare("network of the tensor-parallel groups", at_least=0)
    pipeline_par_net: int = declare("network of the pipeline", at_least=0)
    data_par_net: int = declare("network of the data-parallel groups", at_least=0)
    batch_size: int = declare("global batch", unit="sequences", at_least=1)
    microbatch_size: int = declare("sequences per microbatch", unit="sequences", at_least=1)
    datatype: str = declare(
        "type of weights, activations and matrix arithmetic", choices=tuple(DATATYPE_BYTES)
    )
    fused_activation: bool = declare("GeLU fused with its neighbours: its input is not stored")
    attention_type: str = declare(
        "multihead, or multiquery with one shared key/value head",
        choices=("multihead", "multiquery"),
    )
    activation_recompute: str = declare(
        "what the backward pass computes again instead of storing: all, the attention core, nothing",
        choices=("full", "attn_only", "none"),
    )
    pipeline_interleaving: int = declare("model chunks per processor (virtual stages)", at_least=1)
    optimizer_sharding: bool = declare("optimizer state split over data parallelism (ZeRO-1)")
    tensor_par_comm_type: str = declare(
        "all-reduce; split into reduce-scatter and all-gather around pipeline transfers; or split "
        "everywhere (sequence parallelism)",
        choices=("ar", "p2p_rs_ag", "rs_ag"),
    )
    tensor_par_overlap: str = declare(
        "tensor-parallel collectives overlapped with their matrix products, in tiles",
        choices=("none", "ring", "pipe"),
    )
    seq_par_ag_redo: bool = declare(
        "sequence parallelism stores split inputs and gathers them again in the backward pass"
    )
    data_par_overlap: bool = declare("data-parallel traffic overlapped with the backward pass")
    weight_offload: bool = declare("weights kept in tier-2 memory")
    activations_offload: bool = declare("activations kept in tier-2 memory")
    optimizer_offload: bool = declare("optimizer state kept in tier-2 memory")
    training: bool = declare("training step; false is inference, forward only")
    edition: str = declare(
        "edition of the cost model: as published, or with its defects corrected",
        choices=EDITION_NAMES,
        default=PUBLISHED,
    )
    attn_impl: str = declare(
        "attention kernel: eager stores the matrix of scores, flash never has it in memory",
        choices=("eager", "flash"),
        default="eager",
    )
    ce_impl: str = declare(
        "cross-entropy: eager holds logits, a 4-byte copy and its gradient; fused works in place",
        choices=("eager", "fused"),
        default="eager",
    )
    grad_buffer: str = declare(
        "gradients that wait for a sharded optimizer: split with it, or whole (grad_dtype auto: in 4 bytes)",
        choices=("sharded", "full"),
        default="sharded",
    )
    grad_comm_dtype: str = declare(
        "type in which gradients are reduced over data parallelism; same: that of the weights",
        choices=("same", *DATATYPE_BYTES),
        default="same",
    )
    optimizer: str = declare(
        "what turns gradients into new weights", choices=OPTIMIZERS, default="adam"
    )
    optimizer_impl: str = declare(
        "optimizer step: fused into one pass; one pass over all weights for each of its operations; "
        "or one kernel for each operation and weight tensor",
        choices=("fused", "foreach", "loop"),
        default="fused",
    )
    optimizer_state_dtype: str = declare(
        "type of the optimizer's moments", choices=("float32", "bfloat16"), default="float32"
    )
    grad_dtype: str = declare(
        "type in which gradients are added up and wait, the buffer read again by each microbatch after the first; "
        "auto: 4 bytes while whole, sharded that of the weights, nothing read again",
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
    )
    main_grad: bool = declare(
        "gradients of fewer than 4 bytes are copied to 4 for the step", default=False
    )
    grad_clip: bool = declare(
        "gradients are scaled to a largest norm before the step", default=False
    )
    latency_per_step: bool = declare(
        "a collective pays its latency in every step of a ring, not once", default=False
    )

    fusion: str = declare(
        "kernels of elementwise operators: as in the published layers; one for each operator, as PyTorch runs them; "
        "chains compiled into one; also into the products before them",
        choices=("published", "none", "compile", "max"),
        default="published",
    )
    matmul_dtype: str = declare(
        "type of matrix arithmetic, where it is smaller than the datatype; same: the datatype",
        choices=("same", *MATMUL_BYTES),
        default="same",
    )
    vocab_pad_multiple: int = declare(
        "the vocabulary on each tensor-parallel rank is filled up to a multiple of this",
        at_least=1,
        default=1,
    )
    tp_impl: str = declare(
        "tensor parallelism: column- then row-split products (megatron); or every product split by columns and its "
        "output gathered, so that all ranks hold whole inputs (allgather)",
        choices=("megatron", "allgather"),
        default="megatron",
    )
    tp_async: bool = declare(
        "the collective of an input's gradient runs behind the weight gradients of the same products",
        default=False,
    )
    bias_after_reduce: bool = declare(
        "biases of row-split products are added in a pass of their own after the reduction; false: in the product",
        default=False,
    )
    matmul_impl: str = declare(
        "products with weights: matrix products; or multiplied and summed on the vector engine, "
        "with all single products in memory between the two (mul_sum) or in one kernel (mul_sum_fused)",
        choices=("gemm", "mul_sum", "mul_sum_fused"),
        default="gemm",
    )

    zero_stage: str = declare(
        "what replicas share: auto as optimizer_sharding says, by the published laws; 0 nothing (DDP), 1 optimizer "
        "state, 2 also gradients, 3 also weights (ZeRO); fsdp: 3 with 4-byte weights and no other copy; owner: each "
        "layer is whole on one rank, nothing overlaps",
        choices=ZERO_STAGES,
        default="auto",
    )
    dp_shard: int = declare(
        "ranks that share what zero_stage splits, replicated over the others (hybrid sharding); 0: all replicas",
        at_least=0,
        default=0,
    )
    fsdp_unit: int = declare(
        "blocks whose weights are gathered together (zero_stage 3, fsdp)", at_least=1, default=1
    )
    fsdp_prefetch: int = declare(
        "units gathered ahead of their computation (zero_stage 3, fsdp); 0: nothing overlaps",
        at_least=0,
        default=1,
    )
    reshard_after_forward: bool = declare(
        "weights are dropped after the forward pass and gathered again (zero_stage 3, fsdp)",
        default=True,
    )
    ddp_bucket_mib: int = declare(
        "gradients reduced together (zero_stage 0 to 2); 0: those of a block",
        unit="MiB",
        at_least=0,
        default=0,
    )
    no_sync: bool = declare(
        "gradients are reduced once per batch, not after every microbatch (zero_stage 0 and 1)",
        default=True,
    )
    overlap_param_gather: bool = declare(
        "new weights are gathered beside the next forward pass (zero_stage 1 and 2)", default=False
    )
    mem_reserved_mib: int = declare(
        "tier-1 memory of each processor that is not the model's: context, libraries, fragments",
        unit="MiB",
        at_least=0,
        default=0,
    )
    coll_algo: str = declare(
        "algorithm of collectives: published is the formula of the network's ops, auto the fastest of those that "
        "libraries choose from; any other one where it can run, and auto elsewhere",
        choices=COLLECTIVES,
        default="published",
    )
    mesh_order: str = declare(
        "how ranks are numbered, fastest dimension first: groups then use the networks that they span, whatever "
        "the three *_net say; stated: each group is on its *_net",
        choices=MESH_ORDERS,
        default="stated",
    )
    pp_schedule: str = declare(
        "order of passes in a training pipeline: 1f1b (interleaved with several chunks), gpipe (all forward passes "
        "first), zb_h1 (gradients of weights fill the drain)",
        choices=PP_SCHEDULES,
        default="1f1b",
    )
    pp_layout: str = declare(
        "blocks of pipeline stages: uniform, or balanced, where the output head counts as the blocks that its weights "
        "are worth",
        choices=("uniform", "balanced"),
        default="uniform",
    )
    first_stage_blocks: int = declare(
        "blocks of the first pipeline stage; 0: as pp_layout says", at_least=0, default=0
    )
    last_stage_blocks: int = declare(
        "blocks of the last pipeline stage; 0: as pp_layout says", at_least=0, default=0
    )
    p2p_overlap: bool = declare(
        "transfers between pipeline stages run beside other passes, but for one trip of a microbatch",
        default=False,
    )

    def __post_init__(self) -> None:
        stage: Any = self.zero_stage
        if type(stage) is int:  # as people write it
            object.__setattr__(self, "zero_stage", str(stage))
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
        """Return the fields as they stand in a file: the 23 in published order, then what is not a default."""
        published = {
            field.name: getattr(self, field.name)
            for field in spec_fields(Execution)
            if not field.declaration.optional
        }
        return published | self.extensions
