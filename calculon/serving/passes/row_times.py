"""Times of the rows of a pass: a floor plus the roofline of arithmetic and memory traffic, by the laws of kernels."""

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
from calculon.serving.passes.host_time import PLAIN_HOST, StepHost
from calculon.serving.passes.pass_rows import Row
from calculon.serving.passes.pass_sizes import PassSizes
from calculon.serving.records.number_types import ACTIVATION_BYTES, WIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRecord:
    """All rows of a name in a pass: times in seconds, FLOP and bytes."""

    unknown_keys: ClassVar[str] = "ignored"

    time: float = number("total time")
    floor: float = number("minimum time of its kernels")
    arithmetic: float = number("time of the arithmetic")
    memory: float = number("time of memory traffic")
    network: float = number("time of messages")
    flops: float = number("FLOP")
    moved: float = number("bytes read and written")
    weights: float = number("bytes of weights read")
    cache: float = number("bytes of the KV cache read")


@dataclass(frozen=True, slots=True, kw_only=True)
class CausesRecord:
    """Seconds of a pass by cause; the sum is its time."""

    unknown_keys: ClassVar[str] = "ignored"

    weights: float = number("reading weights")
    cache: float = number("reading the KV cache")
    activations: float = number("reading and writing activations")
    arithmetic: float = number("arithmetic")
    network: float = number("network communication")
    floors: float = number("kernel floors")
    host: float = number("host between passes")


QUANTITIES = tuple(one.name for one in spec_fields(RowRecord))
"""Quantities of a row in files."""

CAUSES = {one.name: one.declaration.help for one in spec_fields(CausesRecord)}
"""Causes of the time of a pass, with labels: reading memory by kind, arithmetic, network, and overheads."""


class Parts(NamedTuple):
    """Parts of the time of a row, each on its own; all except the floor overlap."""

    floor: Seconds
    arithmetic: Seconds
    memory: Seconds
    network: Seconds
    time: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTime:
    """A row of passes on the slowest rank, all occurrences added up; all of shape ``(passes,)``.

    ``floor`` to ``time`` are the :class:`Parts` of its time; ``weights`` and ``cache`` are bytes read.
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
    """Times of passes, split into the blocks and the additional time of the first and the last stage."""

    time: Seconds
    blocks: Seconds
    first: Seconds
    last: Seconds

    def take(self, places: Array) -> "PassSpans":
        """Return the times of some of the passes."""
        return PassSpans(*(one[places] for one in self))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Times of passes, with rows in the order of :data:`~calculon.serving.passes.pass_rows.ROWS`.

    Attributes:
        rows: Rows of a pass through all stages; their times sum to ``time``.
        time (shape (passes,)): Time from the first row to the last, including the host.
        blocks, first, last (shape (passes,)): Parts of ``time``: blocks, and the additional time of the first and last
        stage.
    """

    rows: tuple[RowTime, ...]
    time: Seconds
    blocks: Seconds
    first: Seconds
    last: Seconds

    @property
    def spans(self) -> "PassSpans":
        """The times without rows."""
        return PassSpans(self.time, self.blocks, self.first, self.last)

    def causes(self) -> dict[str, Seconds]:
        """Return the time by :data:`CAUSES`; the sum is the time of the pass.

        The work of a row is attributed to its longest part, and memory time to the bytes that are read.
        """
        result = {name: np.zeros_like(self.time) for name in CAUSES}
        for row in self.rows:
            work = row.time - row.floor
            host = row.name == "host"
            result["host" if host else "floors"] += row.floor
            network = row.network > 0
            result["network"] += np.where(network, work, 0.0)
            computes = ~network & (row.arithmetic >= row.memory)
            result["arithmetic"] += np.where(computes, work, 0.0)
            # 1 byte avoids 0/0 for rows without traffic, whose work is 0 as well
            reads = np.where(network | computes, 0.0, work) / np.maximum(row.moved, 1.0)
            result["weights"] += reads * row.weights
            result["cache"] += reads * row.cache
            result["activations"] += reads * (row.moved - row.weights - row.cache)
        return result

    def of(self, name: str) -> tuple[RowTime, ...]:
        """Return the rows of a name."""
        return tuple(row for row in self.rows if row.name == name)

    def total(self, name: str) -> Array:
        """Return a quantity of :class:`RowTime` summed over rows."""
        total: Array = sum((getattr(row, name) for row in self.rows), np.zeros_like(self.time))
        return total


