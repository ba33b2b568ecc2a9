"""Fields of replicas: what they share, gather and reduce, and the memory that is not the model's."""

from calculon.base.frozen import dataclass
from calculon.declarations.execution_fields.operator_fields import OperatorFields
from calculon.declarations.fields import BATCH, STEP, declare
from calculon.declarations.named_values import SHARDING, ZERO_STAGES

_GATHERED = ("3", "fsdp")
"""Data-parallel strategies whose weights are gathered for each pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFields(OperatorFields):
    """Fields of replicas: what they share, gather and reduce, and the memory that is not the model's."""

    zero_stage: str = declare(
        "what replicas share: auto as optimizer_sharding says, by the published laws; 0 nothing (DDP), 1 optimizer "
        "state, 2 also gradients, 3 also weights (ZeRO); fsdp: 3 with 4-byte weights and no other copy; owner: each "
        "layer is whole on one rank, nothing overlaps",
        choices=ZERO_STAGES,
        default="auto",
        scope=STEP | BATCH,
        label="replicas share: zero_stage {}",
        mark=SHARDING,
        needs={"training": (True,)},
        adds="data-parallel strategies: 0, 1, 2, 3, fsdp, owner",
        control="Sharded by replicas (ZeRO)",
        saves=("1", "2", "3", "fsdp"),
        with_="optimizer_sharding",
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
        control="Weights dropped after use",
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
        control="Early all-gather of weights",
        switches={False: 0},
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
        of="circumstance",
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
        of="circumstance",
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
        of="circumstance",
    )
