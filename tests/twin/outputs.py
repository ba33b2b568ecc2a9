"""The results in published names and order."""

from collections.abc import Mapping
from dataclasses import asdict

from .batch import Batch
from .block import Block, Work
from .figures import figures
from .layers import Layer, Stage
from .memory import Tensors
from .run import KINDS, Kind

Statistics = dict[str, float | None]
LayerStatistics = dict[str, str | float | None]


def statistics(block: Block, batch: Batch) -> Statistics:
    """Return the 96 statistics of one execution, and those that the corrected edition adds."""
    return {
        **_work("fw", block.fw),
        **_kinds("fw_tp_time", block.fw_tp.time),
        **_kinds("fw_tp_time_exposed", block.fw_tp.exposed),
        **_work("re", block.re),
        **_kinds("recomm_time", block.recomm.time),
        **_kinds("recomm_time_exposed", block.recomm.exposed),
        **_work("agrad", block.agrad),
        **_kinds("agrad_tp_time", block.agrad_tp.time),
        **_kinds("agrad_tp_time_exposed", block.agrad_tp.exposed),
        **_work("wgrad", block.wgrad),
        **_work("optim", block.optim),
        **_kinds("fw_tp_size", block.fw_tp.size),
        **_kinds("bw_tp_size", block.agrad_tp.size),
        **_kinds("recomm_size", block.recomm.size),
        "block_fw_pp_size": batch.fw_pp_size,
        "block_bw_pp_size": batch.bw_pp_size,
        "block_dp_size": batch.dp.size,
        "tp_bw_overlap_req": block.tp_bandwidth,
        "dp_bw_overlap_req_chunk": batch.dp.bw_overlap_req_chunk,
        "dp_bw_overlap_req_tail": batch.dp.bw_overlap_req_tail,
        "block_weight_space": block.weight,
        "block_act_working_space": block.act_working,
        "block_act_storage_space": block.act_storage,
        "block_act_checkpoint_size": block.checkpoint,
        "block_weight_grad_space": block.weight_grad,
        "block_weight_grad_space_no_sharding": block.weight_grad_unsharded,
        "block_act_grad_space": block.act_grad,
        "block_optimizer_space": block.optimizer,
        **_tensors(batch.memory.near, "_with_offload"),
        **_tensors(batch.memory.all, ""),
        **_times(batch),
        "act_offload_bw_req": batch.act_offload_bw_req,
        "weight_offload_bw_req": batch.weight_offload_bw_req,
        "optim_offload_bw_req": batch.optim_offload_bw_req,
        "offload_mem_bw_req": batch.offload_mem_bw_req,
        "proc_mem_tier1_cap_req": batch.tier1,
        "proc_mem_tier2_cap_req": batch.tier2,
        "useful_flops": batch.useful_flops,
        "compute_efficiency": batch.compute_efficiency,
        "system_efficiency": batch.system_efficiency,
        "total_efficiency": batch.total_efficiency,
        "sample_rate": batch.sample_rate,
        **(figures(batch) if batch.execution.edition == "corrected" else {}),
    }


def _times(batch: Batch) -> Statistics:
    return {
        "fw_time": batch.fw_time,
        "bw_time": batch.bw_time,
        "optim_step_time": batch.optim_step_time,
        "recompute_time": batch.recompute_time,
        "recomm_link_time": batch.recomm_link_time,
        "recomm_exposed_time": batch.recomm_exposed_time,
        "bubble_time": batch.bubble_time,
        "tp_comm_link_time": batch.tp_comm_link_time,
        "pp_comm_link_time": batch.pp_link_time,
        "dp_comm_link_time": batch.dp.link_time,
        "tp_comm_exposed_time": batch.tp_comm_exposed_time,
        "pp_comm_exposed_time": batch.pp_exposed_time,
        "dp_comm_exposed_time": batch.dp.exposed_time,
        "fw_offload_exposed_time": batch.fw_offload_exposed_time,
        "bw_offload_exposed_time": batch.bw_offload_exposed_time,
        "total_time": batch.total_time,
    }


def _tensors(tensors: Tensors, where: str) -> Statistics:
    return {
        f"weight_space{where}": tensors.weight,
        f"act_space{where}": tensors.act,
        f"act_checkpoint_size{where}": tensors.checkpoint,
        f"act_grad_space{where}": tensors.act_grad,
        f"weight_grad_space{where}": tensors.weight_grad,
        f"optimizer_space{where}": tensors.optimizer,
    }


def _work(stage: str, work: Work) -> Statistics:
    return {f"block_{stage}_{name}": value for name, value in asdict(work).items()}


def _kinds(name: str, values: Mapping[Kind, float]) -> Statistics:
    return {f"{kind}block_{name}": values[kind] for kind in KINDS}


def layer_statistics(layer: Layer) -> LayerStatistics:
    """Return the 48 members of a layer, the backward ones in inference too."""
    return {
        "name": layer.name,
        "inputs_size": layer.inputs,
        "outputs_size": layer.outputs,
        **_layer_work(layer, "fw"),
        **_layer_comm(layer, "fw", "fw_tp_comm"),
        **_layer_work(layer, "agrad"),
        **_layer_comm(layer, "agrad", "bw_tp_comm"),
        **_layer_work(layer, "wgrad"),
        **_layer_comm(layer, "wgrad", "recomm"),
        **_layer_work(layer, "optim"),
        "weight": layer.weight_space,
        "activation": layer.activation_space,
        "weight_grad": layer.step.weight_grad,
        "activation_grad": layer.activation_grad_space,
        "optimizer": layer.step.state,
        **_of_experts(layer),
    }


def of_both_halves(one: LayerStatistics) -> LayerStatistics:
    """Return the members of a layer that runs for each half of a microbatch."""

    def same(name: str) -> bool:
        ends = ("tile", "intensity")
        return (
            name in ("name", "weight", "weight_grad", "optimizer")
            or name.startswith("optim_")
            or name.endswith(ends)
        )

    return {
        name: value if value is None or isinstance(value, str) or same(name) else 2 * value
        for name, value in one.items()
    }


def _of_experts(layer: Layer) -> LayerStatistics:
    """Return the seconds of its collectives over groups of experts, which only the corrected edition shows.

    And over ranks with parts of the same sequences.
    """
    if layer.run.execution.edition == "sc23":
        return {}
    passes: tuple[Stage, ...] = ("fw", "agrad", "wgrad")
    return {
        "cp_comm_link_time": sum(layer.context_time(stage) for stage in passes),
        "ep_comm_link_time": sum(layer.experts_time(stage) for stage in passes),
    }


def _layer_work(layer: Layer, stage: Stage) -> LayerStatistics:
    flops, accessed = layer.flops(stage), layer.mem_accessed(stage)
    intensity: float | None = 0.0
    if flops:
        intensity = flops / accessed if accessed else None
    return {
        f"{stage}_flops": flops,
        f"{stage}_mem_accessed": accessed,
        f"{stage}_arithmetic_intensity": intensity,
        f"{stage}_processing_time": layer.processing_time(stage),
    }


def _layer_comm(layer: Layer, stage: Stage, name: str) -> LayerStatistics:
    members = {
        "tile": layer.comm_tile,
        "size": layer.comm_size,
        "time": layer.link_time,
        "time_exposed": layer.exposed_time,
    }
    return {
        f"{kind}block_{name}_{member}": value(stage, kind)
        for member, value in members.items()
        for kind in KINDS
    }
