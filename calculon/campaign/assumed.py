"""Which defaults of a campaign have an effect on it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calculon.campaign.prices import processor_of
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


_MEASURED_ON = {"reliability.mtbf_processor": "h100"}
"""How the names of the systems begin that a default was measured on."""


def told_defaults(campaign: Campaign, systems: Iterable[str]) -> list[dict[str, Any]]:
    """Return the defaults that nobody stated as plain data, with their sources, and whether they have an effect.

    Args:
        campaign: The run.
        systems: Names of the machines; the source of a default says for which of them it is that of another processor.
    """
    names = list(systems)
    return [
        {"field": path, "value": value, "unit": unit, "source": source + _taken(path, names)}
        | {"counts": counts(campaign, path)}
        for path, value, unit, source in campaign.defaults
    ]


def _taken(path: str, systems: Iterable[str]) -> str:
    """Say for which machines a default is taken that was measured on others."""
    if (measured := _MEASURED_ON.get(path)) is None:
        return ""
    others = [name for name in systems if not processor_of(name).startswith(measured)]
    own = "its" if len(others) == 1 else "their"
    return f"; taken for {', '.join(others)} too, no source of {own} own" if others else ""
