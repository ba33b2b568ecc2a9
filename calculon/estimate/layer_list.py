"""Table of the operators of a block: arithmetic, memory traffic, memory, messages and times of each layer.

``llm --layers`` lists the published columns, and ``block`` all of them (:mod:`calculon.estimate.operators`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from calculon.architecture.segments import listed_kinds
from calculon.base.frozen import dataclass
from calculon.base.records import columns, part, record, stat
from calculon.base.units import Array, Bytes, Elements, Flops, FlopsPerByte, Seconds
from calculon.cost.axis_overlap import experts_hidden, ring_hidden
from calculon.cost.block_cost import BlockLayout
from calculon.cost.block_tables import only_choices
from calculon.cost.layer_cost import LayerCost, layer_cost, stored_activations
from calculon.cost.mixture import OF_WEIGHTS, RATES, two_halves
from calculon.cost.optimizer_step import OptimizerCost, optimizer_layers, parameters_of
from calculon.declarations.axes import FURTHER_NAMES
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS, CorrectedStats
from calculon.editions.edition import Edition
from calculon.hardware.system import System
from calculon.plan.mesh import data_ranks
from calculon.plan.plan import Plan
from calculon.plan.schedule import shard_count


@record
class LayerWork:
    """Work of one layer in one pass."""

    NAMES: ClassVar = "{part}_{field}"

    flops: Flops = stat("arithmetic in {part}", source="2.2")
    mem_accessed: Bytes = stat("memory traffic in {part}", source="2.3")
    intensity: FlopsPerByte = stat(
        "arithmetic intensity in {part}",
        name="{part}_arithmetic_intensity",
        source="6.2",
        nullable=True,
    )
    time: Seconds = stat("processing time in {part}", name="{part}_processing_time", source="2.5")


@record
class LayerTraffic:
    """Tensor-parallel traffic of one layer in one pass, by kind of block."""

    NAMES: ClassVar = "{axis}block_{part}_{field}"
    SOURCE: ClassVar = "2.7"
    AXIS: ClassVar = KINDS

    tile: Bytes = stat("one tile of {part}, {axis} block")
    size: Bytes = stat("message of {part}, {axis} block")
    time: Seconds = stat("link time of {part}, {axis} block")
    time_exposed: Seconds = stat("exposed time of {part}, {axis} block", source="2.8")


@record
class LayerStats:
    """Published columns of the layers of one block; the last axis of every array is *layer*."""

    SOURCE: ClassVar = "2.4"

    inputs_size: Elements = stat("elements read", source="2.2")
    outputs_size: Elements = stat("elements written", source="2.2")
    fw: LayerWork = part("the forward pass")
    fw_traffic: LayerTraffic = part("the forward collective", name="fw_tp_comm")
    agrad: LayerWork = part("the activation-gradient pass")
    bw_traffic: LayerTraffic = part("the backward collective", name="bw_tp_comm")
    wgrad: LayerWork = part("the weight-gradient pass")
    recomm: LayerTraffic = part("the repeated collective")
    optim: LayerWork = part("the optimizer step")
    weight: Bytes = stat("weights")
    activation: Bytes = stat("saved activation")
    weight_grad: Bytes = stat("weight gradients, sharded")
    activation_grad: Bytes = stat("activation gradient")
    optimizer: Bytes = stat("optimizer state")


@record
class CorrectedLayerStats(LayerStats):
    """Columns of the corrected edition: with the collectives of further axes."""

    axes: Seconds = stat(
        "{axis} collectives on the link", name="{axis}_comm_link_time", axis=FURTHER_NAMES
    )


@record
class OperatorStats(CorrectedLayerStats):
    """All columns: with activation recomputation, and activation memory until the backward pass."""

    recompute: LayerWork = part("recomputation")
    saved: Bytes = stat("activation memory that the layer adds", source="4.3")


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """Operators of one kind of block of an execution, for one microbatch on one processor.

    Attributes:
        labels: With several kinds of block: the ``kind``, and its number of ``blocks``.
        layout, cost, choice: Layers, their costs, and the choices of the execution; arrays have one block.
        experts_hidden (shape (2, passes, kinds of block, 1)): Time of expert dispatch and combine that each pass hides
            by itself.
        ring_hidden (shape (passes, 1)): Time of a ring of keys and values that attention hides.
        stats: The columns.
    """

    labels: Mapping[str, Any]
    layout: BlockLayout
    cost: LayerCost
    choice: BlockChoice
    experts_hidden: Seconds
    ring_hidden: Seconds
    stats: OperatorStats

    def rows(self, record: type) -> Iterator[dict[str, Any]]:
        """Yield the columns of a record by name, as a mapping for each layer in order of execution."""
        values = [(column, column.of(self.stats).tolist()) for column in columns(record)]
        for i, layer in enumerate(self.layout.table.layers):
            row = {
                column.name: None if column.nullable and math.isnan(entries[i]) else entries[i]
                for column, entries in values
            }
            yield {"name": layer.name} | dict(self.labels) | row


def breakdown(
    model: Model, system: System, execution: Execution, edition: Edition
) -> list[dict[str, Any]]:
    """Return the layers of a block in order of execution, each with the published members.

    With several kinds of block, each layer also has its ``kind`` and the number of ``blocks`` of the kind. Backward and
    optimizer entries are included even for inference. The execution must be valid.
    """
    tables = operator_tables(model, system, Plan.of(execution), edition)
    shown = CorrectedLayerStats if edition.stats is CorrectedStats else LayerStats
    return [row for table in tables for row in table.rows(shown)]


_OF_TRAFFIC = {"fw_traffic", "bw_traffic", "recomm", "axes"}
"""Members of operators that derive from their traffic."""


def operator_tables(
    model: Model, system: System, plan: Plan, edition: Edition
) -> Iterator[OperatorTable]:
    """Yield the operators of each kind of block of a plan of one row."""
    system, (choice, step_choice, sizes) = edition.machine(system), only_choices(plan)
    shards = shard_count(plan.optimizer_sharding, plan.dp_shard, data_ranks(plan)).astype(float)
    if choice.in_halves:
        # Two-batch overlap: cost half a microbatch, and double everything that is per microbatch afterwards.
        sizes = sizes.halved()
    for kind, labels in listed_kinds(model):
        layout = BlockLayout(model, system, choice.layout, sizes, edition, kind.layers)
        cost = layer_cost(layout.table, layout.times, layout.network, choice, edition)
        parameters = parameters_of(layout.table, layout.shape, step_choice)
        optimizer = optimizer_layers(parameters, shards, system, step_choice, edition)
        recomputed = layout.table.recomputed(choice, edition)
        hidden = experts_hidden(layout.table, cost, recomputed, choice, layout.sizes, system)
        ring = ring_hidden(layout.table, cost, recomputed, choice, layout.sizes, system)
        if choice.in_halves:
            hidden, ring = 2 * hidden, 2 * ring
            further = {name: two_halves(traffic) for name, traffic in cost.further.items()}
            cost = replace(cost, traffic=two_halves(cost.traffic), further=further)
        stats = _stats(layout, cost, choice, optimizer, plan.pipeline_par > 1)
        if choice.in_halves:
            stats = two_halves(stats, OF_WEIGHTS | RATES | _OF_TRAFFIC)
        yield OperatorTable(labels, layout, cost, choice, hidden, ring, stats)


def _stats(
    layout: BlockLayout,
    cost: LayerCost,
    choice: BlockChoice,
    optimizer: OptimizerCost,
    piped: Array,
) -> OperatorStats:
    """Return the columns of the layers of a layout."""
    table, edition, step = layout.table, layout.edition, optimizer.step
    # The edition decides how often the work of recomputed layers counts; the identity matrix asks for each layer.
    repeated = table.flagged("recompute", choice, edition)
    counted = edition.recomputed_work(np.eye(len(table.layers))[..., None], repeated)
    fw, agrad, wgrad = (
        _work(*passes)
        for passes in zip(table.flops, table.accessed, cost.times.processing, strict=True)
    )
    fw_traffic, bw_traffic, recomm = (
        edition.at_edge(_traffic(layout, cost, index), piped) for index in range(3)
    )
    return OperatorStats(
        inputs_size=table.inputs[:, 0],
        outputs_size=table.outputs[:, 0],
        fw=fw,
        fw_traffic=fw_traffic,
        agrad=agrad,
        bw_traffic=bw_traffic,
        wgrad=wgrad,
        recomm=recomm,
        optim=_work(step.flops, step.mem_accessed, step.time),
        weight=table.weight_bytes[:, 0],
        activation=table.activation[:, 0],
        weight_grad=optimizer.weight_grad[:, 0],
        activation_grad=table.activation_grad[:, 0],
        optimizer=optimizer.state[:, 0],
        axes=_axis_times(layout, cost),
        recompute=_work(
            table.flops[0] * counted,
            table.accessed[0] * counted,
            cost.times.processing[0] * repeated,
        ),
        saved=_of_readers(stored_activations(table, choice, edition)[:, 0]),
    )


def _work(flops: Flops, accessed: Bytes, time: Seconds) -> LayerWork:
    """Return the work of a pass; the intensity is 0 without arithmetic, and NaN without traffic."""
    flops, accessed = flops[:, 0], accessed[:, 0]
    intensity = np.where(flops > 0, np.nan, 0.0)
    np.divide(flops, accessed, out=intensity, where=(flops > 0) & (accessed > 0))
    return LayerWork(flops=flops, mem_accessed=accessed, intensity=intensity, time=time[:, 0])


def _of_readers(stored: Bytes) -> Bytes:
    """Subtract outputs that are not kept from later operators that save them as input, without negative results."""
    saved, owed = np.zeros_like(stored), 0.0
    for i, size in enumerate(stored):
        left = size + owed
        saved[i], owed = max(0.0, left), min(0.0, left)
    return saved


def _axis_times(layout: BlockLayout, cost: LayerCost) -> Seconds:
    """Return the time of collectives of further axes in all passes: shape (axes, layers)."""
    times = np.zeros((len(FURTHER_NAMES), len(layout.table.layers)))
    for of_axis, axis in zip(times, FURTHER_NAMES, strict=True):
        rows = layout.table.collective_rows(axis)
        of_axis[rows] = cost.further[axis].link[..., 0].sum(axis=0)
    return times


def _traffic(layout: BlockLayout, cost: LayerCost, index: int) -> LayerTraffic:
    """Return the traffic of one pass for all layers; 0 for layers without a collective."""
    rows, traffic = layout.table.collective_rows(), cost.traffic

    def spread(values: Array) -> Array:
        whole = np.zeros((len(KINDS), len(layout.table.layers)))
        whole[:, rows] = values[index, :, :, 0]
        return whole

    return LayerTraffic(
        tile=spread(traffic.tile),
        size=spread(traffic.size),
        time=spread(traffic.link),
        time_exposed=spread(traffic.exposed),
    )
