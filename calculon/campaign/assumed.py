"""Which defaults of a campaign have an effect on it."""

from collections.abc import Callable, Mapping
from typing import Any

from calculon.campaign.record import Campaign

_WHERE: Mapping[str, Callable[[Campaign], bool]] = {
    "reliability.silent_detect": lambda c: c.reliability.silent > 0,
    "reliability.slow_detect": lambda c: c.reliability.slow_share > 0,
    "checkpoints.bandwidth_per_node": lambda c: c.checkpoints.bandwidth is None,
    "checkpoints.memory_lost": lambda c: c.checkpoints.levels > 1,
}
"""Fields that have an effect beside others only."""


def counts(campaign: Campaign, path: str) -> bool:
    """Whether a field, by path, has an effect on a run as it is asked for.

    >>> from calculon.campaign.read import read_campaign
    >>> asked = read_campaign({"tokens": "1T", "reliability": {"silent": 1e-6}})
    >>> counts(asked, "reliability.silent_detect"), counts(asked, "checkpoints.memory_lost")
    (True, False)
    """
    if (
        path == "checkpoints.kept"
    ):  # their price, and how far back a silent corruption may be mended
        return campaign.fleet.storage is not None or campaign.reliability.silent > 0
    return path not in _WHERE or _WHERE[path](campaign)


def told_defaults(campaign: Campaign) -> list[dict[str, Any]]:
    """Return the defaults that nobody stated as plain data, with their sources, and whether they have an effect."""
    return [
        {"field": path, "value": value, "unit": unit, "source": source}
        | {"counts": counts(campaign, path)}
        for path, value, unit, source in campaign.defaults
    ]
