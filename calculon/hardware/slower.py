"""A system of which one part is slower or faster than its file says."""

from dataclasses import replace

from calculon.hardware.extension import Link
from calculon.hardware.residuals import Spread
from calculon.hardware.system import System
from calculon.spec.fields import spec_fields


def slowed(system: System, spread: Spread, factor: float) -> System:
    """Return a system on which the operations that a spread is about take `factor` times as long.

    A spread of all sizes or of the large ones slows all of a network and the fused attention of a matrix engine; one
    of the small ones only the latencies of a network. A part that the system does not have changes nothing.
    Products with a rate by shape (``ext.gemm``) are slowed by the peak, by a spread of all or of the large ones.

    Parameters
    ----------
    system : System
        The system; left as it is.
    spread : Spread
        Part and sizes.
    factor : float
        Slower above 1, faster below.
    """
    kind, _, datatype = spread.part.rpartition(".")
    if spread.part in ("mem1", "mem2"):
        memory = getattr(system, spread.part)
        curve = memory.efficiency.scaled(1 / factor, spread.start, spread.end)
        return replace(system, **{spread.part: replace(memory, efficiency=curve)})
    if kind == "ext.gemm" and spread.operations == "small":
        return system  # memory and launches bind those
    by_shape = kind in ("ext.gemm", "matrix") and datatype in (system.ext.gemm or {})
    if kind in ("matrix", "vector") and datatype in getattr(system, kind) and not by_shape:
        return _slowed_engine(system, spread, kind, datatype, factor)
    if by_shape and datatype in system.matrix:
        engine = system.matrix[datatype]
        engines = system.matrix | {datatype: replace(engine, peak=engine.peak / factor)}
        return replace(system, matrix=engines)
    for number in range(len(system.networks)):
        if spread.part == f"networks[{number}]":
            return _slowed_network(system, spread, number, factor)
    return system


def _slowed_engine(
    system: System, spread: Spread, kind: str, datatype: str, factor: float
) -> System:
    engine = getattr(system, kind)[datatype]
    curve = engine.efficiency.scaled(1 / factor, spread.start, spread.end)
    engines = getattr(system, kind) | {datatype: replace(engine, efficiency=curve)}
    changed = replace(system, **{kind: engines})
    kernels = system.ext.attention or {}
    if kind == "vector" or spread.operations == "small" or datatype not in kernels:
        return changed
    kernel = kernels[datatype]
    kernel = replace(kernel, efficiency=kernel.efficiency.scaled(1 / factor))
    return replace(changed, ext=replace(system.ext, attention=kernels | {datatype: kernel}))


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
        slower = {name: time * factor for name, time in times.items() if time is not None}
        links[number] = replace(link, **slower)
    ext = replace(system.ext, networks=tuple(links))
    return replace(system, networks=tuple(networks), ext=ext)
