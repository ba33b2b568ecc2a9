"""Inputs of a result, as the result states them: specs with their hashes, edition, preset, options."""

import warnings
from collections.abc import Mapping
from typing import Any

from calculon.declarations.decode import SpecWarning
from calculon.declarations.model import Model
from calculon.declarations.origin import Origin, stated_name
from calculon.declarations.presets import Preset
from calculon.hardware.system import System
from calculon.version import __version__


def question(
    model: Model, system: System, edition: str, preset: Preset, **asked: Any
) -> dict[str, Any]:
    """Return the inputs of a result as plain data.

    Args:
        model, system: The specs.
        edition: Edition of the cost model.
        preset: Preset that filled in the execution, or that a search tried.
        **asked: Further members: the execution, or the options of a search.
    """
    return {
        "calculon": __version__,
        "model": _about(model),
        "system": _about(system) | system.provenance.to_dict(),
        "edition": edition,
        "preset": preset.to_dict(),
        **asked,
    }


def _about(record: Model | System) -> dict[str, Any]:
    return {"name": record.name} if record.origin is None else record.origin.to_dict()


def warn_of_differences(
    place: str, known: Mapping[str, Any], model: Model, system: System
) -> list[str]:
    """Warn about specs whose content differs from the inputs of a result, and return the warnings.

    A spec with another name, or with changed values, was chosen on purpose and gives no warning.

    Args:
        place: Name of the result, for the message.
        known: Its inputs.
        model, system: The current specs.
    """
    texts = []
    for kind, record in (("model", model), ("system", system)):
        then, now = known.get(kind), record.origin
        if now is None or not isinstance(then, Mapping) or "sha256" not in then:
            continue
        chosen = now.changes and then.get("set") != dict(now.changes)
        if then.get("name") == now.name and not chosen and then["sha256"] != now.digest:
            texts.append(_differs(place, kind, then, now))
    for text in texts:
        warnings.warn(text, SpecWarning, stacklevel=4)
    return texts


def _differs(place: str, kind: str, then: Mapping[str, Any], now: Origin) -> str:
    before, after = str(then["sha256"])[:12], now.digest[:12]
    name = stated_name(then)
    return (
        f"{place}: the {kind} {now.name} differs from {name}, with which the result was computed (SHA-256 "
        f"{after}... now, {before}... then)"
    )
