"""Fit parts of a system to rows, and write them into its document with where they come from."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np

from calculon.calibrate.networks import LEAST_SIZES, fit_network, write_network
from calculon.calibrate.readers import check_units, too_few
from calculon.calibrate.residuals import held_out, tabulated
from calculon.calibrate.rows import Row, merged
from calculon.calibrate.spread import large_size, spreads, unseen
from calculon.calibrate.steps import MOST_STEPS, fit_steps
from calculon.hardware.engine import Engine
from calculon.hardware.memory import Memory
from calculon.hardware.system import System
from calculon.spec.decode import SpecWarning, decode
from calculon.units import GIGA, MEGA, Array


@dataclass(frozen=True, slots=True)
class Measurements:
    """The rows of one file, and what it says of device, software and source."""

    file: str
    rows: Sequence[Row]
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One part of the system: its rows, which of them were held out, and the times of the new file.

    Attributes
    ----------
    held, left : array of bool
        The rows that were held out, and those of the others that did not count.
    unit : str
        Of the sizes: ``B`` or ``FLOP``.
    time : callable
        The time of operations of some sizes on this part of the new system.
    """

    part: str
    unit: str
    rows: Sequence[Row]
    held: Array
    left: Array
    time: Callable[[Array], Array]

    @property
    def sizes(self) -> Array:
        """The sizes of the rows."""
        return np.array([row.size for row in self.rows])

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of fitted rows, of those held out, and of those left out."""
        return tabulated(self.part, self.rows, self.time(self.sizes), self.held, self.left)


@dataclass(frozen=True, slots=True)
class Calibration:
    """A new system file: its document, what was fitted, and what is to be said about it."""

    document: dict[str, Any]
    parts: Sequence[Fitted]
    notes: Sequence[str]

    def residuals(self) -> list[Mapping[str, Any]]:
        """Return the residuals of all parts."""
        return [record for part in self.parts for record in part.residuals()]


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

    Raises
    ------
    SpecError
        For times that cannot be, and for rows too few to determine what is fitted.
    """
    old = decode(System, base, file, name=name)
    document = _copied(base)
    rows, notes = _used(measurements, above)
    chosen: dict[str, tuple[list[Row], Array, Array]] = {}
    values: dict[str, Mapping[str, Any]] = {}
    for part, group in groupby(sorted(rows, key=_order), key=lambda row: row.part):
        some = list(group)
        check_units(some, _peak(old, part), _unit(part))
        held = held_out(some, hold_out)
        if hold_out > 0 and not held.any():
            notes.append(f"{part}: its rows are one group, so none is held out")
        used = [row for row, out in zip(some, held, strict=True) if not out]
        left = np.zeros_like(held)
        values[part], left[~held], told = _fit(old, part, used, ramp=ramp)
        _write(document, part, values[part])
        notes += told
        chosen[part] = some, held, left
    new = _quietly_decoded(document, file, name)
    parts = [Fitted(p, _unit(p), *which, _time(new, p)) for p, which in chosen.items()]
    spread = partial(_spreads, old, document, ramp=ramp)
    fits = [_provenance(one, values[one.part], measurements, above, spread(one)) for one in parts]
    document["calibration"] = _merged_fits(base, name, date, hold_out, fits)
    return Calibration(document, parts, notes)


