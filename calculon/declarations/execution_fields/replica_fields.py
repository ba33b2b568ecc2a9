"""Fields of data parallelism (ZeRO, FSDP, DDP) and of memory outside the model."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.operator_fields import OperatorFields
from calculon.declarations.fields import BATCH, STEP, declare
from calculon.declarations.named_values import SHARDING, ZERO_STAGES

_GATHERED = ("3", "fsdp")
"""Data-parallel strategies that gather the weights for each pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFields(OperatorFields):
    """Fields of data parallelism (ZeRO, FSDP, DDP) and of memory outside the model."""

    zero_stage: str = declare(
        "state sharded over replicas: auto, set by optimizer_sharding, by the published laws; 0 nothing (DDP); 1 "
        "optimizer state; 2 also gradients; 3 also weights (ZeRO); fsdp, like 3 with 4-byte weights and no other copy; "
        "owner, each layer as a whole on one rank, without overlap",
        choices=ZERO_STAGES,
        default="auto",
        scope=STEP | BATCH,
        label="replicas share: zero_stage {}",
        mark=SHARDING,
        needs={"training": (True,)},
        adds="data-parallel strategies: 0, 1, 2, 3, fsdp, owner",
        control="Sharding (ZeRO)",
        saves=("1", "2", "3", "fsdp"),
        with_="optimizer_sharding",
        off="0",
    )
    dp_shard: int = declare(
        "ranks over which zero_stage shards, replicated over the others (hybrid sharding); 0: all replicas",
        at_least=0,
        default=0,
        scope=STEP | BATCH,
        label="over groups of {} replicas",
        mark="shards of {}",
        needs={"zero_stage": ("1", "2", *_GATHERED)},
        why="state is sharded over some of the replicas",
        adds="ranks over which zero_stage shards",
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
        why="weights are gathered",
        adds="numbers of blocks that are gathered together",
        samples=(2,),
    )
    fsdp_prefetch: int = declare(
        "units gathered ahead of their computation (zero_stage 3, fsdp); 0: no overlap",
        at_least=0,
        default=1,
        scope=BATCH,
        label="{} units gathered ahead",
        mark="{} ahead",
        needs={"zero_stage": _GATHERED},
        why="weights are gathered",
        adds="numbers of units that are gathered ahead",
        samples=(0, 2),
    )
    reshard_after_forward: bool = declare(
        "free gathered weights after the forward pass and gather them again (zero_stage 3, fsdp)",
        default=True,
        scope=BATCH,
        label="gathered weights kept until the backward pass",
        mark="kept weights",
        needs={"zero_stage": _GATHERED},
        why="weights are gathered",
        adds="false: gathered weights kept until the backward pass",
        control="Weights dropped after use",
    )
    sync_once: bool = declare(
        "gather weights and reduce gradients once per batch, not per microbatch, and keep both whole in between "
        "(zero_stage 3, fsdp), as FSDP2 under the pipeline schedules of PyTorch",
        default=False,
        scope=BATCH,
        label="weights gathered and gradients reduced once per batch",
        mark="gathered once",
        needs={"zero_stage": _GATHERED},
        why="weights are gathered",
        adds="true: weights gathered and gradients reduced once per batch",
        control="Sharded weights gathered once per batch",
    )
    ddp_bucket_mib: int = declare(
        "size of gradient buckets (zero_stage 0 to 2); 0: the gradients of a block",
        unit="MiB",
        at_least=0,
        default=0,
        scope=BATCH,
        label="gradient buckets of {} MiB",
        mark="buckets {} MiB",
        needs={"zero_stage": ("0", "1", "2")},
        why="gradients are reduced in buckets",
        adds="sizes of gradient buckets",
        samples=(1, 25),
    )
    no_sync: bool = declare(
        "reduce gradients once per batch instead of after every microbatch (zero_stage 0 and 1)",
        default=True,
        scope=BATCH,
        label="gradients reduced after every microbatch",
        mark="reduced each microbatch",
        needs={"zero_stage": ("0", "1")},
        why="gradients are kept until the end of the batch",
        adds="false: gradients reduced after every microbatch",
    )
    grad_group: int = declare(
        "microbatches per chunk of a stage before its gradients, kept in full until then, are reduced and sharded",
        unit="microbatches",
        at_least=1,
        default=1,
        scope=BATCH,
        label="gradients split after {} microbatches",
        mark="split after {}",
        needs={"zero_stage": ("2",)},
        why="gradients are sharded and reduced in groups",
        adds="numbers of microbatches whose gradients are reduced together",
        samples=(2, 4),
    )
    overlap_param_gather: bool = declare(
        "overlap the gather of new weights with the next forward pass (zero_stage 1 and 2)",
        default=False,
        scope=BATCH,
        label="gather of new weights overlapped with the forward pass",
        mark="param-gather overlap",
        needs={"zero_stage": ("1", "2")},
        why="weights are gathered after the step",
        adds="true: gather of new weights overlapped with the next forward pass",
        control="Early all-gather of weights",
        switches={False: 0},
    )
    mem_reserved_mib: int = declare(
        "memory of each processor outside the model: context, libraries, communicators; -1: as stated by the "
        "system (ext.memory)",
        unit="MiB",
        at_least=-1,
        default=-1,
        scope=BATCH,
        label="{} MiB reserved",
        mark="{} MiB reserved",
        adds="amounts of memory outside the model",
        samples=(0, 64, 512),
        of="circumstance",
    )
    mem_fragments_percent: int = declare(
        "fragmentation of the allocator, as a share of activations, their gradients and buffers; -1: as "
        "stated by the system (ext.memory)",
        unit="%",
        at_least=-1,
        default=-1,
        scope=BATCH,
        label="{} % fragmentation",
        mark="{} % fragmentation",
        adds="shares of fragmentation",
        samples=(0, 3),
        of="circumstance",
    )
    data_par_slowdown: int = declare(
        "slowdown of work that overlaps data-parallel collectives, as a share of their time: they take "
        "multiprocessors, memory bandwidth and power; 0: multiprocessors only (processor_usage of the system)",
        unit="%",
        at_least=0,
        below=100,
        default=0,
        scope=BATCH,
        label="work slowed by {} % of overlapping data-parallel collectives",
        mark="{} % slowed",
        adds="slowdowns of work that overlaps data-parallel collectives",
        samples=(60,),
        of="circumstance",
    )
