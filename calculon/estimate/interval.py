"""Prediction interval of the iteration time from the residuals of a calibrated system.

Each calibrated part alone is made as slow and as fast as its residuals allow; the resulting changes of the iteration
time are independent and add in quadrature, separately for slower and faster. Errors within a part are taken as fully
correlated: all its small operations err together, and so do all its large ones.
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

# Residuals of the kernels of a processor, and their effect on the time of a step.
#
# They are used for processors without validated steps. Errors within a kind of kernel are taken as fully correlated,
# and kinds as independent of each other (JCGM 100:2008, section 5.1.2), as in the interval below.

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
    """Residuals by kind of kernel: logarithms of the largest speedup and slowdown, each for nine of ten kernels."""

    statistics: ClassVar = (_OPTIMIZER, *_EXPOSED, "total_time")
    down: Mapping[str, float]
    up: Mapping[str, float]

    def of(self, stats: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return the downward and upward shifts of the logarithm of step times.

        Collectives account for the exposed times of a step, memory-bound kernels for the optimizer, products for the
        rest.
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
    """Return the residuals of kernels of a system: of its calibration, or of kernels held out from a fit of its file.

    Args:
        system: The system.
        datatype: Type of matrix products.

    Returns:
        None if neither is known.
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
    """Return the assumed residuals of kernels for a system whose kernels were not measured.

    They are the largest residuals of any measured system. For products, half of the range of the measured fractions of
    the peak is added in quadrature, because the fraction of the system itself is an assumption.
    """
    stated = [_stated(name) for name in MEASURED]
    largest = {
        kind: max(math.log1p(one[name]["p90"] / 100) for one in stated if name in one)
        for kind, name in _NAMES.items()
    }
    paths = [catalog.names("system")[name] for name in MEASURED]
    raw: list[Any] = [
        catalog.resolved_document("system", read_document(str(path)), str(path)) for path in paths
    ]
    shares = [one["ext"]["kernels"]["product"]["bfloat16"]["max_efficiency"] for one in raw]
    half_range = math.log(max(shares) / min(shares)) / 2
    sides = largest | {PRODUCTS: math.hypot(largest[PRODUCTS], half_range)}
    return Sides(sides, sides)


MEASURED = ("a100_80g_sxm", "b200_sxm", "h100_80g_sxm", "h200_141g_sxm", "l40s")
"""Catalog systems with measured kernels, one for each processor."""

_NAMES = {
    PRODUCTS: "16-bit products, m, n, k from 1,024",
    MEMORY: "memory-bound, all",
    COLLECTIVES: "collectives, all",
}
"""Errors of held-out kernels in ``about.kernels`` by kind of kernel; other types of products have their own width."""


def _kind_of(part: str, datatype: str) -> str:
    """Return the kind of kernel of a calibrated part; empty for other parts, and for whole iterations."""
    if part == TRAINING:
        return ""
    if part.startswith("networks["):
        return COLLECTIVES
    if part == "mem1":
        return MEMORY
    products = ("matrix", "ext.gemm", "ext.kernels.product")
    return PRODUCTS if part in {f"{one}.{datatype}" for one in products} else ""


def _stated(name: str) -> Mapping[str, Any]:
    """Return the errors of held-out kernels in ``about.kernels`` of a catalog system."""
    path = catalog.names("system").get(name)
    raw = catalog.resolved_document("system", read_document(str(path)), str(path)) if path else {}
    about = raw.get("about") if isinstance(raw, Mapping) else None
    kernels = about.get("kernels") if isinstance(about, Mapping) else None
    return kernels if isinstance(kernels, Mapping) else {}


MATTERS = 1e-4
"""Relative change of the iteration time below which a part is ignored."""

NAMED = 0.01
"""Sensitivity of the iteration time to a part above which a part without residuals is reported."""

_TRIED = 1.1
"""Slowdown of a part that measures its sensitivity."""

METHOD = "each part slowed down and sped up by its residuals; time changes add in quadrature"
METHOD_OF_TRAINING = "residuals of whole iterations"


@dataclass(frozen=True, slots=True)
class Influence:
    """Iteration time in seconds if some operations of a part are as fast, and as slow, as its residuals allow."""

    part: str
    operations: str
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Prediction interval of the measured iteration time.

    Attributes:
        level: Probability of the interval: the smallest level of its parts.
        low, high: Ends in seconds.
        parts: Influence of each part with residuals, largest first; parts without influence are left out.
        unknown: Parts that affect the time but have no residuals: the interval assumes that they are exact.
        method: Method in one line.
    """

    level: float
    low: float
    high: float
    parts: list[Influence]
    unknown: list[str]
    method: str

    def to_dict(self) -> dict[str, Any]:
        """Return the interval as plain data."""
        return asdict(self)


def interval(
    model: Model, system: System, execution: Execution, edition: Edition
) -> Interval | None:
    """Return the prediction interval of the iteration time of a valid execution; None for a system without residuals.

    Residuals of whole iterations take precedence over residuals of parts, in their edition.

    Source: quadrature of independent contributions: JCGM 100:2008 (GUM), section 5.1.2, here with the ends of each
    interval instead of standard deviations, because times are not linear in their parts.
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
    """Combine independent parts in quadrature; a part whose times are all slower does not make the total faster."""
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
    """Yield the names of the parts of a system that may affect an execution."""
    yield from (f"matrix.{execution.matmul_type}", f"vector.{execution.datatype}", "mem1", "mem2")
    yield from (f"networks[{number}]" for number in range(len(system.networks)))


def _of_products(part: str) -> tuple[str, ...]:
    """Return the names under which matrix products of a type may have separate residuals."""
    kind, _, datatype = part.partition(".")
    return (f"ext.gemm.{datatype}", f"ext.kernels.product.{datatype}") if kind == "matrix" else ()


def _all_of(part: str) -> Spread:
    """Return a spread of all operations of a part."""
    return Spread(part=part, low=1.0, high=1.0, level=0.5)
