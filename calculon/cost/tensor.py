"""Collectives of layers: which runs where, how long it holds the link; of tensor parallelism, what is exposed."""

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
from calculon.cost.process_groups import ProcessGroup, layer_group, not_hidden, tensor_group
from calculon.declarations.scope_choices import BlockChoice
from calculon.declarations.statistics import KINDS
from calculon.editions.edition import Edition
from calculon.hardware.collectives.dispatch import Routing
from calculon.hardware.processor import Engine
from calculon.hardware.system import System

PASSES = ("fw", "agrad", "recomm")
"""Passes with tensor-parallel traffic; ``recomm`` repeats the forward collective in the backward pass."""


@record
class Traffic:
    """Tensor-parallel traffic of the layers that have a collective.

    All arrays have shape ``(passes, kinds, collective layers, blocks)`` with :data:`PASSES` and :data:`KINDS`;
    ``processing`` has shape ``(passes, collective layers, blocks)`` and holds only overlapped layers (else 0).
    """

    size: Bytes
    tile: Bytes
    link: Seconds
    exposed: Seconds
    bandwidth_needed: BytesPerSecond
    processing: Seconds


class NetworkTimes:
    """What collectives of one layout along an axis take: equal ones are counted once, for all choices."""

    def __init__(self, system: System, sizes: Sizes, axis: str = "tp"):
        self.system, self.sizes, self.axis = system, sizes, axis
        self._known: dict[tuple[object, ...], Array] = {}
        self._others: dict[str, NetworkTimes] = {}

    def along(self, axis: str) -> "NetworkTimes":
        """Return those along another axis."""
        return self._others.setdefault(axis, NetworkTimes(self.system, self.sizes, axis))

    def group(self, choice: BlockChoice, which: str = "") -> ProcessGroup:
        """Return the groups of the axis, or other ranks of a group of experts."""
        return layer_group(self.axis, self.sizes, choice, self.system, which)

    def __call__(
        self,
        operation: str,
        message: Bytes,
        choice: BlockChoice,
        which: str = "",
        routing: Routing | None = None,
    ) -> Seconds:
        """Time a collective."""

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
        """Return a quantity of a collective in groups of the axis, counted when it is first asked for."""
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
    """Traffic of the collective layers of a block.

    Args:
        layers: Those with a collective; either all of them are overlapped or none.
        arithmetic, memory (shape (phases, layers, blocks)): Arithmetic and tier-1 memory time of these layers, by phase
            of :data:`~calculon.architecture.layer.PHASES`.
        network: Network times that the choices of a layout share.
        recomputed (shape (layers, 1)): Which of them are computed again in the backward pass; None where none is
            overlapped.
        launching (shape (phases, layers, blocks)): Least time of the kernels of these layers; None where none is
            overlapped, or kernels have no least time.
    """
    system, sizes = network.system, network.sizes
    size, link = _messages(layers, arithmetic, memory, network, choice, edition)
    none = np.zeros_like(link)
    alone = Traffic(
        size=size, tile=size, link=link, exposed=link, bandwidth_needed=none, processing=none[:, 0]
    )
    if recomputed is None:
        return alone
    usage = tensor_group(sizes, choice, system).usage(system)
    beside = np.stack([link[0], link[1], edition.gradient_link(link[2], recomputed)])
    tiles, pipelined = sizes.tensor_par, choice.tensor_par_overlap == "pipe"
    if choice.layout.tp_user_buffers:
        processing, exposed, beside = user_buffers(
            layers, arithmetic, memory, beside, tiles, usage, system, edition
        )
    else:
        if edition.times_tiles and not pipelined:
            memory = memory + _partial_sums(layers, system, choice, sizes, edition)
        times = [
            edition.overlapped_times(*pass_, tiles, usage, system, pipelined=pipelined)
            for pass_ in zip(arithmetic, memory, beside, strict=True)
        ]
        processing, exposed = (np.stack(of_passes) for of_passes in zip(*times, strict=True))
    if (waits := 1 - sizes.tp_hidden_percent / 100).any():
        apart = system.combine(arithmetic, memory)[:, None] + beside
        exposed = exposed + waits * _hidden(apart, processing[:, None] + exposed, beside)
    if launching is not None:
        processing, exposed = _launched(processing, exposed, launching)
    repeated = [[layer.flags.happens("recommunicate", choice, edition)] for layer in layers]
    exposed[2] = edition.repeated_exposed(exposed[0], exposed[2], recomputed) * repeated
    tile, needed = size / tiles, none.copy()
    slowed = arithmetic / (1.0 - usage) / tiles
    needed[:2] = tile[:2] / slowed[:2, None]
    found = {"exposed": exposed, "processing": processing}
    return replace(alone, tile=tile, bandwidth_needed=needed, **found)


