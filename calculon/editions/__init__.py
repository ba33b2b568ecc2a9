"""The editions of the cost model; each is an :class:`~calculon.editions.edition.Edition`."""

from calculon.base.errors import Problem, SpecError, nearest
from calculon.editions.edition import Corrected, Edition
from calculon.editions.sc23 import Sc23

SC23 = Sc23()
"""The model as published (Isaev et al., SC'23), oddities included."""

CORRECTED = Corrected()
"""The published model with its defects fixed, and today's architectures."""

EDITIONS: dict[str, Edition] = {edition.name: edition for edition in (SC23, CORRECTED)}
"""The editions by name."""


def find_edition(edition: Edition | str) -> Edition:
    """Return an edition from its name, or as it is given.

    Raises:
        SpecError: When there is no such edition.
    """
    given: object = edition
    if isinstance(given, Edition):
        return given
    name = given if isinstance(given, str) else ""
    if name not in EDITIONS:
        wanted = "an Edition or the name of one: " + ", ".join(EDITIONS)
        hint = nearest(name.lower(), list(EDITIONS))
        raise SpecError("edition", Problem("", wanted, repr(given), hint))
    return EDITIONS[name]


__all__ = ["CORRECTED", "EDITIONS", "SC23", "find_edition"]
