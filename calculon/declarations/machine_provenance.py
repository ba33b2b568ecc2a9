"""Provenance of a system: its processor, figures borrowed from other systems, and whether it was ever measured."""

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
"""Parts of a system whose rates may be borrowed from another system, with the words for them on pages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What ``about`` of a system file says about the origin of its figures.

    An overlay inherits it from its base: a cloud instance has the processor of the server that it is based on. A file
    of another processor states its own.

    Attributes:
        processor: Processor as measurements name it (``H100-SXM5-80GB``); empty if the file does not say.
        family: Generation of processors (``NVIDIA Hopper``); empty if the file does not say.
        borrowed: Name of the system whose efficiencies and latencies are assumed, by part (:data:`PARTS`).
        unmeasured: Whether no validated run and no measured kernel of the processor exists.
    """

    processor: str = ""
    family: str = ""
    borrowed: Mapping[str, str] = field(default_factory=dict)
    unmeasured: bool = False

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Provenance":
        """Return the provenance that a system file states in ``about``; anything malformed counts as not stated.

        A file that names no processor is one that nobody measured, unless it was calibrated.
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
        """Return what a page has to mention: borrowed figures, and that the processor was never measured."""
        borrowed = {"borrowed": dict(self.borrowed)} if self.borrowed else {}
        return borrowed | ({"unmeasured": True} if self.unmeasured else {})


def short_name(system: str) -> str:
    """Return the processor of a system in short.

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
