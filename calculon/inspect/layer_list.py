"""The cost of every layer of one execution, as the published tool lists it."""

from typing import Any

import numpy as np

from calculon.architecture.segments import Segment, listed_kinds
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.layer_cost import LayerCost, LayerTable, layer_cost
from calculon.cost.optimizer_step import optimizer_layers, parameters_of
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.plan import Plan
from calculon.plan.schedule import shard_count
from calculon.records import columns, part, record, stat
from calculon.spec.axes import FURTHER_NAMES
from calculon.spec.execution import Execution
from calculon.spec.model import Model
from calculon.statistics import KINDS
from calculon.units import Array, Bytes, Elements, Flops, FlopsPerByte, Seconds


@record
class LayerWork:
    """Work of one layer in one pass."""

    flops: Flops = stat("arithmetic in {part}", name="{part}_flops", source="2.2")
    mem_accessed: Bytes = stat(
        "tier-1 memory traffic in {part}", name="{part}_mem_accessed", source="2.3"
    )
    intensity: FlopsPerByte = stat(
        "arithmetic intensity in {part}", name="{part}_arithmetic_intensity", source="6.2"
    )
    time: Seconds = stat("processing time in {part}", name="{part}_processing_time", source="2.5")


@record
class LayerTraffic:
    """Tensor-parallel traffic of one layer in one pass, by kind of block."""

    tile: Bytes = stat(
        "one tile of {part}, {axis} block", name="{axis}block_{part}_tile", axis=KINDS, source="2.7"
    )
    size: Bytes = stat(
        "message of {part}, {axis} block", name="{axis}block_{part}_size", axis=KINDS, source="2.7"
    )
    time: Seconds = stat(
        "link time of {part}, {axis} block",
        name="{axis}block_{part}_time",
        axis=KINDS,
        source="2.7",
    )
    time_exposed: Seconds = stat(
        "exposed time of {part}, {axis} block",
        name="{axis}block_{part}_time_exposed",
        axis=KINDS,
        source="2.8",
    )


@record
class LayerStats:
    """The layers of one block; the last axis of every array is *layer*."""

    inputs_size: Elements = stat("elements read", source="2.2")
    outputs_size: Elements = stat("elements written", source="2.2")
    fw: LayerWork = part("the forward pass")
    fw_traffic: LayerTraffic = part("the forward collective", name="fw_tp_comm")
    agrad: LayerWork = part("the activation-gradient pass")
    bw_traffic: LayerTraffic = part("the backward collective", name="bw_tp_comm")
    wgrad: LayerWork = part("the weight-gradient pass")
    recomm: LayerTraffic = part("the repeated collective")
    optim: LayerWork = part("the optimizer step")
    weight: Bytes = stat("weights", source="2.4")
    activation: Bytes = stat("saved activation", source="2.4")
    weight_grad: Bytes = stat("weight gradients, sharded", source="2.4")
    activation_grad: Bytes = stat("activation gradient", source="2.4")
    optimizer: Bytes = stat("optimizer state", source="2.4")
    axes: Seconds = stat(
        "{axis} collectives on the link", name="{axis}_comm_link_time", axis=FURTHER_NAMES
    )


def breakdown(
    model: Model, system: System, execution: Execution, edition: Edition
) -> list[dict[str, Any]]:
    """List the layers of a block in order of execution, each with the published members.

    Of several kinds of block, each layer also says its ``kind`` and of how many ``blocks`` it is.
    Everything is shown whether or not the execution trains: backward and optimizer entries in inference too. The
    execution must be valid.
    """
    return [
        {"name": layer.pop("name")} | said | layer
        for kind, said in listed_kinds(model)
        for layer in _of_kind(model, system, execution, edition, kind)
    ]


def _of_kind(
    model: Model, system: System, execution: Execution, edition: Edition, kind: Segment
) -> list[dict[str, Any]]:
    """List the layers of one kind of block."""
    plan, system = Plan.of(execution), edition.machine(system)
    choice, step_choice, sizes = only_choices(plan)
    layout = BlockLayout(model, system, choice.layout, sizes, edition, kind.layers)
    table = layout.table
    cost = layer_cost(table, layout.times, layout.network, choice, edition)
    shards = shard_count(plan.optimizer_sharding, plan.dp_shard, plan.data_par).astype(float)
    optimizer = optimizer_layers(
        parameters_of(table, layout.shape, step_choice), shards, system, step_choice, edition
    )
    step = optimizer.step
    piped = np.array(execution.pipeline_par > 1)

    def traffic(index: int) -> LayerTraffic:
        return edition.at_edge(_traffic(table, cost, index), piped)

    stats = LayerStats(
        inputs_size=table.inputs[:, 0],
        outputs_size=table.outputs[:, 0],
        fw=_phase(table, cost, 0),
        fw_traffic=traffic(0),
        agrad=_phase(table, cost, 1),
        bw_traffic=traffic(1),
        wgrad=_phase(table, cost, 2),
        recomm=traffic(2),
        optim=_work(step.flops, step.mem_accessed, step.time),
        weight=table.weight_bytes[:, 0],
        activation=table.activation[:, 0],
        weight_grad=optimizer.weight_grad[:, 0],
        activation_grad=table.activation_grad[:, 0],
        optimizer=optimizer.state[:, 0],
        axes=_axis_times(table, cost),
    )
    values = {column.name: column.of(stats) for column in columns(LayerStats)}
    return [
        {"name": layer.name} | {name: array[i].item() for name, array in values.items()}
        for i, layer in enumerate(table.layers)
    ]


def _phase(table: LayerTable, cost: LayerCost, phase: int) -> LayerWork:
    return _work(table.flops[phase], table.accessed[phase], cost.times.processing[phase])


def _work(flops: Flops, accessed: Bytes, time: Seconds) -> LayerWork:
    """Name the work of a pass; the intensity is 0 without arithmetic, infinite without traffic."""
    flops, accessed = flops[:, 0], accessed[:, 0]
    intensity = np.where(flops > 0, np.inf, 0.0)
    np.divide(flops, accessed, out=intensity, where=(flops > 0) & (accessed > 0))
    return LayerWork(flops=flops, mem_accessed=accessed, intensity=intensity, time=time[:, 0])


def _axis_times(table: LayerTable, cost: LayerCost) -> Seconds:
    """Time of the collectives of further axes in all passes: shape (axes, layers)."""
    whole = np.zeros((len(FURTHER_NAMES), len(table.layers)))
    for times, axis in zip(whole, FURTHER_NAMES, strict=True):
        times[table.collective_rows(axis)] = cost.further[axis].link[..., 0].sum(axis=0)
    return whole


def _traffic(table: LayerTable, cost: LayerCost, index: int) -> LayerTraffic:
    """Spread the rows of the collective layers over all layers."""
    rows = table.collective_rows()

    def spread(values: Array) -> Array:
        whole = np.zeros((len(KINDS), len(table.layers)))
        whole[:, rows] = values[index, :, :, 0]
        return whole

    traffic = cost.traffic
    return LayerTraffic(
        tile=spread(traffic.tile),
        size=spread(traffic.size),
        time=spread(traffic.link),
        time_exposed=spread(traffic.exposed),
    )
