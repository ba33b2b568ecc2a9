"""Provenance of fitted values: the object ``calibration`` of a system file."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.calibrate.fit_result import Fitted, Measurements
from calculon.hardware.residuals import TRAINING


def provenance(
    one: Fitted,
    values: Mapping[str, Any],
    measurements: Sequence[Measurements],
    above: float,
    spread: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the record of one fitted part."""
    used = [some for some in measurements if any(row.part == one.part for row in some.rows)]
    about: dict[str, str] = {}
    for some in used:
        for key, text in some.about.items():
            about[key] = "; ".join(dict.fromkeys([*filter(None, [about.get(key)]), text]))
    residuals = [
        {key: value for key, value in record.items() if key != "part"} for record in one.residuals()
    ]
    limit = {"messages_above_bytes": above} if above and one.part.startswith("networks") else {}
    return {
        "part": one.part,
        "parameters": dict(values),
        "files": [some.file for some in used],
        **about,
        "rows": len(one.rows),
        "held_out_rows": int(one.held.sum()),
        "residuals_percent": residuals,
        "spreads": spread,
        **limit,
    }


def merged_fits(
    base: Mapping[str, Any], name: str, date: str, hold_out: float, fits: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the object ``calibration``, and notes: the new fits, and those of other parts that the base already had.

    An earlier fit to whole steps goes where anything else is fitted: its residuals are those of another system.
    """
    dated = [{"date": date, "hold_out": hold_out, **fit} for fit in fits]
    new = {fit["part"] for fit in fits}
    notes = []
    before = base.get("calibration")
    record: dict[str, Any] = {
        "base": name,
        "note": "the parameters below supersede what 'about' says of them",
    }
    known = before.get("fits") if isinstance(before, Mapping) else None
    if isinstance(known, list) and all(isinstance(fit, Mapping) for fit in known):
        record["base"] = before.get("base", name) if isinstance(before, Mapping) else name
        if TRAINING not in new and any(fit.get("part") == TRAINING for fit in known):
            new.add(TRAINING)
            notes.append(
                f"{TRAINING}: what the base says of it is left out: its residuals are those of another system;"
                " its factors stay in the efficiencies that were not fitted now"
            )
        dated = [fit for fit in known if fit.get("part") not in new] + dated
    elif before is not None:
        record["earlier"] = before
    return record | {"date": date, "fits": dated}, notes
