"""The interval of the iteration time that follows from the residuals of a calibrated system.

Each part that was calibrated is made as slow and as fast as its residuals say, it alone; the changes of the iteration
time are independent of each other and add in quadrature, slower and faster ones apart. Errors inside one part are taken
as fully correlated: all its small operations err together, and all its large ones.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from typing import Any, ClassVar

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import catalog
from calculon.declarations.execution import Execution
from calculon.declarations.files import read_document
from calculon.declarations.model import Model
from calculon.declarations.named_values import ENGINE_BYTES
from calculon.declarations.origin import plain_name
from calculon.editions.edition import Edition
from calculon.estimate.evaluate import evaluate_one
from calculon.hardware.figures import slowed
from calculon.hardware.residuals import TRAINING, Spread
from calculon.hardware.system import System
from calculon.plan.plan import Plan

# Residuals of the kernels of a processor, and how far they move the time of a step.
#
# They stand for a processor on which no whole step was validated. Errors inside a kind of kernel are taken as fully
# correlated, kinds as independent of each other (JCGM 100:2008, section 5.1.2), as in
# :mod:`calculon.estimate.interval`.

PRODUCTS, MEMORY, COLLECTIVES = "products", "memory-bound kernels", "collectives"

_OPTIMIZER = "optim_step_time"
_EXPOSED = (
    "tp_comm_exposed_time",
    "pp_comm_exposed_time",
    "dp_comm_exposed_time",
    "recomm_exposed_time",
)


@dataclass(frozen=True, slots=True)
class Sides:
    """Residuals by kind of kernel: logarithms of how much faster, and slower, nine of ten are at most."""

    statistics: ClassVar = (_OPTIMIZER, *_EXPOSED, "total_time")
    down: Mapping[str, float]
    up: Mapping[str, float]

    def of(self, stats: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return how far the logarithm of the time of steps moves down and up.

        Collectives have the exposed times of a step, memory-bound kernels that of the optimizer, products the rest.
        """
        exposed = sum(np.asarray(stats[name], float) for name in _EXPOSED) / stats["total_time"]
        optimizer = np.asarray(stats[_OPTIMIZER], float) / stats["total_time"]
        shares = {PRODUCTS: 1 - exposed - optimizer, MEMORY: optimizer, COLLECTIVES: exposed}
        down, up = (
            np.sqrt(sum((side.get(name, 0.0) * share) ** 2 for name, share in shares.items()))
            for side in (self.down, self.up)
        )
        return down, up

    def __str__(self) -> str:
        return ", ".join(f"{name} {100 * math.expm1(up):.0f} %" for name, up in self.up.items())


def kernel_sides(system: System, datatype: str) -> Sides | None:
    """Return the residuals of kernels of a system: of its calibration, or held out when its file was fitted.

    Args:
        system: The system.
        datatype: The type of its products.

    Returns:
        None where neither is known.
    """
    found: dict[str, list[Spread]] = {}
    for one in system.calibration.spreads:
        if name := _kind_of(one.part, datatype):
            found.setdefault(name, []).append(one)
    if found:
        return Sides(
            {
                name: max(0.0, -math.log(min(one.low for one in some)))
                for name, some in found.items()
            },
            {
                name: max(0.0, math.log(max(one.high for one in some)))
                for name, some in found.items()
            },
        )
    stated = _stated(plain_name(system.name))
    names = _NAMES | {
        PRODUCTS: _NAMES[PRODUCTS].replace("16", str(int(8 * ENGINE_BYTES[datatype])))
    }
    sides = {
        kind: math.log1p(stated[name]["p90"] / 100)
        for kind, name in names.items()
        if name in stated
    }
    return Sides(sides, sides) if PRODUCTS in sides else None


@cache
def assumed_sides() -> Sides:
    """Return the residuals of kernels of a system whose kernels were not measured.

    They are the largest of any measured system, in products together with half of the range of the shares of the peak
    that these reach: the share of the system itself is an assumption.
    """
    stated = [_stated(name) for name in MEASURED]
    largest = {
        kind: max(math.log1p(one[name]["p90"] / 100) for one in stated if name in one)
        for kind, name in _NAMES.items()
    }
    paths = [catalog.names("system")[name] for name in MEASURED]
    raw: list[Any] = [
        catalog.whole("system", read_document(str(path)), str(path)) for path in paths
    ]
    shares = [one["ext"]["kernels"]["product"]["bfloat16"]["max_efficiency"] for one in raw]
    half_range = math.log(max(shares) / min(shares)) / 2
    sides = largest | {PRODUCTS: math.hypot(largest[PRODUCTS], half_range)}
    return Sides(sides, sides)


MEASURED = ("a100_80g_sxm", "b200_sxm", "h100_80g_sxm", "h200_141g_sxm", "l40s")
"""Systems of the catalog whose kernels were measured, one for each processor."""

_NAMES = {
    PRODUCTS: "16-bit products, m, n, k from 1,024",
    MEMORY: "memory-bound, all",
    COLLECTIVES: "collectives, all",
}
"""Errors of held-out kernels in ``about.kernels`` by kind of kernel; products of other types have their own width."""


