"""Collectives of layers (TP, CP, EP): their sizes, times and bytes; for tensor parallelism also the exposed time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.architecture.layer import COLUMN_INPUT, PHASES, REDUCING
from calculon.architecture.layers import Layer
from calculon.architecture.projection import reduction_pieces
from calculon.architecture.shape import Sizes
from calculon.base.records import record
from calculon.base.units import Array, Bytes, BytesPerSecond, Count, Fraction, Seconds
from calculon.cost.process_groups import ProcessGroup, exposed_time, layer_group, tensor_group
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS
from calculon.editions.edition import Edition
from calculon.hardware.collectives.dispatch import Routing
from calculon.hardware.processor import Engine
from calculon.hardware.system import System

PASSES = ("fw", "agrad", "recomm")
"""Passes with collectives: forward, gradients of activations, and forward collectives repeated in the backward pass."""


@record
class Traffic:
    """Tensor-parallel traffic of the layers that have a collective.

    Arrays have shape (passes, kinds, collective layers, blocks), with :data:`PASSES` and the kinds of block
    :data:`KINDS`; ``processing`` has no axis of kinds.

    Attributes:
        size: Bytes of the message.
        tile: Bytes of one of the tiles that an overlapped message is cut into; the whole message without overlap.
        link: Time on the network.
        exposed: Time that computation waits.
        bandwidth_needed: Network bandwidth that would hide a tile behind the computation of another; 0 without overlap.
        processing: Computation time of overlapped layers, slowed down by the traffic; 0 without overlap.
    """

    size: Bytes
    tile: Bytes
    link: Seconds
    exposed: Seconds
    bandwidth_needed: BytesPerSecond
    processing: Seconds


class NetworkTimes:
    """Times and bytes of the collectives of one layout along an axis, each computed once for all block choices."""

    def __init__(self, system: System, sizes: Sizes, axis: str = "tp"):
        self.system, self.sizes, self.axis = system, sizes, axis
        self._known: dict[tuple[object, ...], Array] = {}
        self._others: dict[str, NetworkTimes] = {}

    def along(self, axis: str) -> "NetworkTimes":
        """Return the times along another axis."""
        return self._others.setdefault(axis, NetworkTimes(self.system, self.sizes, axis))

    def group(self, choice: BlockChoice, which: str = "") -> ProcessGroup:
        """Return the groups of the axis, or a subgroup (:func:`~calculon.cost.process_groups.layer_group`)."""
        return layer_group(self.axis, self.sizes, choice, self.system, which)

    def __call__(
        self,
        operation: str,
        message: Bytes,
        choice: BlockChoice,
        which: str = "",
        routing: Routing | None = None,
    ) -> Seconds:
        """Return the time of a collective; `message` is bytes by block."""

        def time(group: ProcessGroup) -> Seconds:
            how, each = choice.coll_algo, choice.latency_per_step
            return group.time(self.system, operation, message, how, per_step=each, routing=routing)

        return self._once(("time", operation, message.tobytes(), routing), time, choice, which)

    def volume(
        self,
        operation: str,
        message: Bytes,
        choice: BlockChoice,
        which: str = "",
        routing: Routing | None = None,
    ) -> Bytes:
        """Bytes of a collective through a port of each network: shape (networks, blocks)."""

        def volume(group: ProcessGroup) -> Bytes:
            return group.volume(self.system, operation, message, choice.coll_algo, routing)

        return self._once(("volume", operation, message.tobytes(), routing), volume, choice, which)

    def _once(
        self,
        what: tuple[object, ...],
        counted: Callable[[ProcessGroup], Array],
        choice: BlockChoice,
        which: str,
    ) -> Array:
        """Return a cached quantity of a collective; the key has all that group and algorithm depend on."""
        how = which, choice.coll_algo, choice.latency_per_step, choice.mesh_order
        key = (*what, *how)
        if key not in self._known:
            self._known[key] = counted(self.group(choice, which))
        return self._known[key]


def tensor_traffic(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
    recomputed: Array | None,
    launching: Seconds | None,
) -> Traffic:
    """Return the tensor-parallel traffic of the collective layers of a block.

    Args:
        layers: Layers with a collective; all of them are overlapped or none is.
        arithmetic, memory (shape (phases, layers, blocks)): Arithmetic and tier-1 memory time of these layers, by phase
            of :data:`~calculon.architecture.layer.PHASES`.
        network: Network times that the choices of a layout share.
        recomputed (shape (layers, 1)): Whether a layer is recomputed in the backward pass; None without overlap.
        launching (shape (phases, layers, blocks)): Least time of the kernels of these layers; None without overlap, or
            if kernels have no least time.
    """
    system, sizes = network.system, network.sizes
    size, link = _messages(layers, arithmetic, memory, network, choice, edition)
    none = np.zeros_like(link)
    without_overlap = Traffic(
        size=size, tile=size, link=link, exposed=link, bandwidth_needed=none, processing=none[:, 0]
    )
    if recomputed is None:
        return without_overlap
    usage = tensor_group(sizes, choice, system).usage(system)
    # overlapped with the passes of PHASES: the third is the pass of weight gradients, not of recomputation
    overlapped = np.stack([link[0], link[1], edition.gradient_link(link[2], recomputed)])
    tiles, pipelined = sizes.tensor_par, choice.tensor_par_overlap == "pipe"
    if choice.layout.tp_user_buffers:
        processing, exposed, overlapped = user_buffers(
            layers, arithmetic, memory, overlapped, tiles, usage, system, edition
        )
    else:
        if edition.times_tiles and not pipelined:
            memory = memory + _partial_sums(layers, system, choice, sizes, edition)
        times = [
            edition.overlapped_times(*pass_, tiles, usage, system, pipelined=pipelined)
            for pass_ in zip(arithmetic, memory, overlapped, strict=True)
        ]
        processing, exposed = (np.stack(of_passes) for of_passes in zip(*times, strict=True))
    if (lost := 1 - sizes.tp_hidden_percent / 100).any():
        sequential = system.combine(arithmetic, memory)[:, None] + overlapped
        exposed = exposed + lost * _hidden(sequential, processing[:, None] + exposed, overlapped)
    if launching is not None:
        processing, exposed = _bounded_by_launches(processing, exposed, launching)
    repeated = [[layer.flags.happens("recommunicate", choice, edition)] for layer in layers]
    exposed[2] = edition.repeated_exposed(exposed[0], exposed[2], recomputed) * repeated
    tile, needed = size / tiles, none.copy()
    slowed = arithmetic / (1.0 - usage) / tiles
    needed[:2] = tile[:2] / slowed[:2, None]
    found = {"exposed": exposed, "processing": processing}
    return replace(without_overlap, tile=tile, bandwidth_needed=needed, **found)


def _hidden(sequential: Seconds, together: Seconds, link: Seconds) -> Seconds:
    """Time that tiled products hide of their collectives: one after the other less overlapped, 0 without traffic.

    Tiles wait for each other's copies and run below their standalone rate: ``tp_hidden_percent`` is the share that is
    really hidden. Source: Chang et al., *Flux*, arXiv 2406.06858, abstract: earlier decompositions of products lose
    part of the overlap.
    """
    return np.where(link > 0, np.maximum(0.0, sequential - together), 0.0)


def user_buffers(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    link: Seconds,
    ranks: Count,
    usage: Fraction,
    system: System,
    edition: Edition,
) -> tuple[Seconds, Seconds, Seconds]:
    """Return processing, exposed and tiled link time of overlapped linear layers with Transformer Engine user buffers.

    The third result is the link time of collectives that overlap with tiled products; it is 0 for others.

    The input of a column-parallel product and the gradient of a row-parallel one are gathered in a ring that overlaps
    with a product for each shard. The output of a row-parallel product is reduced tile by tile; the reduction of the
    last tile is exposed. The backward pass of a column-parallel product is not tiled: its input is gathered again
    during the product for the input gradients, which are reduced during the product for the weight gradients.

    Arrays have shape (passes, layers, blocks); `link`, exposed and tiled time have the kind of block as second axis.

    Source: Transformer Engine 1 and 2, ``pytorch/module/base.py``, ``initialize_ub``: methods *ring_exchange*
    (qkv_fprop, fc1_fprop, proj_dgrad, fc2_dgrad), *pipeline* (proj_fprop, fc2_fprop), *bulk* (qkv_dgrad, qkv_wgrad,
    fc1_dgrad, fc1_wgrad).
    """
    column = np.array(
        [
            [layer.collective.operations == COLUMN_INPUT.whole]
            for layer in layers
            if layer.collective
        ]
    )

    def overlapped(pass_: int, traffic: Seconds, tiles: Count, *, pipelined: bool = False) -> Any:
        work = arithmetic[pass_], memory[pass_]
        return edition.overlapped_times(*work, traffic, tiles, usage, system, pipelined=pipelined)

    gathered = overlapped(0, link[0], ranks)
    reduced = overlapped(0, link[0], reduction_pieces(ranks), pipelined=True)
    forward = [np.where(column, *two) for two in zip(gathered, reduced, strict=True)]
    tiled = np.stack([link[0], np.where(column, 0.0, link[1]), np.zeros_like(link[2])])
    inputs, weights = overlapped(1, tiled[1], ranks), overlapped(2, tiled[2], ranks)
    processing = np.stack([forward[0], inputs[0], weights[0]])
    # the reduction of the input gradients overlaps with the weight gradients, the repeated gather with the inputs'
    bulk = [exposed_time(link[i], processing[3 - i], usage) for i in (1, 2)]
    exposed = np.stack(
        [forward[1], np.where(column, bulk[0], inputs[1]), np.where(column, bulk[1], 0.0)]
    )
    return processing, exposed, tiled


def _bounded_by_launches(
    processing: Seconds, exposed: Seconds, launching: Seconds
) -> tuple[Seconds, Seconds]:
    """Return processing and exposed time, whose sum is at least the launches of the kernels in each kind of block.

    The bound applies to the sum and not to the computation alone: a shorter pass hides as much as before, so that a
    faster product never makes a step slower.
    """
    bounded = np.maximum(processing, launching - exposed[:, 0])
    missing = np.maximum(0.0, launching[:, None] - (processing[:, None] + exposed))
    return bounded, np.maximum(0.0, exposed + (missing - (bounded - processing)[:, None]))


@record
class AxisTraffic:
    """Traffic along a further axis (CP, EP) of the layers that have it: shape (passes, layers, blocks).

    Message bytes and time on the network; :mod:`calculon.cost.axis_overlap` computes how much of the time is hidden.
    """

    size: Bytes
    link: Seconds


def axis_traffic(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
) -> AxisTraffic:
    """Return the traffic of layers along the axis of `network`; arguments as in :func:`tensor_traffic`."""
    size, link = _messages(layers, arithmetic, memory, network, choice, edition)
    base = KINDS.index("base")  # edge blocks have the same
    return AxisTraffic(size=size[:, base], link=link[:, base])


def overlap_with_gradients(
    traffic: Traffic, inputs: Seconds, weights: Seconds, usage: Fraction
) -> Traffic:
    """Return traffic whose backward collectives overlap with the gradients of the products behind an all-gather.

    The input is gathered again during the gradients of the `inputs`, and its gradient is reduced during the gradients
    of the `weights`: the times of both have shape (layers, blocks).

    Source: Megatron-LM, ``core/tensor_parallel/layers.py``, ``LinearWithGradAccumulationAndAsyncCommunication``: the
    gather is started before the matmul for the input gradient, the reduction before the one for the weight gradient.
    """
    exposed = traffic.exposed.copy()
    exposed[1] = exposed_time(exposed[1], weights, usage)
    exposed[2] = exposed_time(exposed[2], inputs, usage)
    return replace(traffic, exposed=exposed)


def _messages(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
) -> tuple[Bytes, Seconds]:
    """Return message bytes and link time, both of shape (passes, kinds, layers, blocks)."""
    system, sizes = network.system, network.sizes
    shape = (len(PASSES), len(KINDS), len(layers), sizes.tensor_par.size)
    size, link = np.zeros(shape), np.zeros(shape)
    several = sizes.degree(network.axis) > 1
    if not several.any():
        return size, link
    engine = system.vector[choice.layout.datatype]
    stated = {
        which: system.fabric.stated_by_bus[network.group(choice, which).network]
        for which in {layer.collective.group for layer in layers if layer.collective}
    }
    for i, j, operation, kinds in _operations(layers, choice, edition):
        collective = layers[j].collective
        assert collective is not None
        message = collective.size(operation, backward=PASSES[i] == "agrad")
        which, overlapped, again = collective.group, collective.overlapped, PASSES[i] == "recomm"
        time = network(operation, message, choice, which, collective.routing)
        steps = collective.times(backward=PASSES[i] == "agrad")
        message, time = steps * message, steps * time
        by_bus = stated[which]
        parallel = several & (message > 0) if which else several
        # work that is part of the collective: all of a layer that only communicates, else adding parts up
        if not overlapped:
            phase = 0 if again else i
            work = system.combine(arithmetic[phase, j], memory[phase, j])
        elif operation in REDUCING:
            work = _reduction_time(engine, message, choice, sizes)
        else:
            work = np.zeros_like(time)
        time = edition.link_time(
            time, work, recommunication=again, overlapped=overlapped, by_bus=by_bus
        )
        size[i, kinds, j] = np.where(parallel, message, 0.0)
        link[i, kinds, j] = np.where(parallel, time, 0.0)
    return size, link


def _operations(
    layers: Sequence[Layer], choice: BlockChoice, edition: Edition
) -> Iterator[tuple[int, int, str, slice]]:
    """Yield the collectives of layers: pass, layer, operation, and the slice of :data:`KINDS` that runs it."""
    for j, layer in enumerate(layers):
        for i, name in enumerate(PASSES):
            base, edge = (operation_of(layer, name, kind, choice, edition) for kind in KINDS)
            if base is not None:
                yield i, j, base, slice(0, 2 if edge == base else 1)
            if edge is not None and edge != base:
                yield i, j, edge, slice(1, 2)


def tensor_volumes(
    layers: Sequence[Layer], network: NetworkTimes, choice: BlockChoice, edition: Edition
) -> Bytes:
    """Return the bytes of a block's collectives along the axis of `network` through a port of each network.

    The shape is (passes, kinds, networks, blocks), with :data:`PASSES` and :data:`KINDS`.
    """
    networks, several = len(network.system.networks), network.sizes.degree(network.axis) > 1
    moved = np.zeros((len(PASSES), len(KINDS), networks, several.size))
    for i, j, operation, kinds in _operations(layers, choice, edition):
        collective = layers[j].collective
        assert collective is not None
        message = collective.size(operation, backward=PASSES[i] == "agrad")
        volume = network.volume(operation, message, choice, collective.group, collective.routing)
        volume = collective.times(backward=PASSES[i] == "agrad") * volume
        moved[i, kinds] += np.where(several, volume, 0.0)
    return moved


def operation_of(
    layer: Layer, pass_: str, kind: str, choice: BlockChoice, edition: Edition
) -> str | None:
    """Return the collective that a layer runs in a pass of :data:`PASSES` and a kind of block; None without one.

    An all-reduce next to a split pipeline transfer is split, too (``Edition.splits_collectives``).
    """
    collective = layer.collective
    again = pass_ == "recomm"
    if collective is None or (again and not layer.flags.happens("recommunicate", choice, edition)):
        return None
    operations, split = collective.operations, collective.split_operations
    if split and edition.splits_collectives(choice, edge=kind == "edge", outer=collective.outer):
        operations = split
    return operations[1 if pass_ == "agrad" else 0]


def _partial_sums(
    layers: Sequence[Layer], system: System, choice: BlockChoice, sizes: Sizes, edition: Edition
) -> Seconds:
    """Memory time of the partial sums of ring reductions: shape (phases, layers, blocks).

    Each step but the first adds its tile to the received one: two tiles are read and one is written. Source: Wang et
    al., ASPLOS 2023, doi:10.1145/3567955.3567959, section 5: the accumulated result of the loop over shards.
    """
    tiles = sizes.tensor_par
    time = np.zeros((len(PHASES), len(layers), tiles.size))
    for j, layer in enumerate(layers):
        assert layer.collective is not None
        tile = np.where(tiles > 1, layer.collective.message / tiles, 0.0)
        for phase, name in enumerate(PASSES[:2]):
            if operation_of(layer, name, KINDS[0], choice, edition) in REDUCING:
                time[phase, j] = (tiles - 1) * system.mem1.time(3 * tile)
    return time


def _reduction_time(
    engine: Engine, message: Bytes | float, choice: BlockChoice, sizes: Sizes
) -> Seconds:
    """Arithmetic time of a reduction: one FLOP per element of the message and peer."""
    elements = message / choice.layout.result_bytes
    return engine.time(elements * (sizes.tensor_par - 1) / sizes.tensor_par)


assert PASSES[:2] == PHASES[:2]
