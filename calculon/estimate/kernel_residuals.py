"""Residuals of the kernels of a processor, and how far they move the time of a step.

They stand for a processor on which no whole step was validated. Errors inside a kind of kernel are taken as fully
correlated, kinds as independent of each other (JCGM 100:2008, section 5.1.2), as in :mod:`calculon.estimate.interval`.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations import catalog
from calculon.declarations.files import read_document
from calculon.declarations.named_values import MATMUL_BYTES
from calculon.declarations.origin import plain_name
from calculon.hardware.residuals import TRAINING, Spread
from calculon.hardware.system import System

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
    bits = f"{8 * MATMUL_BYTES[datatype]}-bit products, m, n, k from 1,024"
    names = {PRODUCTS: bits, MEMORY: "memory-bound, all", COLLECTIVES: "collectives, all"}
    sides = {
        kind: math.log1p(stated[name]["p90"] / 100)
        for kind, name in names.items()
        if name in stated
    }
    return Sides(sides, sides) if PRODUCTS in sides else None


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
