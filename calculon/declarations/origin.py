"""Where a spec came from: its name, how it was asked for, what was changed, and a hash of its content."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Any

from calculon.base.errors import printable
from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a model, execution or system came from.

    Attributes:
        name: Its short name, without what was changed.
        source: The catalog name or path that was given; empty for a mapping.
        changes: New value by path of what was changed after reading.
        digest: SHA-256 of the content, what it is based on and what was changed in it; see :func:`digest_of`.
        note: What a word was taken for that may mean several systems, and words for the others.
        released: Fields of a deployment with the types of the released weights of a model (``about.deployment``).
    """

    name: str
    source: str
    changes: Mapping[str, Any]
    digest: str
    note: str = ""
    released: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a result carries it."""
        document: dict[str, Any] = {"name": self.name}
        if self.source and self.source != self.name:
            document["source"] = self.source
        if self.changes:
            document["set"] = dict(self.changes)
        if self.note:
            document["note"] = self.note
        return document | {"sha256": self.digest}


def note_on(spec: Any) -> str:
    """Return the note on the word that a model or system was asked for by; empty if that has one meaning."""
    return spec.origin.note if spec.origin is not None else ""


def titled(name: str, changes: Mapping[str, object]) -> str:
    """Return the name of a spec with what was changed in it.

    >>> titled("h100_80g_sxm", {"mem1.GiB": 120, "networks[1].must_be_filled": True})
    'h100_80g_sxm (mem1.GiB=120, networks[1].must_be_filled=true)'
    """
    if not changes:
        return name
    words = (f"{path}={_written(value)}" for path, value in changes.items())
    return f"{name} ({printable(', '.join(words))})"


def stated_name(known: Mapping[str, Any]) -> str:
    """Return the name of a spec with what was set in it, as a result says it (:meth:`Origin.to_dict`)."""
    changes = known.get("set")
    return titled(str(known.get("name", "")), changes if isinstance(changes, Mapping) else {})


def plain_name(name: str) -> str:
    """Return the name of a spec without what was changed in it, the inverse of :func:`titled`.

    >>> plain_name("h100_80g_sxm (mem1.GiB=120)")
    'h100_80g_sxm'
    """
    return name.partition(" (")[0]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def digest_of(raw: object, silent: Collection[str] = ()) -> str:
    """Return the SHA-256 of a document: the same for equal contents, however they are written.

    Members in `silent`, which no result depends on, do not count.
    """
    if isinstance(raw, Mapping):
        raw = {str(key): value for key, value in raw.items() if key not in silent}
    text = json.dumps(json.loads(json.dumps(raw, default=str)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def released_types(document: object) -> Mapping[str, Any]:
    """Return the fields of a deployment that a model states of its released weights; nothing for other specs."""
    about = document.get("about") if isinstance(document, Mapping) else None
    types = about.get("deployment") if isinstance(about, Mapping) else None
    return types if isinstance(types, Mapping) else {}