def _hidden(apart: Seconds, together: Seconds, beside: Seconds) -> Seconds:
    """Time that cut products hide of their collectives; of it a step hides the share ``tp_hidden_percent``.

    Pieces wait for each other's copies, and run below their rate alone. Source: Chang et al., *Flux*, arXiv 2406.06858,
    abstract: earlier methods of cutting products lose part of what they could hide.
    """
    return np.where(beside > 0, np.maximum(0.0, apart - together), 0.0)


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
    """Return processing and exposed time of overlapped linear layers with the user buffers of Transformer Engine.

    The third are the link times of what runs beside cut products, the rest 0.

    The input of a column-split product and the gradient of a row-split one are gathered in a ring, beside a product for
    each shard. The output of a row-split product is reduced piece by piece: nothing runs beside the reduction of the
    last. In the backward pass of a column-split product nothing is cut: its input is gathered again beside the
    gradients of inputs, and these are reduced beside the gradients of weights.

    Arrays are of shape ``(passes, layers, blocks)``; `link` and exposed time have the kind of block as second axis.

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

    def beside(pass_: int, traffic: Seconds, tiles: Count, *, pipelined: bool = False) -> Any:
        work = arithmetic[pass_], memory[pass_]
        return edition.overlapped_times(*work, traffic, tiles, usage, system, pipelined=pipelined)

    gathered = beside(0, link[0], ranks)
    reduced = beside(0, link[0], reduction_pieces(ranks), pipelined=True)
    forward = [np.where(column, *two) for two in zip(gathered, reduced, strict=True)]
    cut = np.stack([link[0], np.where(column, 0.0, link[1]), np.zeros_like(link[2])])
    inputs, weights = beside(1, cut[1], ranks), beside(2, cut[2], ranks)
    processing = np.stack([forward[0], inputs[0], weights[0]])
    behind = [not_hidden(link[i], processing[3 - i], usage) for i in (1, 2)]
    exposed = np.stack(
        [forward[1], np.where(column, behind[0], inputs[1]), np.where(column, behind[1], 0.0)]
    )
    return processing, exposed, cut


def _launched(processing: Seconds, exposed: Seconds, launching: Seconds) -> tuple[Seconds, Seconds]:
    """Let no pass take less than its kernels, what it waits for included, in either kind of block.

    A pass that takes less by itself still hides what it hid: a faster product is never slower.
    """
    own = np.maximum(processing, launching - exposed[:, 0])
    short = np.maximum(0.0, launching[:, None] - (processing[:, None] + exposed))
    return own, np.maximum(0.0, exposed + (short - (own - processing)[:, None]))


@record
class AxisTraffic:
    """Traffic along a further axis, of the layers that have it: shape ``(passes, layers, blocks)``, by :data:`PASSES`.

    Nothing of it is hidden.
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
    """Traffic of layers along the axis of `network`; arguments as in :func:`tensor_traffic`."""
    size, link = _messages(layers, arithmetic, memory, network, choice, edition)
    base = KINDS.index("base")  # edge blocks have the same
    return AxisTraffic(size=size[:, base], link=link[:, base])


def beside_gradients(
    traffic: Traffic, inputs: Seconds, weights: Seconds, usage: Fraction
) -> Traffic:
    """Return traffic whose backward collectives run beside the gradients of the products that read what was gathered.

    The input is gathered again beside the gradients of the `inputs`, and the gradient of the input reduced beside those
    of the `weights`: seconds, shape (layers, blocks). What is exposed is what they add to these.

    Source: Megatron-LM, ``core/tensor_parallel/layers.py``, ``LinearWithGradAccumulationAndAsyncCommunication``: the
    gather is started before the product of the input's gradient, the reduction before that of the weights' gradient.
    """
    exposed = traffic.exposed.copy()
    exposed[1] = not_hidden(exposed[1], weights, usage)
    exposed[2] = not_hidden(exposed[2], inputs, usage)
    return replace(traffic, exposed=exposed)


def _messages(
    layers: Sequence[Layer],
    arithmetic: Seconds,
    memory: Seconds,
    network: NetworkTimes,
    choice: BlockChoice,
    edition: Edition,
) -> tuple[Bytes, Seconds]:
    """Return message size and link time, both of shape (passes, kinds, layers, blocks)."""
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
    """Yield the collectives of layers that have one: pass, layer, operation, and the kinds of block that do it."""
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
    """Bytes that the collectives of a block along the axis of `network` pass through a port of each network.

    Returns:
        Array of shape (passes, kinds, networks, blocks): with :data:`PASSES` and :data:`KINDS`.
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
    """Return the collective of a layer in a pass of :data:`PASSES`, if any, in a block of one of :data:`KINDS`."""
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
    """Memory time of the sums that go round a ring with a reduction: shape (phases, layers, blocks).

    Each step but the first adds a tile to the one that has come: two are read and one is written. Source: Wang et al.,
    ASPLOS 2023, doi:10.1145/3567955.3567959, section 5: the accumulated result of the loop over shards.
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
    """Arithmetic time of adding up the parts of a reduced message, one FLOP per element and peer."""
    elements = message / choice.layout.result_bytes
    return engine.time(elements * (sizes.tensor_par - 1) / sizes.tensor_par)


assert PASSES[:2] == PHASES[:2]
