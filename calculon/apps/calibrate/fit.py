"""Fit parts of a system to rows, and write them into its document with where they come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from calculon.apps.calibrate.fit_result import Calibration, Fitted, Measurements, copied
from calculon.apps.calibrate.held_out import held_out
from calculon.apps.calibrate.measured_rows import Row, merged
from calculon.apps.calibrate.networks import LEAST_SIZES
from calculon.apps.calibrate.parts import (
    Options,
    fit_part,
    peak_of,
    quietly_decoded,
    time_by_size,
    times_of,
    unit_of,
    write_part,
)
from calculon.apps.calibrate.provenance import merged_fits, provenance
from calculon.apps.calibrate.readers import check_units, too_few
from calculon.apps.calibrate.spread import large_size, spreads, unseen
from calculon.apps.calibrate.training import Training, fit_training
from calculon.hardware.system import System
from calculon.spec.decode import decode
from calculon.units import Array


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
    """Fit what the measurements tell of a system, leaving everything else as it is.

    Parameters
    ----------
    base : mapping
        The document of the system; it is not changed.
    file : str
        Where it came from.
    measurements : sequence of Measurements
        Of any kinds; rows of one part are fitted together.
    hold_out : float
        Share of the groups of rows that are not fitted but predicted.
    date : str
        Of the calibration.
    above : float
        Collectives of messages of at most so many bytes are left out.
    ramp : bool
        Whether networks may get a ramp, which edition ``sc23`` ignores.
    name : str
        Name of the base system.
    training : Training, optional
        Steps, fitted last: to the system as the other measurements make it.
    multiprocessors : int, optional
        Of the device, for rates of products by shape; by default what the system says.

    Raises
    ------
    SpecError
        For times that cannot be, and for rows too few to determine what is fitted.
    """
    old = decode(System, base, file, name=name)
    document = copied(base)
    used, notes = _used(measurements, above)
    options = Options(ramp, multiprocessors)
    chosen = _fit_parts(old, document, used, hold_out, options, notes)
    new = quietly_decoded(document, file, name)
    parts = [_fitted(new, one) for one in chosen]
    spread = partial(_spreads, new, document, options=options)
    fits = [
        provenance(one, which.values, measurements, above, spread(one))
        for one, which in zip(parts, chosen, strict=True)
    ]
    if training is not None:
        document, whole, record, told = fit_training(document, file, name, training, hold_out)
        parts, fits, notes = [*parts, whole], [*fits, record], [*notes, *told]
    document["calibration"], told = merged_fits(base, name, date, hold_out, fits)
    return Calibration(document, parts, [*notes, *told])


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Rows of a part, which of them were held out or did not count, and what was found."""

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
    options: Options,
    notes: list[str],
) -> list[_Chosen]:
    """Fit every part that rows tell about, and write it into the document; products by shape after memories."""
    chosen = []
    for part, group in groupby(sorted(rows, key=_order), key=lambda row: row.part):
        some = list(group)
        check_units(some, peak_of(old, part), unit_of(part))
        held = held_out(some, hold_out)
        if hold_out > 0 and not held.any():
            notes.append(f"{part}: its rows are one group, so none is held out")
        used = [row for row, out in zip(some, held, strict=True) if not out]
        left = np.zeros_like(held)
        system = quietly_decoded(document, "", old.name) if part.startswith("ext") else old
        values, left[~held], told = fit_part(system, part, used, options)
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
    """Return the rows to fit or to predict, each measurement once, and notes about what was done to them."""
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
    new: System, document: Mapping[str, Any], one: Fitted, *, options: Options
) -> list[Mapping[str, Any]]:
    """Return how far measured times of a part are from those of fits that did not see them."""

    def fit(rows: Sequence[Row]) -> Callable[[Sequence[Row]], Array]:
        trial = copied(document)
        write_part(trial, one.part, fit_part(new, one.part, rows, options)[0])
        return times_of(quietly_decoded(trial, "", new.name), one.part)

    predicted, groups = unseen(one.rows, one.held, fit)
    return spreads(one.rows, predicted, groups, large_size(one.rows))
