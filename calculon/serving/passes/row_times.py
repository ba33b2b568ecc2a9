"""Times of the rows of a pass: a floor, and then the arithmetic or the bytes, as the kernels of a machine take them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import numpy as np

from calculon.architecture.experts import SHARED
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Flops, Seconds
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.result_numbers import number
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import Group
from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, Shapes, Types
from calculon.hardware.kernels.laws import FusedAttention, Gemm, Processor, alignment
from calculon.hardware.kernels.stated_rates import Stream
from calculon.hardware.system import KERNELS, System
from calculon.serving.caches.cache import heads_of_rank
from calculon.serving.passes.exchange import COMBINE, DISPATCH, exchange_times
from calculon.serving.passes.pass_rows import Row
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.records.number_types import ACTIVATION_BYTES, WIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """All rows of a name in a pass: times in seconds, and FLOP and bytes."""

    unknown_keys: ClassVar[str] = "ignored"

    time: float = number("whole time")
    floor: float = number("the least that its kernels take")
    arithmetic: float = number("time of the arithmetic")
    memory: float = number("time of reading and writing memory")
    network: float = number("time of messages")
    flops: float = number("FLOP")
    moved: float = number("bytes read and written")
    weights: float = number("bytes of weights read")
    cache: float = number("bytes of the cache read")


@dataclass(frozen=True, slots=True, kw_only=True)
class CausesRecord:
    """The seconds of a pass by cause; they sum up to its time."""

    unknown_keys: ClassVar[str] = "ignored"

    weights: float = number("reading weights")
    cache: float = number("reading the cache")
    activations: float = number("reading and writing activations")
    arithmetic: float = number("arithmetic")
    network: float = number("reductions and exchanges over the network")
    floors: float = number("floors of kernels")
    host: float = number("the host between passes")


QUANTITIES = tuple(one.name for one in spec_fields(RowRecord))
"""Quantities of a row that files have."""

CAUSES = {one.name: one.declaration.help for one in spec_fields(CausesRecord)}
"""What the time of a pass is due to: reading of weights, caches and activations, and what is no memory; in words."""


class Parts(NamedTuple):
    """The time of a row in its parts, each by itself; they overlap but for the floor."""

    floor: Seconds
    arithmetic: Seconds
    memory: Seconds
    network: Seconds
    time: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """A row of passes on the slowest rank, all its occurrences together; all of shape ``(passes,)``.

    ``floor`` to ``time`` are the :class:`Parts` of its time; ``weights`` and ``cache`` are bytes that are read.
    """

    name: str
    count: int
    stage: str
    flops: Flops
    moved: Bytes
    weights: Bytes
    cache: Bytes
    floor: Seconds
    arithmetic: Seconds
    memory: Seconds
    network: Seconds
    time: Seconds


class PassSpans(NamedTuple):
    """The times of passes, and what of it blocks take, and what the first stage and the last takes beside."""

    time: Seconds
    blocks: Seconds
    first: Seconds
    last: Seconds

    def take(self, places: Array) -> "PassSpans":
        """Return those of some of the passes."""
        return PassSpans(*(one[places] for one in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """The times of passes: rows in the order of :data:`~calculon.serving.pass_rows.ROWS`.

    Attributes:
        rows: Of a pass through all stages; their times sum up to ``time``.
        time (shape (passes,)): From the first row to the last, with what the host adds.
        blocks, first, last (shape (passes,)): What of it blocks take, what the first stage and what the last takes
            beside.
    """

    rows: tuple[RowTime, ...]
    time: Seconds
    blocks: Seconds
    first: Seconds
    last: Seconds

    @property
    def spans(self) -> "PassSpans":
        """Its times without the rows."""
        return PassSpans(self.time, self.blocks, self.first, self.last)

    def causes(self) -> dict[str, Seconds]:
        """Return the time by :data:`CAUSES`; they sum up to it.

        The work of a row is due to what takes the longest of it; time of memory by what is read.
        """
        found = {name: np.zeros_like(self.time) for name in CAUSES}
        for row in self.rows:
            work = row.time - row.floor
            host = row.name == "host"
            found["host" if host else "floors"] += row.floor
            network = row.network > 0
            found["network"] += np.where(network, work, 0.0)
            computes = ~network & (row.arithmetic >= row.memory)
            found["arithmetic"] += np.where(computes, work, 0.0)
            reads = np.where(network | computes, 0.0, work) / np.maximum(row.moved, 1.0)
            found["weights"] += reads * row.weights
            found["cache"] += reads * row.cache
            found["activations"] += reads * (row.moved - row.weights - row.cache)
        return found

    def of(self, name: str) -> tuple[RowTime, ...]:
        """Return the rows of a name."""
        return tuple(row for row in self.rows if row.name == name)

    def total(self, name: str) -> Array:
        """Return a quantity of :class:`RowTime` summed over rows."""
        total: Array = sum((getattr(row, name) for row in self.rows), np.zeros_like(self.time))
        return total


def wide_type(system: System) -> str:
    """Return the type of activations: bfloat16, or what the machine has of 16 bits, or at all."""
    known = system.datatypes
    return next(name for name in (WIDE, "float16", *known) if name in known)


def pass_times(
    model: Model,
    system: System,
    rows: Sequence[Row],
    sizes: PassSizes,
    *,
    graphs: bool | Array = True,
    overlap: str = "none",
    step: bool = True,
) -> PassTimes:
    """Time the rows of passes.

    A row takes ``t0 + max(flops / rate, bytes / rate)``: its floor, and the work as its kernel does it. Floors are
    those of ``ext.serving`` where the law of a kernel states no start. Source: fits to kernels in graphs
    (:class:`~calculon.hardware.serving.Serving`); Williams et al., *Roofline*, CACM 52(4), 2009.

    Args:
        model, system: The model, and the machine.
        rows: From :func:`~calculon.serving.pass_rows.pass_rows`.
        sizes: Of the passes.
        graphs (shape (passes,)): Which passes are launched as graphs. Of others the host launches every kernel, and
            they take as long as that at least, each stage its share of it.
        overlap: What the exchange with experts hides behind; what it takes longer counts.
        step: Whether each is a step of the engine, which the host schedules; drafts are part of another's.
    """
    timed = [_row_time(model, system, row, sizes.parts(row.parts).of_group) for row in rows]
    launching = _launching(system, rows, timed)
    if overlap != "none":
        timed = _hidden(rows, timed, overlap)
    stages = {
        stage: sum((row.time for row in timed if row.stage == stage), np.zeros(sizes.count))
        for stage in ("block", "first", "last")
    }
    time = stages["block"] + stages["first"] + stages["last"]
    some = sizes.tokens > 0
    waits = np.where(some & ~np.asarray(graphs), np.maximum(0.0, launching - time), 0.0)
    scheduler = np.where(some, system.ext.serving.step_host * step, 0.0)
    host = _host(waits + scheduler)
    if np.any(host.time):
        timed.append(host)
    return PassTimes(
        rows=tuple(timed),
        time=time + host.time,
        blocks=stages["block"] + waits,
        first=stages["first"],
        last=stages["last"] + scheduler,
    )


def _launching(system: System, rows: Sequence[Row], timed: Sequence[RowTime]) -> Seconds:
    """Return the time in which the host launches all kernels of passes, one by one: those that have something to do."""
    both = zip(rows, timed, strict=True)
    kernels = sum(row.kernels * row.times * row.parts * (one.time > 0) for row, one in both)
    return kernels * system.ext.launch.eager + np.zeros_like(timed[0].time)


def _host(added: Seconds) -> RowTime:
    """Return the row of what the host adds: the part of a step that nothing hides, and waits for launches."""
    nothing = np.zeros_like(added)
    return RowTime(
        name="host",
        count=1,
        stage="last",
        flops=nothing,
        moved=nothing,
        weights=nothing,
        cache=nothing,
        floor=added,
        arithmetic=nothing,
        memory=nothing,
        network=nothing,
        time=added,
    )


def _hidden(rows: Sequence[Row], timed: list[RowTime], overlap: str) -> list[RowTime]:
    """Return times where exchanges with experts hide behind other rows, of which they take the rest.

    With two parts of the batch, one is exchanged while the other computes, and the longer of both counts (DeepSeek-V3,
    arXiv 2412.19437, section 3.4.2); else shared experts alone run meanwhile.
    """
    sent, beside = np.zeros_like(timed[0].time), np.zeros_like(timed[0].time)
    for row, one in zip(rows, timed, strict=True):
        if row.exchange is not None:
            sent = sent + one.time
        elif overlap == "shared_expert":
            layer = row.layer
            shared = layer is not None and layer.name.startswith(SHARED) and layer.kernel != "add"
            beside = beside + one.time * shared
        elif one.stage == "block":
            beside = beside + np.where(np.asarray(row.parts) > 1, one.time, 0.0)
    left = np.maximum(0.0, sent - beside) / np.where(sent > 0, sent, 1.0)
    return [
        replace(one, time=one.time * left) if one.name in (DISPATCH, COMBINE) else one
        for one in timed
    ]


def _row_time(model: Model, system: System, row: Row, sizes: PassSizes) -> RowTime:
    """Time one row, and multiply it with its occurrences."""
    if row.message is not None:
        parts = _reduction(system, row.message, sizes.tensor_par)
    elif row.exchange is not None:
        parts = _sent(exchange_times(system, row.exchange)[row.name == COMBINE])
    elif row.keys is not None:
        parts = _decoding(model, system, row, sizes)
    elif row.split is not None:
        parts = _sent(row.split.time(system))
    else:
        parts = _kernel(system, row, sizes.count)
    nothing, count = np.zeros(sizes.count), row.times

    def whole(value: Array | float) -> Array:
        return count * row.parts * (nothing + value)

    return RowTime(
        name=row.name,
        count=count,
        stage=row.stage,
        flops=whole(row.flops),
        moved=whole(row.moved),
        weights=whole(row.weights),
        cache=whole(row.cache),
        floor=whole(parts.floor),
        arithmetic=whole(parts.arithmetic),
        memory=whole(parts.memory),
        network=whole(parts.network),
        time=whole(parts.time),
    )


def _combined(
    system: System, floor: Seconds | float, arithmetic: Seconds, memory: Seconds
) -> Parts:
    """Return a floor and the work beside it; nothing where there is none."""
    work = system.combine(arithmetic, memory)
    floor = np.where(work > 0, floor, 0.0)
    return Parts(floor, arithmetic, memory, np.zeros_like(work), floor + work)


def _kernel(system: System, row: Row, count: int) -> Parts:
    """Time a kernel of a kind that training has, by its law without the start, and the floor in place of that."""
    layer, serving = row.layer, system.ext.serving
    assert layer is not None
    wide = wide_type(system)
    types = Types(row.engine or wide, system.core_type(wide, "same"), wide)
    if row.engine:
        kernel = KERNELS["product"](system, types)
        if isinstance(kernel.rate, Gemm):
            return _tiles(system, kernel.rate, kernel, row)
        return _by_law(system, kernel, row, count, serving.matrix_floor, _share(system, row))
    floors = {"attention": serving.attention_floor, "routing": serving.routing_floor}
    floor = floors.get(layer.kernel, serving.vector_floor)
    kernel = KERNELS[layer.kernel](system, types)
    return _by_law(system, kernel, row, count, floor if row.kernels else 0.0)


def _tiles(system: System, law: Gemm, kernel: Kernel, row: Row) -> Parts:
    """Time products by the law ``tiles``, whose operands may be of different widths."""
    assert row.layer is not None
    assert row.layer.product is not None
    sizes = (np.asarray(size, float) for size in row.layer.product)
    batch, m, n, k = np.broadcast_arrays(*sizes)
    some = (m > 0) & (batch > 0)
    on = Processor(kernel.engine.peak, system.mem1.bandwidth, kernel.element_bytes)
    aligned = alignment([n, k], kernel.element_bytes)
    rows, many = np.where(some, m, 1.0), np.where(some, batch, 1.0)
    arithmetic, memory = law.parts(many, rows, k, n, aligned, on, moved=row.moved)
    arithmetic = np.where(some, arithmetic / _share(system, row), 0.0)
    floor = law.start or system.ext.serving.matrix_floor
    if memory is None:
        return _combined(system, floor, arithmetic, _moved(system, row.moved))
    time = np.where(some, floor + np.cbrt(arithmetic**3 + memory**3), 0.0)
    return Parts(np.where(some, floor, 0.0), arithmetic, memory, np.zeros_like(time), time)


def _share(system: System, row: Row) -> float:
    """Return the share of the rate of products that one reaches: less where experts have several in one kernel."""
    grouped = row.layer is not None and row.layer.kernel == "grouped_product"
    return system.ext.serving.grouped_efficiency if grouped else 1.0


def _by_law(
    system: System, kernel: Kernel, row: Row, count: int, floor: float, share: float = 1.0
) -> Parts:
    """Time a layer by the law of its kernel, forward, with a share of its rate.

    The start of streaming kernels was measured one by one in training; that in a graph is the floor of serving. On an
    engine with a stepped curve more never takes less: fewer rows run as more of them, of which some are not used.
    """
    layer = row.layer
    assert layer is not None
    flops, moved = np.zeros((3, 1, count)), np.zeros((3, 1, count))
    flops[0, 0], moved[0, 0] = row.flops, row.moved
    if kernel.rate is ENGINE_RATE:
        done = kernel.engine.efficiency.padded(flops[0, 0]) / (kernel.engine.peak * share)
        return _combined(system, floor, done, _moved(system, moved[0, 0]))
    start = _start(kernel)
    once = layer._replace(launches=None)
    arithmetic, own = kernel.times(Shapes(flops, moved, [once], np.zeros(1, np.int64)), system.mem1)
    if isinstance(kernel.rate, Stream):
        assert own is not None
        memory = own[0, 0] - np.where(moved[0, 0] > 0, start, 0.0)
        done = arithmetic[0, 0]
    else:
        memory = _moved(system, row.moved) if own is None else own[0, 0]
        done = arithmetic[0, 0] - np.where(flops[0, 0] > 0, start, 0.0)
    own_start = start if isinstance(kernel.rate, FusedAttention) else 0.0
    return _combined(
        system, (own_start or floor) if floor else 0.0, done / share, memory + np.zeros(count)
    )


def _start(kernel: Kernel) -> float:
    """Return the start that the law of a kernel contains."""
    rate = kernel.rate
    if isinstance(rate, FusedAttention):
        own = rate.kernels[rate.default]
        return own.start * rate.slowness / own.sustained
    return rate.start if isinstance(rate, Stream) else 0.0


def _moved(system: System, size: Bytes) -> Seconds:
    """Return the time of traffic in tier-1 memory, without the start of a kernel; more never takes less."""
    stream = system.ext.traffic
    if stream is None:
        return system.mem1.efficiency.padded(np.asarray(size, float)) / system.mem1.bandwidth
    return np.asarray(size, float) / (system.mem1.bandwidth * stream.efficiency)


def _decoding(model: Model, system: System, row: Row, sizes: PassSizes) -> Parts:
    """Time attention of new tokens: the cache at the rate of its kernel, or the arithmetic where that takes longer.

    Latents are read once for all heads, so that arithmetic counts; it runs at the rate of attention with many keys.
    """
    serving, wide = system.ext.serving, wide_type(system)
    assert row.keys is not None
    keys, some = row.keys, (row.keys > 0) & (sizes.decoded > 0)
    heads = np.ones(sizes.count) if model.latent else heads_of_rank(model, sizes.tensor_par)
    whole = sizes.decoded * np.maximum(keys, 1.0)
    each = np.divide(row.cache, whole * heads, out=np.zeros(sizes.count), where=whole > 0)
    beside = np.where(some, row.moved - row.cache, 0.0)
    reading = serving.decode_attention.reading(
        sizes.decoded, keys, heads, each, beside, system.mem1.bandwidth
    )
    memory = np.where(some, reading, 0.0)
    engine = system.product_engine(system.core_type(wide, "same"))
    arithmetic = np.where(some, engine.long_time(row.flops), 0.0)
    work = np.maximum(arithmetic, memory)
    floor = np.where(some, serving.attention_floor, 0.0)
    return Parts(floor, arithmetic, memory, np.zeros_like(work), floor + work)


def _reduction(system: System, message: Bytes, ranks: Count) -> Parts:
    """Time an all-reduce: by a kernel for small messages in one innermost network, or by the library.

    Sources: :class:`~calculon.hardware.serving.SmallReduce`; the library as in training.
    """
    members = np.asarray(ranks, np.int64)
    several = (members > 1) & (message > 0)
    small = system.small_reduce(message, ranks)
    group = Group.in_mesh(system, np.maximum(members, 2), np.ones_like(members))
    library = group_time(system, "all_reduce", np.maximum(message, 1.0), group, AUTO)
    return _sent(np.where(several, np.minimum(small, library), 0.0))


def _sent(time: Seconds) -> Parts:
    """Return what takes the network alone."""
    nothing = np.zeros_like(time)
    return Parts(nothing, nothing, nothing, time, time)


def stage_time(times: PassTimes | PassSpans, blocks: int, stages: Count) -> Seconds:
    """Return the time of the slowest stage: the one with the most blocks, and the LM head on the last.

    Where blocks do not divide evenly, the last stage is one of those with fewer.
    """
    most = np.ceil(blocks / stages)
    each = times.blocks / blocks
    last = each * np.floor(blocks / stages) + times.last
    only = stages == 1
    return np.where(only, times.time, np.maximum(each * most + times.first, last))


def handed_on(model: Model, system: System, tokens: Count, tensor_par: Count) -> Seconds:
    """Return the time in which a stage hands its rows to the next."""
    size = tokens * model.hidden * ACTIVATION_BYTES
    ranks = np.full(np.shape(tensor_par), 2)
    group = Group.in_mesh(system, ranks, np.asarray(tensor_par, np.int64))
    return group_time(system, "p2p", size, group, AUTO)
