"""Hardware sensitivity of serving: gain of a figure from a better part of the machine."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from calculon.base.frozen import dataclass
from calculon.hardware.kernels.kernel import Rate
from calculon.hardware.kernels.laws import Gemm
from calculon.hardware.serving import LatencyByRanks
from calculon.hardware.system import System

STEP = 1.1
"""Factor by which a part is improved to measure its gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareGain:
    """Gain from a better part of the machine.

    Attributes:
        part: One of :data:`PARTS`.
        elasticity: Percent by which the figure improves if the part improves by one percent.
    """

    part: str
    elasticity: float


def _memory_bandwidth(system: System, factor: float) -> System:
    return replace(system, mem1=replace(system.mem1, bandwidth=factor * system.mem1.bandwidth))


def _capacity(system: System, factor: float) -> System:
    return replace(system, mem1=replace(system.mem1, capacity=factor * system.mem1.capacity))


def _arithmetic(system: System, factor: float) -> System:
    engines = {name: replace(one, peak=factor * one.peak) for name, one in system.matrix.items()}
    further = system.ext.matrix and {
        name: replace(one, peak=factor * one.peak) for name, one in system.ext.matrix.items()
    }
    return replace(system, matrix=engines, ext=replace(system.ext, matrix=further))


def _network(system: System, factor: float) -> System:
    faster = tuple(replace(one, bandwidth=factor * one.bandwidth) for one in system.networks)
    return replace(system, networks=faster)


def _latency(system: System, factor: float) -> System:
    serving = system.ext.serving
    known = serving.small_reduce.latency
    latency = LatencyByRanks(known.ranks, tuple(one / factor for one in known.seconds))
    exchange = serving.expert_exchange
    shorter = replace(
        serving,
        small_reduce=replace(serving.small_reduce, latency=latency),
        expert_exchange=replace(exchange, latency=exchange.latency / factor),
    )
    return replace(system, ext=replace(system.ext, serving=shorter))


def _floors(system: System, factor: float) -> System:
    names = ("matrix_floor", "attention_floor", "vector_floor", "routing_floor")
    serving = system.ext.serving
    lower = {name: getattr(serving, name) / factor for name in names}
    rates: dict[tuple[str, str], Rate] = {
        key: replace(rate, start=rate.start / factor) if isinstance(rate, Gemm) else rate
        for key, rate in system.ext.rates.items()
    }
    ext = replace(system.ext.with_rates(rates), serving=replace(serving, **lower))
    return replace(system, ext=ext)


def _host(system: System, factor: float) -> System:
    serving = replace(system.ext.serving, step_host=system.ext.serving.step_host / factor)
    return replace(system, ext=replace(system.ext, serving=serving))


PARTS: Mapping[str, Callable[[System, float], System]] = {
    "bandwidth of memory": _memory_bandwidth,
    "capacity of memory": _capacity,
    "rate of arithmetic": _arithmetic,
    "bandwidth of the network": _network,
    "latency of small messages": _latency,
    "floors of kernels": _floors,
    "time of the host": _host,
}
"""Parts of a machine, each with a function that improves it by a factor: times and latencies become shorter."""


def hardware_gains(system: System, figure: Callable[[System], float]) -> tuple[HardwareGain, ...]:
    """Return the gains from better parts, largest first.

    Args:
        system: The machine.
        figure: Returns the figure on a machine; larger is better.
    """
    # a ratio of logarithms is the elasticity, which hardly depends on the size of the step
    now = figure(system)
    found = [
        HardwareGain(
            part=part, elasticity=math.log(figure(better(system, STEP)) / now) / math.log(STEP)
        )
        for part, better in PARTS.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.elasticity))