def wide_type(system: System) -> str:
    """Return the type of activations: bfloat16, else another 16-bit type of the machine, else any type that it has."""
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
    host: StepHost = PLAIN_HOST,
) -> PassTimes:
    """Return the times of the rows of passes.

    A row takes ``t0 + max(flops / rate, bytes / rate)``: a floor plus the roofline of its kernel. Floors come from
    ``ext.serving`` unless the law of a kernel states a start. Source: fits to kernels in CUDA graphs
    (:class:`~calculon.hardware.serving.Serving`); Williams et al., *Roofline*, CACM 52(4), 2009.

    Args:
        model, system: The model, and the machine.
        rows: Result of :func:`~calculon.serving.passes.pass_rows.pass_rows`.
        sizes: Sizes of the passes.
        graphs (shape (passes,)): Mask of passes launched as graphs. For the others the host launches every kernel, and
        they take at least that long, each stage its share.
        overlap: Work that overlaps the exchange with experts; the exposed part of the exchange counts.
        step: Whether each pass is an engine step, which the host schedules; drafts are part of another step.
        host: Host time of a step.
    """
    timed = [_row_time(model, system, row, sizes.parts(row.parts).of_group) for row in rows]
    launching = _launching(system, rows, timed)
    if overlap != "none":
        timed = _exposed(rows, timed, overlap)
    stages = {
        stage: sum((row.time for row in timed if row.stage == stage), np.zeros(sizes.count))
        for stage in ("block", "first", "last")
    }
    time = stages["block"] + stages["first"] + stages["last"]
    some = sizes.tokens > 0
    # without graphs, kernels run while the host launches the next ones: the longer of both counts
    waits = np.where(some & ~np.asarray(graphs), np.maximum(0.0, launching - time), 0.0)
    scheduler = np.where(some, host.exposed(system, sizes, time + waits) * step, 0.0)
    exposed = _host(waits + scheduler)
    if np.any(exposed.time):
        timed.append(exposed)
    return PassTimes(
        rows=tuple(timed),
        time=time + exposed.time,
        blocks=stages["block"] + waits,
        first=stages["first"],
        last=stages["last"] + scheduler,
    )


def _launching(system: System, rows: Sequence[Row], timed: Sequence[RowTime]) -> Seconds:
    """Return the time in which the host launches the kernels of passes one by one; idle kernels are not launched."""
    both = zip(rows, timed, strict=True)
    kernels = sum(row.kernels * row.times * row.parts * (one.time > 0) for row, one in both)
    return kernels * system.ext.launch.eager + np.zeros_like(timed[0].time)


def _host(added: Seconds) -> RowTime:
    """Return the row of host time: the part of a step that nothing hides, and waits for launches."""
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


def _exposed(rows: Sequence[Row], timed: list[RowTime], overlap: str) -> list[RowTime]:
    """Return the times with exchanges reduced to the part that overlapping rows do not hide.

    With two parts of the batch, one is exchanged while the other computes, and the longer of both counts (DeepSeek-V3,
    arXiv 2412.19437, section 3.4.2); otherwise only shared experts overlap.
    """
    sent, overlapping = np.zeros_like(timed[0].time), np.zeros_like(timed[0].time)
    for row, one in zip(rows, timed, strict=True):
        if row.exchange is not None:
            sent = sent + one.time
        elif overlap == "shared_expert":
            layer = row.layer
            shared = layer is not None and layer.name.startswith(SHARED) and layer.kernel != "add"
            overlapping = overlapping + one.time * shared
        elif one.stage == "block":
            overlapping = overlapping + np.where(np.asarray(row.parts) > 1, one.time, 0.0)
    left = np.maximum(0.0, sent - overlapping) / np.where(sent > 0, sent, 1.0)
    return [
        replace(one, time=one.time * left) if one.name in (DISPATCH, COMBINE) else one
        for one in timed
    ]


