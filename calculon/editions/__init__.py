"""Editions of the cost model; each is an :class:`~calculon.editions.edition.Edition`."""

from calculon.base.errors import Problem, SpecError, nearest
from calculon.editions.edition import Corrected, Edition
from calculon.editions.sc23 import Sc23

SC23 = Sc23()
"""The model as published (Isaev et al., SC'23), including its oddities."""

CORRECTED = Corrected()
"""The published model with its defects fixed, and with current architectures."""

EDITIONS: dict[str, Edition] = {edition.name: edition for edition in (SC23, CORRECTED)}
"""All editions by name."""


def find_edition(edition: Edition | str) -> Edition:
    """Return an edition by name, or unchanged if it is an edition already.

    Raises:
        SpecError: For an unknown edition.
    """
    given: object = edition
    if isinstance(given, Edition):
        return given
    name = given if isinstance(given, str) else ""
    if name not in EDITIONS:
        wanted = "an Edition or its name: " + ", ".join(EDITIONS)
        hint = nearest(name.lower(), list(EDITIONS))
        raise SpecError("edition", Problem("", wanted, repr(given), hint))
    return EDITIONS[name]


__all__ = ["CORRECTED", "EDITIONS", "SC23", "find_edition"]
