"""A system with one part slower or faster than in its file."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from calculon.declarations.fields import spec_fields
from calculon.hardware.extension import Link
from calculon.hardware.kernels.kernel import ENGINES, Rate
from calculon.hardware.kernels.measured_table import MeasuredTable
from calculon.hardware.kernels.stream import Stream
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.residuals import Spread
from calculon.hardware.system import System


def slowed(system: System, spread: Spread, factor: float) -> System:
    """Return a system on which the operations that a spread is about take `factor` times as long.

    A spread of all sizes or of the large ones slows all of a network and the fused attention of a matrix engine; one
    of the small ones only the latencies of a network. A part that the system does not have changes nothing.
    Products with a rate of their own (``ext.gemm``, ``ext.kernels.product``) are slowed by the peak, by a spread of all
    or of the large ones; any other ``ext.kernels.KIND.TYPE`` by its rate; the law ``stream`` with ``mem1`` too.

    Args:
        system: The system; left as it is.
        spread: Part and sizes.
        factor: Slower above 1, faster below.
    """
    kind, _, datatype = spread.part.rpartition(".")
    kind = "ext.kernels.product" if kind == "ext.gemm" else kind
    if spread.part in ("mem1", "mem2"):
        return _slowed_memory(system, spread, factor)
    if kind in ("ext.kernels.product", "matrix") and system.rate("product", datatype) is not None:
        return _slowed_products(system, spread, kind, datatype, factor)
    if kind in ("matrix", "vector") and datatype in getattr(system, kind):
        return _slowed_engine(system, spread, kind, datatype, factor)
    stated = (kind.removeprefix("ext.kernels."), datatype)
    if kind.startswith("ext.kernels.") and stated in system.ext.rates:
        return _slowed_rates(system, [stated], factor, spread.start, spread.end)
    for number in range(len(system.networks)):
        if spread.part == f"networks[{number}]":
            return _slowed_network(system, spread, number, factor)
    return system


def _slowed_memory(system: System, spread: Spread, factor: float) -> System:
    """Slow a tier of memory, with the kernels whose rate is a share of its bandwidth."""
    memory, span = getattr(system, spread.part), (spread.start, spread.end)
    curve = memory.efficiency.scaled(1 / factor, *span)
    changed = replace(system, **{spread.part: replace(memory, efficiency=curve)})
    if spread.part == "mem2":
        return changed
    if (stream := changed.ext.traffic) is not None:
        ext = replace(changed.ext, traffic=stream.slowed(factor, *span))
        changed = replace(changed, ext=ext)
    rates = changed.ext.rates.items()
    streams = [part for part, rate in rates if isinstance(rate, Stream)]
    return _slowed_rates(changed, streams, factor, *span)


def _slowed_engine(
    system: System, spread: Spread, kind: str, datatype: str, factor: float
) -> System:
    engine = getattr(system, kind)[datatype]
    curve = engine.efficiency.scaled(1 / factor, spread.start, spread.end)
    engines = getattr(system, kind) | {datatype: replace(engine, efficiency=curve)}
    changed = replace(system, **{kind: engines})
    attention = ("attention", datatype)
    if kind == "vector" or spread.operations == "small" or attention not in system.ext.rates:
        return changed
    return _slowed_rates(changed, [attention], factor)


def _slowed_products(
    system: System, spread: Spread, kind: str, datatype: str, factor: float
) -> System:
    """Slow products that have a rate of their own, with everything else in shares of the peak of their engine."""
    if datatype not in system.matrix or (spread.operations == "small" and kind != "matrix"):
        return system  # memory and launches bind small ones
    engine = system.matrix[datatype]
    engines = system.matrix | {datatype: replace(engine, peak=engine.peak / factor)}
    absolute = [
        (one, name)
        for (one, name), rate in system.ext.rates.items()
        if name == datatype and ENGINES[one] != "vector" and not rate.follows_engine
    ]
    slower = _slowed_rates(replace(system, matrix=engines), absolute, factor)
    laws = {
        part: rate.slowed_beside_engine(factor)
        for part, rate in slower.ext.rates.items()
        if part[1] == datatype and isinstance(rate, Gemm)
    }
    return replace(slower, ext=slower.ext.with_rates({**slower.ext.rates, **laws}))


def _slowed_rates(
    system: System,
    parts: Sequence[tuple[str, str]],
    factor: float,
    start: float = 0.0,
    end: float = math.inf,
) -> System:
    """Slow rates that the system states, by kind of kernel and type."""
    if not parts:
        return system
    rates = {part: system.ext.rates[part].slowed(factor, start, end) for part in parts}
    return replace(system, ext=system.ext.with_rates({**system.ext.rates, **rates}))


def _slowed_network(system: System, spread: Spread, number: int, factor: float) -> System:
    networks, links = list(system.networks), list(system.ext.networks)
    one = networks[number]
    bandwidth = one.bandwidth if spread.operations == "small" else one.bandwidth / factor
    networks[number] = replace(one, bandwidth=bandwidth, latency=one.latency * factor)
    if number < len(links):
        link = links[number]
        names = [field.name for field in spec_fields(Link) if field.declaration.unit == "s"]
        times = {name: getattr(link, name) for name in names}
        if (
            link.kind is not None
        ):  # its constant, which cannot be slowed, becomes a latency of its own
            times["step_latency"] = link.step(one.latency)
        slower: dict[str, Any] = {
            name: time * factor for name, time in times.items() if time is not None
        }
        if link.operations:
            laws = link.operations.items()
            slower["operations"] = {name: law.slowed(factor) for name, law in laws}
        links[number] = replace(link, **slower)
    ext = replace(system.ext, networks=tuple(links))
    return replace(system, networks=tuple(networks), ext=ext)


def with_slower_lists(system: System, factor: float) -> System:
    """Return a system whose times in lists, which are no figures by themselves, are `factor` times as long.

    They are the ramps of collectives by group size, and tables of kernels in seconds.
    """
    links = tuple(_with_slower_ramps(link, factor) for link in system.ext.networks)
    rates = {
        part: rate.slowed(factor, 0.0, math.inf) if _in_seconds(rate) else rate
        for part, rate in system.ext.rates.items()
    }
    return replace(system, ext=replace(system.ext, networks=links).with_rates(rates))


def _in_seconds(rate: Rate) -> bool:
    return isinstance(rate, MeasuredTable) and rate.values == "seconds"


def _with_slower_ramps(link: Link, factor: float) -> Link:
    if not link.operations:
        return link
    laws = {}
    for name, law in link.operations.items():
        ramps = tuple(ramp * factor for ramp in law.rates.ramps)
        laws[name] = replace(law, rates=replace(law.rates, ramps=ramps))
    return replace(link, operations=laws)
