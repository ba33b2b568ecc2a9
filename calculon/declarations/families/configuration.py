"""External model configuration, read and checked key by key."""

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import Declaration, shown

REQUIRED: Final = object()
"""Marker for a key without default."""


@dataclass(frozen=True, slots=True)
class Key:
    """Key of a configuration.

    Attributes:
        name: The key; a dot leads into an object.
        default: Value of a missing key, in the notation of the configuration.
        kind: One of int, float, bool and str.
        also: Other spellings.
        words: Meaning of each allowed text.
        null: Meaning of null, if different from the default.
    """

    name: str
    default: Any = REQUIRED
    kind: type = int
    also: tuple[str, ...] = ()
    words: Mapping[str, Any] | None = None
    null: Any = None

    @property
    def declaration(self) -> Declaration:
        """The allowed values."""
        needed = self.default is REQUIRED and self.null is None
        least = int(needed) if self.kind in (int, float) else None
        return Declaration(help="", at_least=least, choices=tuple(self.words or ()))


class Configuration:
    """Document of named values, with its source."""

    def __init__(self, raw: Mapping[str, Any], file: str, path: str = ""):
        self.raw, self.file, self.path = raw, file, path

    def get(self, name: str) -> Any:
        """Return the value of a name; None if it is missing."""
        return self._find(name)[1]

    def read(self, key: Key) -> Any:
        """Return the value of a key in the notation of model files; its default if it is missing.

        Raises:
            SpecError: If a required key is missing, or for a value that is not allowed.
        """
        name, there, value = key.name, False, None
        # A later spelling wins over one that is present but null, since configurations write null for unused keys.
        for spelling in (key.name, *key.also):
            found, content = self._find(spelling)
            if content is not None or (found and not there):
                name, there, value = spelling, found, content
            if value is not None:
                break
        if value is None:
            value = key.null if there and key.null is not None else key.default
        if value is REQUIRED:
            found_text = "null" if there else "nothing (the key is missing)"
            self.refuse(name, key.declaration.wanted(key.kind), found_text)
        if problem := key.declaration.problem(key.kind, value, self.path + name):
            raise SpecError(self.file, problem)
        return key.words[value] if key.words else key.kind(value)

    def refuse(self, name: str, expected: str, found: str, hint: str = "") -> NoReturn:
        """Raise SpecError for a name."""
        raise SpecError(self.file, Problem(self.path + name, expected, found, hint))

    def inside(self, name: str) -> "Configuration":
        """Return the object stored under a name."""
        raw = self.get(name)
        if not isinstance(raw, Mapping):
            self.refuse(name, "an object with named fields", shown(raw))
        return Configuration(raw, self.file, f"{self.path}{name}.")

    def _find(self, name: str) -> tuple[bool, Any]:
        value: Any = self.raw
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return False, None
            value = value[part]
        return True, value
