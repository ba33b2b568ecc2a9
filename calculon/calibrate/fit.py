"""Calibrate a system: fit its parts to measurements, and write them with their provenance into its document."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.fit_result import Calibration, Fitted, Measurements, copied
from calculon.calibrate.networks import LEAST_SIZES
from calculon.calibrate.parts import (
    Fit,
    fit_part,
    merged_fits,
    peak_of,
    provenance,
    quietly_decoded,
    time_by_size,
    times_of,
    unit_of,
    write_part,
)
from calculon.calibrate.readers import Row, check_units, merged, too_few
from calculon.calibrate.solve import held_out, large_size, spreads, unseen
from calculon.calibrate.training import Training, fit_training
from calculon.declarations.decode import decode
from calculon.hardware.system import System

FitPart = Callable[[System, str, Sequence[Row]], Fit]
"""From a system, a part and its rows: the fit."""


def calibrate(
    base: Mapping[str, Any],
    file: str,
    measurements: Sequence[Measurements],
    *,
    hold_out: float,
    date: str,
    above: float = 0,
    ramp: bool = True,
    name: str = "system",
    training: Training | None = None,
    multiprocessors: int | None = None,
) -> Calibration:
    """Fit the parts of a system that were measured, leaving everything else as it is.

    Args:
        base: The document of the system; it is not changed.
        file: Where it came from.
        measurements: Of any kinds; rows of one part are fitted together.
        hold_out: Share of the groups of rows that are predicted, not fitted.
        date: Date of the calibration.
        above: Collectives of messages of at most this many bytes are left out.
        ramp: Whether networks may get a ramp, which edition ``sc23`` ignores.
        name: Name of the base system.
        training: Steps, fitted last: to the system as the other measurements make it.
        multiprocessors: Number of them in the device, for rates of products by shape; by default that of the system.

    Raises:
        SpecError: For impossible times, and for rows too few to determine the parameters.
    """
    old = decode(System, base, file, name=name)
    document = copied(base)
    used, notes = _used(measurements, above)
    fit = partial(fit_part, ramp=ramp, multiprocessors=multiprocessors)
    chosen = _fit_parts(old, document, used, hold_out, fit, notes)
    new = quietly_decoded(document, file, name)
    parts = [_fitted(new, one) for one in chosen]
    fits = [
        provenance(one, which.values, measurements, above, _spreads(new, document, one, fit))
        for one, which in zip(parts, chosen, strict=True)
    ]
    if training is not None:
        document, whole, record, told = fit_training(document, file, name, training, hold_out)
        parts, fits, notes = [*parts, whole], [*fits, record], [*notes, *told]
    document["calibration"], told = merged_fits(base, name, date, hold_out, fits)
    return Calibration(document, parts, [*notes, *told])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Rows of a part, those held out, those left out of the fit, and the fitted values."""

    part: str
    rows: Sequence[Row]
    held: Array
    left: Array
    values: Mapping[str, Any]


def _fit_parts(
    old: System,
    document: dict[str, Any],
    rows: Sequence[Row],
    hold_out: float,
    fit: FitPart,
    notes: list[str],
) -> list[_Chosen]:
    """Fit every part that was measured, and write it into the document; products by shape after memories."""
    chosen = []
    for part, group in groupby(sorted(rows, key=_order), key=lambda row: row.part):
        some = list(group)
        check_units(some, peak_of(old, part), unit_of(part))
        held = held_out(some, hold_out)
        if hold_out > 0 and not held.any():
            notes.append(f"{part}: its rows are one group, so none is held out")
        used = [row for row, out in zip(some, held, strict=True) if not out]
        if held.any() and len(groups := {row.group for row in used}) == 1:
            without = f"without the group {groups.pop()} no rows are left to fit"
            notes.append(f"{part}: {without}: only rows held out tell its spread")
        left = np.zeros_like(held)
        system = quietly_decoded(document, "", old.name) if part.startswith("ext") else old
        values, left[~held], told = fit(system, part, used)
        write_part(document, part, values)
        notes += told
        chosen.append(_Chosen(part, some, held, left, values))
    return chosen


def _fitted(new: System, one: _Chosen) -> Fitted:
    """Return a part with its times on the new system."""
    times = times_of(new, one.part)(one.rows)
    time = time_by_size(new, one.part)
    return Fitted(one.part, unit_of(one.part), one.rows, one.held, one.left, times, time)


def _used(measurements: Sequence[Measurements], above: float) -> tuple[list[Row], list[str]]:
    """Return the rows to fit or to predict, each measurement once, and notes on averaging and omissions."""
    rows, notes = merged([row for some in measurements for row in some.rows])
    small = [row for row in rows if 0 < row.message <= above]
    if small:
        notes.append(f"{len(small):,} rows of at most {above:,.0f} bytes are left out: --above")
        rows = [row for row in rows if not 0 < row.message <= above]
        if not rows:
            raise too_few(small[0].file, "bytes", 0, LEAST_SIZES, f"rows above {above:,.0f} bytes")
    return rows, notes


def _order(row: Row) -> tuple[bool, str, float, str]:
    return row.part.startswith("ext"), row.part, row.size, row.name


def _spreads(
    new: System, document: Mapping[str, Any], one: Fitted, fit: FitPart
) -> list[Mapping[str, Any]]:
    """Return the ratios of measured times of a part to those of fits that did not see them."""

    def times_after(rows: Sequence[Row]) -> Callable[[Sequence[Row]], Array]:
        trial = copied(document)
        write_part(trial, one.part, fit(new, one.part, rows)[0])
        return times_of(quietly_decoded(trial, "", new.name), one.part)

    predicted, groups = unseen(one.rows, one.held, times_after)
    return spreads(one.rows, predicted, groups, large_size(one.rows))