def _row_time(model: Model, system: System, row: Row, sizes: PassSizes) -> RowTime:
    """Return the time of a row, multiplied by its number of occurrences."""
    if row.message is not None:
        parts = _reduction(system, row.message, sizes.tensor_par)
    elif row.exchange is not None:
        parts = _network_only(exchange_times(system, row.exchange)[row.name == COMBINE])
    elif row.keys is not None:
        parts = _decode_attention(model, system, row, sizes)
    elif row.split is not None:
        parts = _network_only(row.split.time(system))
    else:
        parts = _kernel(system, row, sizes.count)
    nothing, count = np.zeros(sizes.count), row.times

    def over_pass(value: Array | float) -> Array:
        return count * row.parts * (nothing + value)

    return RowTime(
        name=row.name,
        count=count,
        stage=row.stage,
        flops=over_pass(row.flops),
        moved=over_pass(row.moved),
        weights=over_pass(row.weights),
        cache=over_pass(row.cache),
        floor=over_pass(parts.floor),
        arithmetic=over_pass(parts.arithmetic),
        memory=over_pass(parts.memory),
        network=over_pass(parts.network),
        time=over_pass(parts.time),
    )


def _combined(
    system: System, floor: Seconds | float, arithmetic: Seconds, memory: Seconds
) -> Parts:
    """Return the time of a floor and the work after it; 0 without work."""
    work = system.combine(arithmetic, memory)
    floor = np.where(work > 0, floor, 0.0)
    return Parts(floor, arithmetic, memory, np.zeros_like(work), floor + work)


def _kernel(system: System, row: Row, count: int) -> Parts:
    """Return the time of a kernel known from training, by its law without the start, with a serving floor instead."""
    layer, serving = row.layer, system.ext.serving
    assert layer is not None
    wide = wide_type(system)
    types = Types(row.engine or wide, system.core_type(wide, "same"), wide)
    if row.engine:
        kernel = KERNELS["product"](system, types)
        grouped = serving.grouped if layer.kernel == "grouped_product" else None
        law = (grouped or {}).get(row.stored, kernel.rate)
        if isinstance(law, Gemm):
            return _tiles(system, law, kernel, row)
        return _by_law(system, kernel, row, count, serving.matrix_floor)
    floors = {"attention": serving.attention_floor, "routing": serving.routing_floor}
    floor = floors.get(layer.kernel, serving.vector_floor)
    kernel = KERNELS[layer.kernel](system, types)
    return _by_law(system, kernel, row, count, floor if row.kernels else 0.0)


def _tiles(system: System, law: Gemm, kernel: Kernel, row: Row) -> Parts:
    """Return the time of products by the law ``tiles``, whose operands may have different widths."""
    assert row.layer is not None
    assert row.layer.product is not None
    sizes = (np.asarray(size, float) for size in row.layer.product)
    batch, m, n, k = np.broadcast_arrays(*sizes)
    some = (m > 0) & (batch > 0)
    on = Processor(kernel.engine.peak, system.mem1.bandwidth, kernel.element_bytes)
    aligned = alignment([n, k], kernel.element_bytes)
    rows, many = np.where(some, m, 1.0), np.where(some, batch, 1.0)
    arithmetic, memory = law.parts(many, rows, k, n, aligned, on, moved=row.moved)
    arithmetic = np.where(some, arithmetic, 0.0)
    floor = law.start or system.ext.serving.matrix_floor
    if memory is None:
        return _combined(system, floor, arithmetic, _traffic_time(system, row.moved))
    # the cubic sum rounds off the knee of the roofline, where arithmetic and traffic compete
    time = np.where(some, floor + np.cbrt(arithmetic**3 + memory**3), 0.0)
    return Parts(np.where(some, floor, 0.0), arithmetic, memory, np.zeros_like(time), time)


def _by_law(system: System, kernel: Kernel, row: Row, count: int, floor: float) -> Parts:
    """Return the time of a layer by the law of its kernel (forward pass).

    The start of streaming kernels was measured for single launches in training; inside a graph the floor of serving
    replaces it. On an engine with a stepped efficiency curve, more work never takes less time: fewer rows run like more
    of them, of which some are padding.
    """
    layer = row.layer
    assert layer is not None
    flops, moved = np.zeros((3, 1, count)), np.zeros((3, 1, count))
    flops[0, 0], moved[0, 0] = row.flops, row.moved
    if kernel.rate is ENGINE_RATE:
        done = kernel.engine.efficiency.padded(flops[0, 0]) / kernel.engine.peak
        return _combined(system, floor, done, _traffic_time(system, moved[0, 0]))
    # laws contain the start of a launch outside of graphs; the floor of serving, or of fused attention, replaces it
    start = _start(kernel)
    once = layer._replace(launches=None, loop=1.0)
    arithmetic, law_memory = kernel.times(
        Shapes(flops, moved, [once], np.zeros(1, np.int64)), system.mem1
    )
    if isinstance(kernel.rate, Stream):
        assert law_memory is not None
        memory = law_memory[0, 0] - np.where(moved[0, 0] > 0, start, 0.0)
        done = arithmetic[0, 0]
    else:
        memory = _traffic_time(system, row.moved) if law_memory is None else law_memory[0, 0]
        done = arithmetic[0, 0] - np.where(flops[0, 0] > 0, start, 0.0)
    law_start = start if isinstance(kernel.rate, FusedAttention) else 0.0
    return _combined(system, (law_start or floor) if floor else 0.0, done, memory + np.zeros(count))


