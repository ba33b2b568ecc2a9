"""A part of a campaign that is a document of its own: a name, a path, or the fields of a record."""

import json
from typing import Any

from calculon.base.frozen import dataclass


@dataclass(frozen=True, slots=True)
class StatedDocument:
    """A document as a file of a campaign has it; kept as text, so that records with it can be compared and hashed.

    Attributes:
        text: The document in JSON.
    """

    text: str

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of all forms."""
        return {"type": ["string", "object"]}

    @property
    def raw(self) -> str | dict[str, Any]:
        """The document."""
        found: str | dict[str, Any] = json.loads(self.text)
        return found
