"""Provenance of a system: its processor, values borrowed from other systems, and whether it was ever measured."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from calculon.base.frozen import dataclass

PARTS = {
    "kernels": "kernels",
    "attention": "attention kernels",
    "links": "links within a node",
    "network": "network between nodes",
}
"""Parts of a system whose rates can be borrowed from another system, with their names on pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Statements of ``about`` in a system file on the origin of its values.

    An overlay inherits them from its base: a cloud instance has the processor of the server that it is based on. A file
    of another processor states its own.

    Attributes:
        processor: Processor name as in measurements (``H100-SXM5-80GB``); empty if the file does not state it.
        family: Generation of processors (``NVIDIA Hopper``); empty if the file does not state it.
        borrowed: For each part (:data:`PARTS`) the system whose efficiencies and latencies are assumed.
        unmeasured: True if no validated run and no measured kernel of the processor exists.
    """

    processor: str = ""
    family: str = ""
    borrowed: Mapping[str, str] = field(default_factory=dict)
    unmeasured: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Provenance":
        """Return the provenance stated in ``about`` of a system file; malformed entries count as not stated.

        A file without a processor name counts as unmeasured, unless it was calibrated.
        """
        about = document.get("about")
        stated: Mapping[str, Any] = about if isinstance(about, Mapping) else {}
        borrowed = stated.get("borrowed")
        named = borrowed if isinstance(borrowed, Mapping) else {}
        processor = str(stated.get("processor") or "")
        return cls(
            processor=processor,
            family=str(stated.get("family") or ""),
            borrowed={part: str(named[part]) for part in PARTS if named.get(part)},
            unmeasured=bool(stated.get("unmeasured", not processor))
            and not document.get("calibration"),
        )

    @property
    def in_words(self) -> str:
        """The borrowed parts and their lenders: ``kernels and links within a node of b200_sxm``."""
        lenders: dict[str, list[str]] = {}
        for part, system in self.borrowed.items():
            lenders.setdefault(system, []).append(PARTS[part])
        return "; ".join(f"{_listed(parts)} of {system}" for system, parts in lenders.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the members that a page must mention: borrowed values, and a processor that was never measured."""
        borrowed = {"borrowed": dict(self.borrowed)} if self.borrowed else {}
        return borrowed | ({"unmeasured": True} if self.unmeasured else {})


def short_name(system: str) -> str:
    """Return the short name of the processor of a system.

    >>> short_name("h100_80g_sxm")
    'H100'
    """
    return system.partition("_")[0].upper()


def _listed(words: list[str]) -> str:
    """Join words with commas and an `and`.

    >>> _listed(["kernels", "links", "network"])
    'kernels, links and network'
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
