"""Calibrate a system: fit its parts to measurements, and write them with their provenance into its document."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.calibrate.fit_result import Calibration, Fitted, Measurements, copied
from calculon.calibrate.networks import MIN_SIZES
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
from calculon.calibrate.solve import cross_validated, held_out, large_size, spreads
from calculon.calibrate.training import Training, fit_training
from calculon.declarations.decode import decode
from calculon.hardware.system import System

FitPart = Callable[[System, str, Sequence[Row]], Fit]
"""Function from a system, the name of a part and its rows to the fit."""


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
    """Fit the measured parts of a system and leave every other part unchanged.

    Args:
        base: The document of the system; it is not changed.
        file: Path of the document, for error messages.
        measurements: Files of any kind; rows of one part are fitted together, whatever file they come from.
        hold_out: Share of the groups of rows that are predicted but not fitted.
        date: Date of the calibration, for the provenance.
        above: Collectives of messages of at most this many bytes are left out.
        ramp: True if networks may get a ramp, which edition ``sc23`` ignores.
        name: Name of the base system.
        training: Training steps, fitted last, on top of the parts that the other measurements determine.
        multiprocessors: Multiprocessors of the device, for GEMM rates by shape; taken from the system by default.

    Raises:
        SpecError: For impossible times, and for too few rows to determine the parameters.
    """
    old = decode(System, base, file, name=name)
    document = copied(base)
    used, notes = _used(measurements, above)
    fit = partial(fit_part, ramp=ramp, multiprocessors=multiprocessors)
    chosen = _fit_parts(old, document, used, hold_out, fit, notes)
    # Spreads need the complete new system: parts that are fitted later change the times of earlier ones.
    new = quietly_decoded(document, file, name)
    parts = [_fitted(new, part) for part in chosen]
    fits = [
        provenance(part, fitted.values, measurements, above, _spreads(new, document, part, fit))
        for part, fitted in zip(parts, chosen, strict=True)
    ]
    if training is not None:
        document, steps, record, more = fit_training(document, file, name, training, hold_out)
        parts, fits, notes = [*parts, steps], [*fits, record], [*notes, *more]
    document["calibration"], more = merged_fits(base, name, date, hold_out, fits)
    return Calibration(document, parts, [*notes, *more])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A fitted part: its rows, masks of the held-out rows and of rows left out of the fit, and the fitted values."""

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
    """Fit every measured part and write it into the document; matrix products by shape after memories."""
    chosen = []
    for part, group in groupby(sorted(rows, key=_order), key=lambda row: row.part):
        measured = list(group)
        check_units(measured, peak_of(old, part), unit_of(part))
        held = held_out(measured, hold_out)
        if hold_out > 0 and not held.any():
            notes.append(f"{part}: all rows are in one group, so none is held out")
        used = [row for row, out in zip(measured, held, strict=True) if not out]
        if held.any() and len(groups := {row.group for row in used}) == 1:
            without = f"only the group {groups.pop()} is fitted"
            notes.append(f"{part}: {without}, so its spread comes from held-out rows alone")
        left = np.zeros_like(held)
        # The parts ``ext`` sort last: rates by shape depend on the memory curves that were fitted before them.
        system = quietly_decoded(document, "", old.name) if part.startswith("ext") else old
        values, left[~held], more = fit(system, part, used)
        write_part(document, part, values)
        notes += more
        chosen.append(_Chosen(part, measured, held, left, values))
    return chosen


def _fitted(new: System, chosen: _Chosen) -> Fitted:
    """Return a fitted part with the times of its rows on the new system."""
    times = times_of(new, chosen.part)(chosen.rows)
    time = time_by_size(new, chosen.part)
    return Fitted(
        chosen.part, unit_of(chosen.part), chosen.rows, chosen.held, chosen.left, times, time
    )


def _used(measurements: Sequence[Measurements], above: float) -> tuple[list[Row], list[str]]:
    """Return the rows to fit or to predict, repeated measurements averaged, and notes on averaging and omissions."""
    rows, notes = merged([row for some in measurements for row in some.rows])
    small = [row for row in rows if 0 < row.message <= above]
    if small:
        notes.append(f"{len(small):,} rows of at most {above:,.0f} bytes are left out: --above")
        rows = [row for row in rows if not 0 < row.message <= above]
        if not rows:
            raise too_few(small[0].file, "bytes", 0, MIN_SIZES, f"rows above {above:,.0f} bytes")
    return rows, notes


def _order(row: Row) -> tuple[bool, str, float, str]:
    return row.part.startswith("ext"), row.part, row.size, row.name


def _spreads(
    new: System, document: Mapping[str, Any], part: Fitted, fit: FitPart
) -> list[Mapping[str, Any]]:
    """Return the spreads of measured over predicted times, with each row predicted by a fit without its group."""

    def times_after(rows: Sequence[Row]) -> Callable[[Sequence[Row]], Array]:
        trial = copied(document)
        write_part(trial, part.part, fit(new, part.part, rows)[0])
        return times_of(quietly_decoded(trial, "", new.name), part.part)

    predicted, groups = cross_validated(part.rows, part.held, times_after)
    return spreads(part.rows, predicted, groups, large_size(part.rows))
