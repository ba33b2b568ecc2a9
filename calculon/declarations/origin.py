"""Origin of a spec: its name, its source, the changes made to it, and a hash of its content."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from calculon.base.errors import printable
from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a model, execution or system.

    Attributes:
        name: Short name, without changes.
        source: Catalog name or path as given; empty for a mapping.
        changes: New value by path of each change after reading.
        digest: SHA-256 of the content, its base and its changes; see :func:`digest_of`.
        note: System that an ambiguous alias was resolved to, and words for the others.
        released: Deployment fields with the types of the released weights of a model (``about.deployment``).
    """

    name: str
    source: str
    changes: Mapping[str, Any]
    digest: str
    note: str = ""
    released: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the origin in the form that results carry."""
        document: dict[str, Any] = {"name": self.name}
        if self.source and self.source != self.name:
            document["source"] = self.source
        if self.changes:
            document["set"] = dict(self.changes)
        if self.note:
            document["note"] = self.note
        return document | {"sha256": self.digest}


def note_on(spec: Any) -> str:
    """Return the note on the alias by which a model or system was requested; empty if it is unambiguous."""
    return spec.origin.note if spec.origin is not None else ""


def titled(name: str, changes: Mapping[str, object]) -> str:
    """Return the name of a spec together with its changes.

    >>> titled("h100_80g_sxm", {"mem1.GiB": 120, "networks[1].must_be_filled": True})
    'h100_80g_sxm (mem1.GiB=120, networks[1].must_be_filled=true)'
    """
    if not changes:
        return name
    words = (f"{path}={_written(value)}" for path, value in changes.items())
    return f"{name} ({printable(', '.join(words))})"


def stated_name(known: Mapping[str, Any]) -> str:
    """Return the name of a spec together with its changes, from the form in results (:meth:`Origin.to_dict`)."""
    changes = known.get("set")
    return titled(str(known.get("name", "")), changes if isinstance(changes, Mapping) else {})


def plain_name(name: str) -> str:
    """Return the name of a spec without its changes, the inverse of :func:`titled`.

    >>> plain_name("h100_80g_sxm (mem1.GiB=120)")
    'h100_80g_sxm'
    """
    return name.partition(" (")[0]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def digest_of(raw: object, silent: Collection[str] = ()) -> str:
    """Return the SHA-256 of a document, equal for equal contents in any notation.

    Members in `silent`, which do not affect results, do not count.
    """
    if isinstance(raw, Mapping):
        raw = {str(key): value for key, value in raw.items() if key not in silent}
    text = json.dumps(json.loads(json.dumps(raw, default=str)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def released_types(document: object) -> Mapping[str, Any]:
    """Return the deployment fields that a model states for its released weights; empty for other specs."""
    about = document.get("about") if isinstance(document, Mapping) else None
    types = about.get("deployment") if isinstance(about, Mapping) else None
    return types if isinstance(types, Mapping) else {}
