"""Scalar fields of a campaign as figures by path, and campaigns with other values of them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.campaign.assumed import has_effect
from calculon.campaign.limits import LIMITED
from calculon.campaign.record import PARTS, Campaign
from calculon.declarations.fields import spec_fields
from calculon.hardware.figures import Figure

_LEFT_OUT = ("loss", "steps", "overhead_factor", *LIMITED)
"""Numbers that state the length of the run or its limits, and the factor of all of its time, whose effect is known."""


def scalars_of(campaign: Campaign) -> dict[str, Figure]:
    """Return every positive number of a campaign that affects its run, by path, including defaults.

    The length of the run and its limits are left out, and so are fields that are absent and taken from the system.
    Values have the units of the file.
    """
    parts = [("", campaign), *((f"{name}.", getattr(campaign, name)) for name in PARTS)]
    found = (one for prefix, part in parts for one in _in_part(part, prefix))
    return {one.path: one for one in found if has_effect(campaign, one.path)}


def _in_part(part: Any, prefix: str) -> Iterator[Figure]:
    """Yield the positive numbers of a part of a campaign."""
    kind: Any = type(part)
    for one in spec_fields(kind):
        value, declared = getattr(part, one.name), one.declaration
        # bool is a subclass of int, and a switch is not a figure
        if one.name in _LEFT_OUT or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        integer = isinstance(value, int)
        stated = value if integer else float(value) / declared.scale
        if 0 < stated < math.inf:
            path, place = prefix + one.key, (*filter(None, [prefix.rstrip(".")]), one.name)
            yield Figure(path, stated, int if integer else float, declared, place)


def with_scalars(campaign: Campaign, values: Mapping[str, float]) -> Campaign:
    """Return a campaign with other values of some of its :func:`scalars_of`, in the units of its file.

    The values are not checked, and the document remains unchanged.
    """
    known, changes = scalars_of(campaign), dict[str, dict[str, Any]]()
    for path, value in values.items():
        *part, name = known[path].place
        changes.setdefault("".join(part), {})[name] = _held(known[path], value)
    replaced = changes.pop("", {})
    replaced |= {name: replace(getattr(campaign, name), **new) for name, new in changes.items()}
    return replace(campaign, **replaced)


def _held(figure: Figure, value: float) -> float:
    """Return a value in the unit of the campaign record."""
    return value if figure.kind is int else value * figure.declaration.scale


def of_campaign(path: str) -> bool:
    """Return True if a path, as ``--set`` takes it, names a field of a campaign.

    >>> of_campaign("reliability.mtbf_processor"), of_campaign("mem1.GBps")
    (True, False)
    """
    return path.partition(".")[0] in {one.key for one in spec_fields(Campaign)}