def _copied(value: Any) -> Any:
    """Return a document with no object in two places, where YAML has anchors: one may change without the other."""
    if isinstance(value, Mapping):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def _quietly_decoded(document: Mapping[str, Any], file: str, name: str) -> System:
    """Return the system of a document whose base has been warned of already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SpecWarning)
        return decode(System, document, file, name=name)


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


def _order(row: Row) -> tuple[str, float, str]:
    return row.part, row.size, row.name


def _fit(
    system: System, part: str, rows: Sequence[Row], *, ramp: bool
) -> tuple[Mapping[str, Any], Array, list[str]]:
    """Return the fields of a part in the units of the file, which rows did not count, and notes about both."""
    sizes = np.array([row.size for row in rows])
    distinct = len(np.unique(sizes))
    if distinct < LEAST_SIZES:
        raise too_few(rows[0].file, part, distinct, LEAST_SIZES, "different sizes to fit")
    peak = _peak(system, part)
    if part.startswith("networks"):
        return fit_network(rows, peak, ramp=ramp)
    seconds = np.array([row.seconds for row in rows])
    scale, key = (MEGA, "MB_efficiency") if part.startswith("mem") else (GIGA, "gflops_efficiency")
    steps = fit_steps(sizes / scale, sizes / seconds / peak, min(MOST_STEPS, (distinct + 1) // 2))
    return {key: steps.pairs}, np.zeros(len(rows), dtype=bool), []


def _peak(system: System, part: str) -> float:
    """Return the peak rate of a part in bytes or FLOP per second."""
    if part.startswith("networks"):
        return system.networks[_number(part)].bandwidth
    found = _resource(system, part)
    return found.bandwidth if isinstance(found, Memory) else found.peak


def _resource(system: System, part: str) -> Memory | Engine:
    if part in ("mem1", "mem2"):
        return system.mem1 if part == "mem1" else system.mem2
    return system.matrix[part.removeprefix("matrix.")]


def _time(system: System, part: str) -> Callable[[Array], Array]:
    """Return the times of a part of a system by size."""
    if not part.startswith("networks"):
        return _resource(system, part).time
    number, fabric = _number(part), system.fabric
    return lambda sizes: fabric.latency[number] + fabric.moving(np.array(number), sizes)


def _write(document: dict[str, Any], part: str, values: Mapping[str, Any]) -> None:
    """Put the fitted values of a part into a document."""
    if part.startswith("networks"):
        write_network(document, _number(part), values)
        return
    target = document
    for key in part.split("."):
        target = target[key]
    target.update(values)


def _number(part: str) -> int:
    return int(part.removeprefix("networks[").removesuffix("]"))


def _unit(part: str) -> str:
    return "FLOP" if part.startswith("matrix") else "B"


def _provenance(
    one: Fitted,
    values: Mapping[str, Any],
    measurements: Sequence[Measurements],
    above: float,
    spread: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return what the file says of one fitted part."""
    used = [some for some in measurements if any(row.part == one.part for row in some.rows)]
    told: dict[str, str] = {}
    for some in used:
        for key, text in some.told.items():
            told[key] = "; ".join(dict.fromkeys([*filter(None, [told.get(key)]), text]))
    residuals = [
        {key: value for key, value in record.items() if key != "part"} for record in one.residuals()
    ]
    limit = {"messages_above_bytes": above} if above and one.part.startswith("networks") else {}
    return {
        "part": one.part,
        "parameters": dict(values),
        "files": [some.file for some in used],
        **told,
        "rows": len(one.rows),
        "held_out_rows": int(one.held.sum()),
        "residuals_percent": residuals,
        "spreads": spread,
        **limit,
    }


def _spreads(
    old: System, document: Mapping[str, Any], one: Fitted, *, ramp: bool
) -> list[Mapping[str, Any]]:
    """Return how far measured times of a part are from those of fits that did not see them."""

    def fit(rows: Sequence[Row]) -> Callable[[Array], Array]:
        trial = _copied(document)
        _write(trial, one.part, _fit(old, one.part, rows, ramp=ramp)[0])
        return _time(_quietly_decoded(trial, "", old.name), one.part)

    predicted, groups = unseen(one.rows, one.held, fit)
    return spreads(one.rows, predicted, groups, large_size(one.rows))


def _merged_fits(
    base: Mapping[str, Any], name: str, date: str, hold_out: float, fits: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the object ``calibration``: the new fits, and those of other parts that the base already had."""
    dated = [{"date": date, "hold_out": hold_out, **fit} for fit in fits]
    new = {fit["part"] for fit in fits}
    before = base.get("calibration")
    record: dict[str, Any] = {
        "base": name,
        "note": "the parameters below supersede what 'about' says of them",
    }
    known = before.get("fits") if isinstance(before, Mapping) else None
    if isinstance(known, list) and all(isinstance(fit, Mapping) for fit in known):
        record["base"] = before.get("base", name) if isinstance(before, Mapping) else name
        dated = [fit for fit in known if fit.get("part") not in new] + dated
    elif before is not None:
        record["earlier"] = before
    return record | {"date": date, "fits": dated}
