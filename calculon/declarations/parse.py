"""Parse documents: JSON, or YAML restricted to JSON values; repeated fields are an error."""

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from calculon.base.errors import Problem, SpecError

MAX_VALUES = 5_000_000
"""Most values of a JSON document; each takes far more memory than its text."""

MAX_YAML = 2**20
"""Most bytes of a YAML document; the parser is about a hundred times slower than the one for JSON."""

MAX_NODES = 50_000
"""Most values of a YAML document; the values of an alias count at each use."""

_DEEPEST = 100  # levels of nested lists and objects

_TOO_LONG = "a number of more than 4,300 digits"


class _NoDocumentError(Exception):
    """Error for a text that is not a document: a description and a hint."""

    def __init__(self, found: str, hint: str = ""):
        self.found, self.hint = found, hint


class _DuplicateKeyError(Exception):
    """Error for a repeated key in an object."""


def parse(data: bytes, file: str, suffix: str = "") -> object:
    """Parse a document.

    Args:
        data: The text in UTF-8.
        file: Source of the text, for messages.
        suffix: ``.json`` for JSON only; otherwise a text that begins with a brace is JSON, and any other is YAML.

    Raises:
        SpecError: If the text is not a document; the message gives the position.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise SpecError(file, Problem("", "text in UTF-8", found)) from None
    try:
        if suffix == ".json" or text.lstrip().startswith("{"):
            # A bound on the number of values from a count of characters, before any memory is allocated.
            if sum(map(text.count, "[{,")) > MAX_VALUES:
                raise _NoDocumentError(f"JSON of more than {MAX_VALUES:,} values")
            document = json.loads(text, object_pairs_hook=_no_duplicates)
        else:
            document = _parse_yaml(text)
        _check_depth(document)
    except _DuplicateKeyError as error:
        wanted = "each field once"
        raise SpecError(file, Problem(str(error), wanted, "the field twice")) from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        found = "an empty file" if not text.strip() else place
        hint = "name YAML files .yaml" if _is_yaml(text) else ""
        raise SpecError(file, Problem("", "a JSON document", found, hint)) from None
    except _NoDocumentError as error:
        problem = Problem("", "a JSON or YAML document", error.found, error.hint)
        raise SpecError(file, problem) from None
    except (RecursionError, ValueError) as error:
        found = "too deep a nesting" if isinstance(error, RecursionError) else str(error)
        found = _TOO_LONG if "int_max_str_digits" in found else found
        raise SpecError(file, Problem("", "a JSON or YAML document", found)) from None
    return document


def parse_value(text: str) -> object:
    """Return the value of a text in YAML: a number, a switch, a text, or a list of these.

    >>> parse_value("3e-6"), parse_value("true"), parse_value("16-16"), parse_value("[1, 2]")
    (3e-06, True, '16-16', [1, 2])

    Raises:
        SpecError: For a text that is not a value.
    """
    try:
        value = _parse_yaml(text)
        _check_depth(value)
    except (RecursionError, ValueError, _NoDocumentError, _DuplicateKeyError) as error:
        found = getattr(error, "found", "") or str(error)
        raise SpecError("value", Problem("", "a value as in a YAML file", found)) from None
    return value


def _check_depth(document: object) -> None:
    """Raise RecursionError for a document too deep for the recursive functions that process it."""
    level: list[object] = [document]
    for _ in range(_DEEPEST):
        containers = [one for one in level if isinstance(one, (dict, list))]
        if not containers:
            return
        level = [
            child
            for one in containers
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    raise RecursionError


def _is_yaml(text: str) -> bool:
    """Return True if a text that is not JSON is an object in YAML."""
    if text.lstrip()[:1] in ("{", "["):
        return False
    try:
        return isinstance(_parse_yaml(text), dict)
    except (RecursionError, ValueError, _NoDocumentError, _DuplicateKeyError):
        return False


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        _check_once(name for name, _ in pairs)
    return result


def _check_once(keys: Iterable[str]) -> None:
    """Raise an error for the first repeated key."""
    seen: set[str] = set()
    for key in keys:
        if key in seen:
            raise _DuplicateKeyError(key)
        seen.add(key)


_YAML = "tag:yaml.org,2002:"
_RESOLVED = tuple(_YAML + kind for kind in ("null", "bool", "merge"))
_VALUES = tuple(_YAML + kind for kind in ("null", "bool", "int", "float", "str", "seq", "map"))
"""Tags of values that JSON supports."""

_NUMBERS = {
    "int": r"[-+]?(?:0|[1-9][0-9_]*)\Z",
    "float": r"(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)\Z",
}


def _parse_yaml(text: str) -> object:
    """Parse YAML text, with the values of JSON, numbers as in YAML 1.2 and no repeated keys.

    YAML 1.1, the default of PyYAML, reads 1e-5 as text, and 8:32:8 and 2001-02-03 as a number and a date.
    """
    import yaml  # deferred: most specs are JSON

    if len(text) > MAX_YAML:
        found = f"YAML of more than {MAX_YAML // 2**20} MiB"
        raise _NoDocumentError(found, "write it as JSON")
    try:
        return yaml.load(text, _loader())
    except yaml.YAMLError as error:
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        what = what.removeprefix("found ")
        path = what.endswith("but got '['")  # an unquoted path as a key: {networks[0].size: 8}
        hint = "a path with [ ] as a key needs quotes" if path else ""
        raise _NoDocumentError(what + _place(getattr(error, "problem_mark", None)), hint) from None


@cache
def _loader() -> Any:
    """Return the YAML loader class.

    Aliases and merge keys can expand a short text into any number of values, so values are counted before they are
    constructed.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def __init__(self, stream: str):
            super().__init__(stream)
            self.nodes, self.sizes = 0, dict[int, int]()

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias, before = self.check_event(yaml.AliasEvent), self.nodes
            node: Any = super().compose_node(parent, index)
            if alias and id(node) not in self.sizes:
                raise _NoDocumentError(f"a value inside itself{_place(node.start_mark)}")
            if alias:
                self.nodes += self.sizes[id(node)]
            else:
                self.nodes += 1
                self.sizes[id(node)] = self.nodes - before
            if self.nodes > MAX_NODES:
                found = f"YAML of more than {MAX_NODES:,} values"
                raise _NoDocumentError(found, "write it as JSON, which has no aliases")
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            values = (getattr(key, "value", None) for key, _ in node.value)
            _check_once(value for value in values if isinstance(value, str))
            return super().construct_mapping(node, deep)

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            try:
                if node.tag in _VALUES:
                    return super().construct_object(node, deep)
            except (
                LookupError,
                AttributeError,
                TypeError,
                ValueError,
            ) as error:  # !!int x, for example
                if "int_max_str_digits" in str(error):
                    raise
            tag = node.tag.replace(_YAML, "!!")
            found = f"the tag {tag} of something else" if node.tag in _VALUES else f"the tag {tag}"
            raise _NoDocumentError(found + _place(node.start_mark), "leave it out")

    Loader.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag in _RESOLVED]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for kind, rule in _NUMBERS.items():
        Loader.add_implicit_resolver(_YAML + kind, re.compile(rule), list("-+.0123456789"))
    return Loader


def _place(mark: Any) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
