"""The scalar fields of a campaign as figures by their paths, and campaigns with other values of them."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.campaign.assumed import counts
from calculon.campaign.limits import LIMITED
from calculon.campaign.record import PARTS, Campaign
from calculon.declarations.fields import spec_fields
from calculon.hardware.figures import Figure

_LEFT_OUT = ("loss", "steps", *LIMITED)
"""Numbers that say how long a run is, or what it may take."""


def scalars_of(campaign: Campaign) -> dict[str, Figure]:
    """Return every positive number of a campaign that has an effect on its run, by path, defaults included.

    The length of the run and its limits are left out, and what the system says instead where it is absent. Values are
    in the units of the file.
    """
    parts = [("", campaign), *((f"{name}.", getattr(campaign, name)) for name in PARTS)]
    found = (one for prefix, part in parts for one in _in_part(part, prefix))
    return {one.path: one for one in found if counts(campaign, one.path)}


def _in_part(part: Any, prefix: str) -> Iterator[Figure]:
    """Yield the positive numbers of a part of a campaign."""
    kind: Any = type(part)
    for one in spec_fields(kind):
        value, declared = getattr(part, one.name), one.declaration
        if one.name in _LEFT_OUT or isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        whole = isinstance(value, int)
        stated = value if whole else float(value) / declared.scale
        if 0 < stated < math.inf:
            path, place = prefix + one.key, (*filter(None, [prefix.rstrip(".")]), one.name)
            yield Figure(path, stated, int if whole else float, declared, place)


def with_scalars(campaign: Campaign, values: Mapping[str, float]) -> Campaign:
    """Return a campaign with other values of some of its :func:`scalars_of`, in the units of its file.

    They are not checked, and its document stays as it was.
    """
    known, changes = scalars_of(campaign), dict[str, dict[str, Any]]()
    for path, value in values.items():
        *part, name = known[path].place
        changes.setdefault("".join(part), {})[name] = _held(known[path], value)
    own = changes.pop("", {})
    own |= {name: replace(getattr(campaign, name), **new) for name, new in changes.items()}
    return replace(campaign, **own)


def _held(figure: Figure, value: float) -> float:
    """Return a value as a record of a campaign holds it."""
    return value if figure.kind is int else value * figure.declaration.scale


def of_campaign(path: str) -> bool:
    """Whether a path, as ``--set`` takes it, is that of a field of a campaign.

    >>> of_campaign("reliability.mtbf_processor"), of_campaign("mem1.GBps")
    (True, False)
    """
    return path.partition(".")[0] in {one.key for one in spec_fields(Campaign)}