def _kind_of(part: str, datatype: str) -> str:
    """Return the kind of kernel that a part of a calibration is about; empty for none, and for whole iterations."""
    if part == TRAINING:
        return ""
    if part.startswith("networks["):
        return COLLECTIVES
    if part == "mem1":
        return MEMORY
    products = ("matrix", "ext.gemm", "ext.kernels.product")
    return PRODUCTS if part in {f"{one}.{datatype}" for one in products} else ""


def _stated(name: str) -> Mapping[str, Any]:
    """Return the errors of held-out kernels that a system of the catalog states in ``about.kernels``."""
    path = catalog.names("system").get(name)
    raw = catalog.whole("system", read_document(str(path)), str(path)) if path else {}
    about = raw.get("about") if isinstance(raw, Mapping) else None
    kernels = about.get("kernels") if isinstance(about, Mapping) else None
    return kernels if isinstance(kernels, Mapping) else {}


MATTERS = 1e-4
"""Relative change of the iteration time below which the residuals of a part do not count."""

NAMED = 0.01
"""Change of the iteration time over change of a part above which one without residuals is named."""

_TRIED = 1.1

METHOD = "each part alone as slow and as fast as its residuals say; changes of the time in quadrature, by side"
METHOD_OF_TRAINING = "residuals of whole iterations"


@dataclass(frozen=True, slots=True)
class Influence:
    """The iteration time in seconds when some operations of a part are as fast, and as slow, as its residuals say."""

    part: str
    operations: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the measured time of an iteration is expected.

    Attributes:
        level: With which probability: the least level of the parts that count.
        low, high: Its bounds in seconds.
        parts: The influence of each part with residuals alone, most first; those without influence are left out.
        unknown: Parts that the time depends on and that have no residuals: the interval takes them as exact.
        method: How it was found, in one line.
    """

    level: float
    low: float
    high: float
    parts: list[Influence]
    unknown: list[str]
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def interval(
    model: Model, system: System, execution: Execution, edition: Edition
) -> Interval | None:
    """Return the interval of the iteration time of a valid execution; nothing for a system without residuals.

    Residuals of whole iterations take precedence over those of parts, in the edition that they are of.

    Source: quadrature of independent contributions: JCGM 100:2008 (GUM), section 5.1.2, here with the bounds of each
    interval instead of standard deviations, as times are not linear in their parts.
    """
    spreads = [s for s in system.calibration.spreads if s.edition in ("", edition.name)]
    if not spreads:
        return None
    machine = edition.machine(system)

    def time(changed: System) -> float:
        batch = evaluate_one(model, changed, Plan.of(execution), edition)
        return float(batch.times.total_time[0])

    total = time(machine)
    whole = [one for one in spreads if one.part == TRAINING]
    if whole:
        parts = [
            Influence(TRAINING, one.operations, one.low * total, one.high * total) for one in whole
        ]
        level = min(one.level for one in whole)
        return _joined(total, level, parts, [], METHOD_OF_TRAINING)
    counted = []
    for one in spreads:
        low, high = (time(slowed(machine, one, factor)) for factor in (one.low, one.high))
        if max(abs(low / total - 1), abs(high / total - 1)) > MATTERS:
            counted.append((one, Influence(one.part, one.operations, low, high)))
    if not counted:
        return None
    known = {one.part for one in spreads}
    unknown = [
        part
        for part in _parts(machine, execution)
        if not {part, *_of_products(part)} & known
        and time(slowed(machine, _all_of(part), _TRIED)) > (1 + NAMED * (_TRIED - 1)) * total
    ]
    level = min(one.level for one, _ in counted)
    return _joined(total, level, [part for _, part in counted], unknown, METHOD)


def _joined(
    total: float, level: float, parts: Sequence[Influence], unknown: list[str], method: str
) -> Interval:
    """Join the contributions of independent parts; one whose times are all slower does not make others faster."""
    down = math.hypot(*(max(0.0, total - one.low) for one in parts))
    up = math.hypot(*(max(0.0, one.high - total) for one in parts))
    return Interval(
        level=level,
        low=max(0.0, total - down),
        high=total + up,
        parts=sorted(parts, key=lambda one: one.low - one.high),
        unknown=unknown,
        method=method,
    )


def _parts(system: System, execution: Execution) -> Iterator[str]:
    """Name the parts of a system that an execution can depend on."""
    yield from (f"matrix.{execution.matmul_type}", f"vector.{execution.datatype}", "mem1", "mem2")
    yield from (f"networks[{number}]" for number in range(len(system.networks)))


def _of_products(part: str) -> tuple[str, ...]:
    """Return the names under which products of the type of a matrix engine have residuals of their own."""
    kind, _, datatype = part.partition(".")
    return (f"ext.gemm.{datatype}", f"ext.kernels.product.{datatype}") if kind == "matrix" else ()


def _all_of(part: str) -> Spread:
    """Return a spread of all operations of a part."""
    return Spread(part=part, low=1.0, high=1.0, level=0.5)
