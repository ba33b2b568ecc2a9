"""The measured parts of a system: the fit, the times and the place in a document of each."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calculon.base.units import GIGA, MEGA, Array
from calculon.calibrate.measured_rows import Row
from calculon.calibrate.networks import LEAST_SIZES, fit_network, write_network
from calculon.calibrate.readers import too_few
from calculon.calibrate.shapes import PART, fit_shapes, product_times
from calculon.calibrate.steps import MOST_STEPS, fit_steps
from calculon.declarations.decode import SpecWarning, decode
from calculon.hardware.processor import Engine, Memory
from calculon.hardware.system import System

Fit = tuple[Mapping[str, Any], Array, list[str]]
"""Fields of a part in the units of the file, the rows left out, and notes on both."""


def quietly_decoded(document: Mapping[str, Any], file: str, name: str) -> System:
    """Return the system of a document without the warnings, which its base has given already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        return decode(System, document, file, name=name)


def fit_part(
    system: System,
    part: str,
    rows: Sequence[Row],
    *,
    ramp: bool = True,
    multiprocessors: int | None = None,
) -> Fit:
    """Fit a part to rows.

    Args:
        system: Everything that is not fitted.
        part: Its name, such as ``networks[0]``.
        rows: Measurements of this part.
        ramp: Whether networks may get a ramp.
        multiprocessors: Number of them in the device, for the rate of products by shape.

    Raises:
        SpecError: For rows that are too few.
    """
    if part.startswith(PART):
        return fit_shapes(system, part, rows, multiprocessors)
    sizes = np.array([row.size for row in rows])
    distinct = len(np.unique(sizes))
    if distinct < LEAST_SIZES:
        raise too_few(rows[0].file, part, distinct, LEAST_SIZES, "different sizes to fit")
    peak = peak_of(system, part)
    if part.startswith("networks"):
        return fit_network(rows, peak, ramp=ramp)
    seconds = np.array([row.seconds for row in rows])
    scale, key = (MEGA, "MB_efficiency") if part.startswith("mem") else (GIGA, "gflops_efficiency")
    steps = fit_steps(sizes / scale, sizes / seconds / peak, min(MOST_STEPS, (distinct + 1) // 2))
    return {key: steps.pairs}, np.zeros(len(rows), dtype=bool), []


def peak_of(system: System, part: str) -> float:
    """Return the peak rate of a part in bytes or FLOP per second."""
    if part.startswith("networks"):
        return system.networks[_number(part)].bandwidth
    if part.startswith(PART):
        return system.product_engine(part.removeprefix(PART)).peak
    found = _resource(system, part)
    return found.bandwidth if isinstance(found, Memory) else found.peak


def _resource(system: System, part: str) -> Memory | Engine:
    if part in ("mem1", "mem2"):
        return system.mem1 if part == "mem1" else system.mem2
    return system.matrix[part.removeprefix("matrix.")]


def time_by_size(system: System, part: str) -> Callable[[Array], Array] | None:
    """Return the times of a part by size; None where they depend on more."""
    if part.startswith(PART):
        return None
    if not part.startswith("networks"):
        return _resource(system, part).time
    number, fabric = _number(part), system.fabric
    return lambda sizes: fabric.latency[number] + fabric.moving(np.array(number), sizes)


def times_of(system: System, part: str) -> Callable[[Sequence[Row]], Array]:
    """Return the times of rows on a part of a system."""
    time = time_by_size(system, part)
    if time is None:
        return lambda rows: product_times(system, part, rows)
    return lambda rows: time(np.array([row.size for row in rows]))


def write_part(document: dict[str, Any], part: str, values: Mapping[str, Any]) -> None:
    """Put the fitted values of a part into a document."""
    if part.startswith("networks"):
        write_network(document, _number(part), values)
        return
    stated = document.get("ext", {}).get("kernels", {}).get("product", {})
    if part.startswith(PART) and part.removeprefix(PART) in stated:
        known = stated[part.removeprefix(PART)]
        law = known if known.get("law") == "tiles" else {"law": "tiles"}
        stated[part.removeprefix(PART)] = {**law, **values}
        return
    target = document
    for key in part.split("."):
        target = target.setdefault(key, {})
    target.update(values)


def _number(part: str) -> int:
    return int(part.removeprefix("networks[").removesuffix("]"))


def unit_of(part: str) -> str:
    """Return the unit of the sizes of a part."""
    return "FLOP" if part.startswith(("matrix", PART)) else "B"
