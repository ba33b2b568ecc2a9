"""Read campaigns from a catalog name, a file or a mapping, with command-line options that override fields."""

import os
from collections.abc import Mapping
from typing import Any

from calculon import inputs
from calculon.base.errors import Problem, SpecError
from calculon.campaign.record import PARTS, Campaign
from calculon.campaign.scenarios import with_scenario
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.fields import shown
from calculon.declarations.override import override
from calculon.declarations.paths import absent, steps_of
from calculon.inputs import Changed

CampaignSource = str | os.PathLike[str] | Mapping[str, Any] | Changed | Campaign


def read_campaign(
    source: CampaignSource | None = None, options: Mapping[str, Any] | None = None
) -> Campaign:
    """Return a campaign.

    Args:
        source: A name of the catalog, a file, the fields of a campaign, or a record; without it all fields have their
            defaults.
        options: Values by path (``"reliability.mtbf_processor"``) that override the source, in the form of a file. The
            description (``about``) then lists the values that were replaced.

    Raises:
        SpecError: If there is no such campaign, and for all of its problems.
    """
    changes = {name: value for name, value in (options or {}).items() if value is not None}
    if isinstance(source, Campaign):
        if not changes:
            return source
        name, raw, file = source.name, source.document, "campaign"
    else:
        if isinstance(source, Changed):
            changes, source = {**source.changes, **changes}, source.source
        name, raw, file = _document(source)
    document = raw
    if changes:
        document = override(_with_parts(raw, changes), changes, file, Campaign)
        document |= _about(raw, changes)
    return decode(Campaign, with_scenario(document), file, name=name, document=document)


def _document(source: str | os.PathLike[str] | Mapping[str, Any] | None) -> tuple[str, Any, str]:
    """Return the name of a campaign, its document, and its file for messages."""
    if source is None:
        return "campaign", {}, "campaign"
    if (fields := inputs.as_mapping(source)) is not None:
        return "campaign", dict(fields), "campaign"
    file = os.fsdecode(source)  # type: ignore[arg-type]
    name, raw = catalog.load("campaign", file)
    if not isinstance(raw, Mapping):
        raise SpecError(file, Problem("", "an object with named fields", shown(raw)))
    return name, raw, file


def _with_parts(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with an empty part for each part in which values are changed."""
    # an override only replaces what exists, so a part that the file omits is added empty
    heads = {path.partition(".")[0] for path in changes if "." in path}
    return {**{name: {} for name in sorted(heads & {*PARTS})}, **raw}


def _about(raw: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, str]:
    """Return the description of a campaign with the values that changes replace; empty without a description."""
    if not (about := raw.get("about")):
        return {}
    stated = ((path, _value(raw, path), new) for path, new in changes.items())
    replaced = [
        f"{path} changed" if isinstance(old, (Mapping, list)) else f"{path} {new}, not {old}"
        for path, old, new in stated
        if old not in (None, new)
    ]
    return {"about": "; ".join((str(about), *replaced))}


def _value(raw: Any, path: str) -> Any:
    """Return the value at a path of a document; None if it is absent."""
    result = raw
    for step in steps_of(path):
        if absent(result, step, ""):
            return None
        result = result[step]
    return result
