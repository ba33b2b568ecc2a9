"""Defaults of a campaign that were filled in, with their sources and whether they affect the run."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calculon.campaign.prices import processor_of
from calculon.campaign.record import Campaign

_CONDITIONS: Mapping[str, Callable[[Campaign], bool]] = {
    "reliability.silent_detect": lambda c: c.reliability.silent > 0,
    "reliability.slow_detect": lambda c: c.reliability.slow_share > 0,
    "checkpoints.bandwidth_per_node": lambda c: c.checkpoints.bandwidth is None,
    "checkpoints.memory_lost": lambda c: c.checkpoints.levels > 1,
}
"""Fields that have an effect only under a condition on other fields."""


def has_effect(campaign: Campaign, path: str) -> bool:
    """Return True if a field, given by path, affects the run that a campaign describes.

    >>> from calculon.campaign.read import read_campaign
    >>> asked = read_campaign({"tokens": "1T", "reliability": {"silent": 1e-6}})
    >>> has_effect(asked, "reliability.silent_detect"), has_effect(asked, "checkpoints.memory_lost")
    (True, False)
    """
    # kept checkpoints cost storage, and they limit how far back a silent corruption can be undone
    if path == "checkpoints.kept":
        return campaign.fleet.storage is not None or campaign.reliability.silent > 0
    return path not in _CONDITIONS or _CONDITIONS[path](campaign)


_MEASURED_ON = {"reliability.mtbf_processor": "h100"}
"""Prefix of the names of the systems on which a default was measured, by path."""


def assumed_defaults(campaign: Campaign, systems: Iterable[str]) -> list[dict[str, Any]]:
    """Return the defaults in use as JSON-serializable dicts, each with its source and whether it has an effect.

    Args:
        campaign: The run.
        systems: Names of the machines. The source of a default that was measured on another processor says so.
    """
    names = list(systems)
    return [
        {"field": path, "value": value, "unit": unit, "source": source + _borrowed(path, names)}
        | {"counts": has_effect(campaign, path)}
        for path, value, unit, source in campaign.defaults
    ]


def _borrowed(path: str, systems: Iterable[str]) -> str:
    """Return the remark that a default was measured on a different processor than the given systems have."""
    if (measured := _MEASURED_ON.get(path)) is None:
        return ""
    others = [name for name in systems if not processor_of(name).startswith(measured)]
    return f"; also assumed for {', '.join(others)}, without a source" if others else ""
