"""Measured parts of a system: how to fit, time and write each part, and the provenance of the fit."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from calculon.base.units import GIGA, MEGA, Array
from calculon.calibrate.fit_result import Fitted, Measurements
from calculon.calibrate.networks import MIN_SIZES, fit_network, write_network
from calculon.calibrate.readers import Row, too_few
from calculon.calibrate.shapes import PART, fit_shapes, product_times
from calculon.calibrate.steps import MAX_STEPS, fit_steps
from calculon.declarations.decode import SpecWarning, decode
from calculon.hardware.processor import Engine, Memory
from calculon.hardware.residuals import TRAINING
from calculon.hardware.system import System


def provenance(
    fitted: Fitted,
    values: Mapping[str, Any],
    measurements: Sequence[Measurements],
    above: float,
    spread: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the provenance of a fitted part, for the object ``calibration`` of a system measured."""
    used = [
        measured
        for measured in measurements
        if any(row.part == fitted.part for row in measured.rows)
    ]
    about: dict[str, str] = {}
    for measured in used:
        for key, text in measured.about.items():
            about[key] = "; ".join(dict.fromkeys([*filter(None, [about.get(key)]), text]))
    residuals = [
        {key: value for key, value in record.items() if key != "part"}
        for record in fitted.residuals()
    ]
    limit = {"messages_above_bytes": above} if above and fitted.part.startswith("networks") else {}
    return {
        "part": fitted.part,
        "parameters": dict(values),
        "files": [measured.file for measured in used],
        **about,
        "rows": len(fitted.rows),
        "held_out_rows": int(fitted.held.sum()),
        "residuals_percent": residuals,
        "spreads": spread,
        **limit,
    }


def merged_fits(
    base: Mapping[str, Any], name: str, date: str, hold_out: float, fits: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the object ``calibration`` with the new fits and the base's fits of other parts, and notes.

    An earlier fit to training steps is dropped if anything else is fitted: its residuals belong to a different system.
    """
    dated = [{"date": date, "hold_out": hold_out, **fit} for fit in fits]
    new = {fit["part"] for fit in fits}
    notes = []
    before = base.get("calibration")
    record: dict[str, Any] = {
        "base": name,
        "note": "the parameters below supersede the statements about them in 'about'",
    }
    known = before.get("fits") if isinstance(before, Mapping) else None
    if isinstance(known, list) and all(isinstance(fit, Mapping) for fit in known):
        record["base"] = before.get("base", name) if isinstance(before, Mapping) else name
        if TRAINING not in new and any(fit.get("part") == TRAINING for fit in known):
            new.add(TRAINING)
            notes.append(
                f"{TRAINING}: the record of the base is dropped, because its residuals belong to a different system;"
                " its factors stay in the efficiencies that were not fitted now"
            )
        dated = [fit for fit in known if fit.get("part") not in new] + dated
    elif before is not None:
        record["earlier"] = before
    return record | {"date": date, "fits": dated}, notes


Fit = tuple[Mapping[str, Any], Array, list[str]]
"""Fields of a part in the units of the file, a mask of the rows left out, and notes."""


def quietly_decoded(document: Mapping[str, Any], file: str, name: str) -> System:
    """Decode a system document without repeating the warnings that its base has already caused."""
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
        system: System that provides everything that is not fitted.
        part: Name of the part, such as ``networks[0]``.
        rows: Measurements of this part.
        ramp: True if networks may get a ramp.
        multiprocessors: Multiprocessors of the device, for GEMM rates by shape.

    Raises:
        SpecError: For too few rows.
    """
    if part.startswith(PART):
        return fit_shapes(system, part, rows, multiprocessors)
    sizes = np.array([row.size for row in rows])
    distinct = len(np.unique(sizes))
    if distinct < MIN_SIZES:
        raise too_few(rows[0].file, part, distinct, MIN_SIZES, "different sizes to fit")
    peak = peak_of(system, part)
    if part.startswith("networks"):
        return fit_network(rows, peak, ramp=ramp)
    seconds = np.array([row.seconds for row in rows])
    scale, key = (MEGA, "MB_efficiency") if part.startswith("mem") else (GIGA, "gflops_efficiency")
    # Each step of the curve should rest on at least two distinct sizes.
    steps = fit_steps(sizes / scale, sizes / seconds / peak, min(MAX_STEPS, (distinct + 1) // 2))
    return {key: steps.pairs}, np.zeros(len(rows), dtype=bool), []


def peak_of(system: System, part: str) -> float:
    """Return the peak rate of a part in bytes/s or FLOP/s."""
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
    """Return a function from sizes to times on a part; None if the time depends on more than the size."""
    if part.startswith(PART):
        return None
    if not part.startswith("networks"):
        return _resource(system, part).time
    number, fabric = _number(part), system.fabric
    return lambda sizes: fabric.latency[number] + fabric.moving(np.array(number), sizes)


def times_of(system: System, part: str) -> Callable[[Sequence[Row]], Array]:
    """Return a function from rows to times on a part of a system."""
    time = time_by_size(system, part)
    if time is None:
        return lambda rows: product_times(system, part, rows)
    return lambda rows: time(np.array([row.size for row in rows]))


def write_part(document: dict[str, Any], part: str, values: Mapping[str, Any]) -> None:
    """Write the fitted values of a part into a document."""
    if part.startswith("networks"):
        write_network(document, _number(part), values)
        return
    # A system states GEMM rates either in ``ext.kernels.product`` or in ``ext.gemm``: update the form that it uses.
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