def _start(kernel: Kernel) -> float:
    """Return the start that the law of a kernel contains."""
    rate = kernel.rate
    if isinstance(rate, FusedAttention):
        kernel_law = rate.kernels[rate.default]
        return kernel_law.start * rate.slowness / kernel_law.sustained
    return rate.start if isinstance(rate, Stream) else 0.0


def _traffic_time(system: System, size: Bytes) -> Seconds:
    """Return the time of traffic in tier-1 memory, without the start of a kernel; more bytes never take less time."""
    stream = system.ext.traffic
    if stream is None:
        return system.mem1.efficiency.padded(np.asarray(size, float)) / system.mem1.bandwidth
    return np.asarray(size, float) / (system.mem1.bandwidth * stream.efficiency)


def _decode_attention(model: Model, system: System, row: Row, sizes: PassSizes) -> Parts:
    """Return the time of decode attention: reading the KV cache at the rate of its kernel, or longer arithmetic.

    Latents are read once for all heads, so arithmetic may dominate; it runs at the rate of attention with many keys.
    """
    serving, wide = system.ext.serving, wide_type(system)
    assert row.keys is not None
    keys, some = row.keys, (row.keys > 0) & (sizes.decoded > 0)
    heads = np.ones(sizes.count) if model.latent else heads_of_rank(model, sizes.tensor_par)
    all_keys = sizes.decoded * np.maximum(keys, 1.0)
    each = np.divide(row.cache, all_keys * heads, out=np.zeros(sizes.count), where=all_keys > 0)
    activations = np.where(some, row.moved - row.cache, 0.0)
    reading = serving.decode_attention.reading(
        sizes.decoded, keys, heads, each, activations, system.mem1.bandwidth
    )
    memory = np.where(some, reading, 0.0)
    engine = system.product_engine(system.core_type(wide, "same"))
    arithmetic = np.where(some, engine.long_time(row.flops), 0.0)
    work = np.maximum(arithmetic, memory)
    floor = np.where(some, serving.attention_floor, 0.0)
    return Parts(floor, arithmetic, memory, np.zeros_like(work), floor + work)


def _reduction(system: System, message: Bytes, ranks: Count) -> Parts:
    """Return the time of an all-reduce, by a kernel for small messages in the innermost network or by the library.

    Sources: :class:`~calculon.hardware.serving.SmallReduce`; the library as in training.
    """
    members = np.asarray(ranks, np.int64)
    several = (members > 1) & (message > 0)
    # a group of one needs no all-reduce; it is timed as a group of two and masked below
    small = system.small_reduce(message, ranks)
    group = Group.in_mesh(system, np.maximum(members, 2), np.ones_like(members))
    library = group_time(system, "all_reduce", np.maximum(message, 1.0), group, AUTO)
    return _network_only(np.where(several, np.minimum(small, library), 0.0))


def _network_only(time: Seconds) -> Parts:
    """Return the parts of a time that only uses the network."""
    nothing = np.zeros_like(time)
    return Parts(nothing, nothing, nothing, time, time)


def stage_time(times: PassTimes | PassSpans, blocks: int, stages: Count) -> Seconds:
    """Return the time of the slowest stage: the one with the most blocks, or the last with the LM head.

    If blocks do not divide evenly, the last stage is one of the stages with fewer blocks.
    """
    most = np.ceil(blocks / stages)
    each = times.blocks / blocks
    last = each * np.floor(blocks / stages) + times.last
    only = stages == 1
    return np.where(only, times.time, np.maximum(each * most + times.first, last))


def stage_transfer(model: Model, system: System, tokens: Count, tensor_par: Count) -> Seconds:
    """Return the time in which a stage sends its rows to the next."""
    size = tokens * model.hidden * ACTIVATION_BYTES
    ranks = np.full(np.shape(tensor_par), 2)
    group = Group.in_mesh(system, ranks, np.asarray(tensor_par, np.int64))
    return group_time(system, "p2p", size, group, AUTO)
