"""The statistics of an execution, each declared once: name, unit, description and source.

The published 96 come first, then the additions of the corrected edition, in the order of every file and table.
Section numbers refer to the written specification of the published model (Isaev et al., *Calculon*, SC'23,
doi:10.1145/3581784.3607102).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.records import part, record, stat
from calculon.base.units import (
    Bytes,
    BytesPerSecond,
    Count,
    Flops,
    FlopsPerSecond,
    Fraction,
    SamplesPerSecond,
    Seconds,
    TokensPerSecond,
)
from calculon.declarations.axes import FURTHER_NAMES

KINDS = ("base", "edge")
"""Kinds of blocks: inside a chunk, and at its boundary, where a pipeline transfer follows."""

LEVEL = 0.9
"""Target coverage of a prediction interval: the share of unseen measurements that it should contain."""


@record
class Work:
    """Work of one block and microbatch in one pass."""

    NAMES: ClassVar = "block_{part}_{field}"
    SOURCE: ClassVar = "4.1"

    flops: Flops = stat("arithmetic of a block in {part}")
    flops_time: Seconds = stat("arithmetic time of a block in {part}")
    mem_accessed: Bytes = stat("memory traffic of a block in {part}")
    mem_time: Seconds = stat("memory time of a block in {part}")
    time: Seconds = stat("processing time of a block in {part}")


@record
class Communication:
    """Tensor-parallel communication time of one block and microbatch, by kind of block."""

    NAMES: ClassVar = "{axis}block_{part}_{field}"
    SOURCE: ClassVar = "4.1"
    AXIS: ClassVar = KINDS

    time: Seconds = stat("link time of {part}, {axis} block")
    time_exposed: Seconds = stat("exposed time of {part}, {axis} block")


@record
class TensorMessages:
    """Bytes of the tensor-parallel collectives of one block and microbatch, by kind of block."""

    NAMES: ClassVar = "{axis}block_{field}_size"
    SOURCE: ClassVar = "4.1"
    AXIS: ClassVar = KINDS

    fw_tp: Bytes = stat("tensor-parallel messages of the forward pass, {axis} block")
    bw_tp: Bytes = stat("tensor-parallel messages of the activation-gradient pass, {axis} block")
    recomm: Bytes = stat("repeated tensor-parallel messages, {axis} block")


@record
class Messages:
    """Bytes sent from one pipeline stage to the next, and bytes of one block in the data-parallel reduction."""

    block_fw_pp_size: Bytes = stat("pipeline message of the forward pass", source="4.4")
    block_bw_pp_size: Bytes = stat("pipeline message of the backward pass", source="4.4")
    block_dp_size: Bytes = stat("data-parallel message of a block", source="5.6")


@record
class BlockSpace:
    """Bytes of one block: weights, activation memory, gradients, optimizer state."""

    SOURCE: ClassVar = "4.3"

    weight: Bytes = stat("weights of a block", name="block_weight_space")
    act_working: Bytes = stat(
        "activations while a block is computed", name="block_act_working_space"
    )
    act_storage: Bytes = stat(
        "activations that a block stores per microbatch", name="block_act_storage_space"
    )
    act_checkpoint: Bytes = stat(
        "block input stored by full recomputation", name="block_act_checkpoint_size"
    )
    weight_grad: Bytes = stat(
        "weight gradients of a block until the optimizer step", name="block_weight_grad_space"
    )
    weight_grad_no_sharding: Bytes = stat(
        "weight gradients of the block being computed", name="block_weight_grad_space_no_sharding"
    )
    act_grad: Bytes = stat(
        "activation gradients while a block is computed", name="block_act_grad_space"
    )
    optimizer: Bytes = stat("optimizer state of a block", name="block_optimizer_space")


@record
class OverlapBandwidth:
    """Network bandwidth that would hide the overlapped traffic."""

    tp: BytesPerSecond = stat(
        "network bandwidth that hides tensor-parallel tiles",
        name="tp_bw_overlap_req",
        source="4.1",
    )
    dp_chunk: BytesPerSecond = stat(
        "network bandwidth that hides data-parallel traffic of all chunks but the last",
        name="dp_bw_overlap_req_chunk",
        source="5.6",
        nullable=True,
    )
    dp_tail: BytesPerSecond = stat(
        "network bandwidth that hides data-parallel traffic of the last chunk",
        name="dp_bw_overlap_req_tail",
        source="5.6",
        nullable=True,
    )


@record
class OffloadedSpace:
    """Bytes per processor that stay in tier 1 when the rest is offloaded."""

    SOURCE: ClassVar = "5.7"

    weight: Bytes = stat("weights that stay when offloaded", name="weight_space_with_offload")
    act: Bytes = stat("activations that stay when offloaded", name="act_space_with_offload")
    act_checkpoint: Bytes = stat(
        "checkpoints that stay when offloaded",
        name="act_checkpoint_size_with_offload",
        nullable=True,
    )
    act_grad: Bytes = stat(
        "activation gradients (never offloaded)", name="act_grad_space_with_offload"
    )
    weight_grad: Bytes = stat(
        "weight gradients that stay when the optimizer is offloaded",
        name="weight_grad_space_with_offload",
    )
    optimizer: Bytes = stat(
        "optimizer state that stays when offloaded", name="optimizer_space_with_offload"
    )


@record
class Space:
    """Bytes per processor: weights, activation memory, gradients, optimizer state."""

    SOURCE: ClassVar = "5.7"

    weight: Bytes = stat("weights", name="weight_space")
    act: Bytes = stat("activations", name="act_space")
    act_checkpoint: Bytes = stat("checkpoints of full recomputation", name="act_checkpoint_size")
    act_grad: Bytes = stat("activation gradients", name="act_grad_space")
    weight_grad: Bytes = stat("weight gradients", name="weight_grad_space")
    optimizer: Bytes = stat("optimizer state", name="optimizer_space")


@record
class Times:
    """Times of one iteration on the most loaded processor."""

    fw_time: Seconds = stat(
        "forward computation of a batch on the slowest stage. Includes FSDP's copies of shards into all-gather buffers "
        "(part of copy_time): with more replicas, shards and their copies are smaller for the same work",
        source="5.1",
    )
    bw_time: Seconds = stat(
        "backward computation of a batch on the slowest stage. Includes FSDP's copies and gradient accumulation, which "
        "covers shards in ZeRO 2, 3 and FSDP: with more replicas both are smaller for the same work",
        source="5.1",
    )
    optim_step_time: Seconds = stat("optimizer step", source="5.1")
    recompute_time: Seconds = stat("recomputation of a batch", source="5.1")
    recomm_link_time: Seconds = stat("link time of repeated collectives", source="5.2")
    recomm_exposed_time: Seconds = stat("exposed time of repeated collectives", source="5.2")
    bubble_time: Seconds = stat("pipeline bubble", source="5.5")
    tp_comm_link_time: Seconds = stat("tensor-parallel time on the link", source="5.2")
    pp_comm_link_time: Seconds = stat("pipeline-parallel time on the link", source="5.3")
    dp_comm_link_time: Seconds = stat("data-parallel time on the link", source="5.6")
    tp_comm_exposed_time: Seconds = stat("exposed tensor-parallel time", source="5.2")
    pp_comm_exposed_time: Seconds = stat("exposed pipeline-parallel time", source="5.3")
    dp_comm_exposed_time: Seconds = stat("exposed data-parallel time", source="5.6")
    fw_offload_exposed_time: Seconds = stat("exposed forward offload time", source="5.4")
    bw_offload_exposed_time: Seconds = stat("exposed backward offload time", source="5.4")
    total_time: Seconds = stat("time of one iteration", source="5.10")


PARTS_OF_TIME = (
    "fw_time",
    "bw_time",
    "optim_step_time",
    "fw_offload_exposed_time",
    "bw_offload_exposed_time",
    "recompute_time",
    "recomm_exposed_time",
    "bubble_time",
    "tp_comm_exposed_time",
    "pp_comm_exposed_time",
    "dp_comm_exposed_time",
)
"""Statistics that add up to ``total_time``, in the order of the sum."""


@record
class OffloadBandwidth:
    """Tier-2 bandwidth that would hide offloading."""

    SOURCE: ClassVar = "5.9"

    act_offload_bw_req: BytesPerSecond = stat(
        "host memory bandwidth that hides offloaded activations", nullable=True
    )
    weight_offload_bw_req: BytesPerSecond = stat(
        "host memory bandwidth that hides offloaded weights", nullable=True
    )
    optim_offload_bw_req: BytesPerSecond = stat(
        "host memory bandwidth that hides an offloaded optimizer", nullable=True
    )
    offload_mem_bw_req: BytesPerSecond = stat(
        "host memory bandwidth that hides everything that is offloaded", nullable=True
    )


@record
class Capacity:
    """Memory needed by one processor."""

    SOURCE: ClassVar = "5.8"

    proc_mem_tier1_cap_req: Bytes = stat("memory needed")
    proc_mem_tier2_cap_req: Bytes = stat("host memory needed")


@record
class Efficiency:
    """Utilization of the machine."""

    SOURCE: ClassVar = "5.10"

    useful_flops: Flops = stat("arithmetic of one block and microbatch that is not recomputation")
    compute_efficiency: Fraction = stat("useful arithmetic at peak rate over computation time")
    system_efficiency: Fraction = stat("computation time over iteration time")
    total_efficiency: Fraction = stat("useful arithmetic at peak rate over iteration time")
    sample_rate: SamplesPerSecond = stat("sequences per second")


@record
class Stats:
    """The 96 statistics of an execution, in the order of the published files."""

    fw: Work = part("the forward pass")
    fw_tp: Communication = part("forward collectives")
    re: Work = part("recomputation")
    recomm: Communication = part("repeated collectives")
    agrad: Work = part("the activation-gradient pass")
    agrad_tp: Communication = part("backward collectives")
    wgrad: Work = part("the weight-gradient pass")
    optim: Work = part("the optimizer step")
    tensor_messages: TensorMessages = part()
    messages: Messages = part()
    overlap_bandwidth: OverlapBandwidth = part()
    block_space: BlockSpace = part()
    offloaded_space: OffloadedSpace = part()
    space: Space = part()
    times: Times = part()
    offload_bandwidth: OffloadBandwidth = part()
    capacity: Capacity = part()
    efficiency: Efficiency = part()


# -- new in the corrected edition ------------------------------------------------------------------------------------


@record
class Figures:
    """Common figures (MFU, tokens per second), and times of embedding and LM head (output head)."""

    parameters: Count = stat("parameters of the model")
    padded_parameters: Count = stat(
        "parameters, including the padding of the vocabulary on each tensor-parallel rank"
    )
    tokens_per_second: TokensPerSecond = stat("tokens per second")
    tokens_per_second_per_proc: TokensPerSecond = stat("tokens per second and processor")
    model_flops_per_token: Flops = stat(
        "matrix arithmetic of the model per token: no recomputation, full attention, with output head"
    )
    model_flops_per_second_per_proc: FlopsPerSecond = stat(
        "model arithmetic per second and processor (full attention)"
    )
    mfu: Fraction = stat(
        "model FLOP utilization: model arithmetic (full attention) over the matrix engine's peak in the type of "
        "products"
    )
    mfu_causal: Fraction = stat(
        "model FLOP utilization with only the keys that a token attends to (causal, windows)"
    )
    hfu: Fraction = stat(
        "hardware FLOP utilization: matrix arithmetic executed, including recomputation, over the peak"
    )
    act_bytes_per_token: Bytes = stat(
        "activations that a block stores per token on one processor",
        name="block_act_bytes_per_token",
    )
    embedding_time: Seconds = stat("embedding of a batch, forward and backward (first stage)")
    head_time: Seconds = stat("output head and loss of a batch, forward and backward (last stage)")
    mtp_time: Seconds = stat(
        "multi-token prediction modules of a batch, forward and backward (last stage, or their own and the last)"
    )
    host_time: Seconds = stat("host time of a step during which no kernel runs")
    host_wait_time: Seconds = stat(
        "waits of blocks for kernel launches of the host in a batch, mean of the stages: part of the passes and of "
        "exposed traffic"
    )
    copy_time: Seconds = stat(
        "copies of gathered weights and of gradients for the collectives of a batch: part of the passes"
    )


@record
class Buffers:
    """Memory other than model, activations and optimizer."""

    gathered_space: Bytes = stat("weights of other ranks, gathered for the blocks in use")
    comm_buffer_space: Bytes = stat("gradients in reduction buffers")
    fragment_space: Bytes = stat("fragmentation of the allocator")
    reserved_space: Bytes = stat("memory outside the model: context, libraries, communicators")


@record
class ExpertSpace:
    """Memory of routed experts, part of the memory of weights and of the optimizer; 0 without experts."""

    expert_weight_space: Bytes = stat("weights of routed experts, a part of weight_space")
    expert_optimizer_space: Bytes = stat(
        "optimizer state of routed experts, a part of optimizer_space"
    )


@record
class AxisTimes:
    """Collective times of further axes of parallelism in a batch, by axis."""

    NAMES: ClassVar = "{axis}_comm_{field}_time"
    AXIS: ClassVar = FURTHER_NAMES

    link: Seconds = stat("{axis} collectives on the link")
    exposed: Seconds = stat("exposed {axis} collectives")


@record
class ExpertFigures:
    """Load and traffic of routed experts; 0 in models without experts."""

    ep_scale_up_bytes: Bytes = stat(
        "bytes that a processor of the slowest stage sends inside its node in a batch, to experts and back"
    )
    ep_nic_bytes: Bytes = stat("bytes that it sends to other nodes, to experts and back")
    expert_rows: Count = stat(
        "rows of all experts of the busiest processor, in a block and microbatch"
    )
    dropped_fraction: Fraction = stat(
        "rows beyond the expert capacity, as a share of the rows sent to that processor"
    )
    dispatch_space: Bytes = stat(
        "rows or tokens on both sides of the dispatch of a block: part of its working memory"
    )


@record
class MemoryRisk:
    """Probability of fitting in memory, from memory measurements."""

    fits: Fraction = stat(
        "probability that an execution fits in memory, from measured runs", nullable=True
    )


MFU = ("mfu", "mfu_causal")
"""Model FLOP utilization with full and with causal attention."""


def mfu_name(execution: Mapping[str, Any]) -> str:
    """Return the statistic that pages call MFU: the causal one for a kernel that skips masked keys.

    >>> mfu_name({"attn_impl": "flash"}), mfu_name({"attn_impl": "eager"})
    ('mfu_causal', 'mfu')
    """
    return MFU[execution.get("attn_impl") == "flash"]


AXIS_PARTS_OF_TIME = tuple(f"{name}_comm_exposed_time" for name in FURTHER_NAMES)

ALL_PARTS_OF_TIME = (*PARTS_OF_TIME, "host_time", *AXIS_PARTS_OF_TIME)
"""Statistics that add up to ``total_time`` in any edition; the published edition has no host time."""

BOUNDS = {
    "total_time_low": "lower end of the interval of total_time, which contains the measured time in 90 % of cases",
    "total_time_high": "upper end of the interval of total_time",
}
"""Prediction interval from measured training steps in edition ``corrected``, in s."""

MEMORIES = ("memory", "host memory")
"""Names of both memory tiers: of a processor, and of its host, which receives what is offloaded."""

TIER1 = "proc_mem_tier1_cap_req"
"""Tier-1 memory needed by an execution."""

FITS = "fits"
"""Probability that an execution fits in memory, from memory measurements, in edition ``corrected``."""

MAY_FIT = 0.05
"""Probability of fitting below which an execution that is predicted to exceed tier-1 memory is infeasible: the lower
end of the 90 % error interval of memory."""

RISK = 0.1
"""Default limit on the probability that a recommended plan runs out of memory."""


def within_risk(risk: float) -> str:
    """Return the condition that an execution runs out of memory with at most the given probability.

    >>> within_risk(0.1)
    'fits >= 0.9'
    """
    return f"{FITS} >= {1 - risk!r}"


@record
class CorrectedStats(Stats):
    """Statistics of the corrected edition: the published 96, then common figures and further ones."""

    figures: Figures = part()
    buffers: Buffers = part()
    expert_space: ExpertSpace = part()
    axes: AxisTimes = part()
    experts: ExpertFigures = part()
    risk: MemoryRisk = part()


# -- memory by kind ---------------------------------------------------------------------------------------------------

KINDS_OF_MEMORY = (
    "weights",
    "activations",
    "checkpoints",
    "activation gradients",
    "weight gradients",
    "optimizer state",
    "gathered weights",
    "gradients being reduced",
    "fragments",
    "reserved",
)
"""Kinds of memory, in the order of :func:`memory_by_kind`."""

_BUFFERS = ("gathered_space", "comm_buffer_space", "fragment_space", "reserved_space")
"""Statistics of the last four kinds, which only the corrected edition has."""

OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")
"""Execution fields that offload weights, activations and optimizer state to tier 2."""


def memory_by_kind(
    stats: Mapping[str, float | None], execution: Mapping[str, Any], blocks: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the bytes in tier 1 and in tier 2 by kind; they add up to the required capacity of each tier.

    Offloaded data of blocks is in tier 2; tier 1 keeps buffers for the blocks in use, and all of embedding and LM head.

    Args:
        stats, execution: Statistics and fields of the execution.
        blocks: Blocks of the most loaded pipeline stage.
    """
    full = execution["activation_recompute"] == "full"
    weights, activations, optimizer = (execution[name] for name in OFFLOADS)
    moved = {
        "weight_space": weights,
        "act_space": activations,
        "act_checkpoint_size": activations,
        "act_grad_space": activations,  # the working set that stays is another one
        "weight_grad_space": optimizer,
        "optimizer_space": optimizer,
    }
    here = {n: stats[f"{n}_with_offload" if gone else n] or 0.0 for n, gone in moved.items()}
    if not full:
        here["act_checkpoint_size"] = 0.0
    here |= {name: stats.get(name) or 0.0 for name in _BUFFERS}
    away = dict.fromkeys((*moved, *_BUFFERS), 0.0)
    for name in ("weight", "weight_grad", "optimizer"):
        if moved[f"{name}_space"]:
            away[f"{name}_space"] = (stats[f"block_{name}_space"] or 0.0) * blocks
    if activations:
        # Tier 2 holds weights, weight gradients and optimizer state as above; the rest of it are activations.
        rest = (stats["proc_mem_tier2_cap_req"] or 0.0) - sum(away.values())
        away["act_checkpoint_size" if full else "act_space"] = max(0.0, rest)
    return (
        dict(zip(KINDS_OF_MEMORY, here.values(), strict=True)),
        dict(zip(KINDS_OF_MEMORY, away.values(), strict=True)),
    )
