"""Text to documents: JSON, or YAML with the numbers of JSON; each field once."""

import json
import re
from typing import Any

from calculon.errors import Problem, SpecError

_TOO_LONG = "a number of more than 4,300 digits"


def parse(data: bytes, file: str, suffix: str = "") -> object:
    """Read the document that stands in a text.

    Parameters
    ----------
    data : bytes
        The text in UTF-8.
    file : str
        Where it came from, for messages.
    suffix : str
        ``.json`` for JSON and nothing else; otherwise what begins with a brace is JSON, and anything else YAML.

    Raises
    ------
    SpecError
        When it is no document; the message says where.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise SpecError(file, Problem("", "text in UTF-8", found)) from None
    try:
        if suffix == ".json" or text.lstrip().startswith("{"):
            return json.loads(text, object_pairs_hook=_no_duplicates)
        return _parse_yaml(text)
    except _DuplicateKeyError as error:
        wanted = "each field once"
        raise SpecError(file, Problem(str(error), wanted, "the field twice")) from None
    except json.JSONDecodeError as error:
        place = f"{error.msg} at line {error.lineno}, column {error.colno}"
        found = "an empty file" if not text.strip() else place
        hint = "YAML is in files named .yaml" if _is_yaml(text) else ""
        raise SpecError(file, Problem("", "a JSON document", found, hint)) from None
    except (RecursionError, ValueError) as error:
        found = "too deep a nesting" if isinstance(error, RecursionError) else str(error)
        found = _TOO_LONG if "int_max_str_digits" in found else found
        raise SpecError(file, Problem("", "a JSON or YAML document", found)) from None


def _is_yaml(text: str) -> bool:
    """Tell whether a text that is no JSON would be an object in YAML."""
    if text.lstrip()[:1] in ("{", "["):
        return False
    try:
        return isinstance(_parse_yaml(text), dict)
    except (RecursionError, ValueError, _DuplicateKeyError):
        return False


class _DuplicateKeyError(Exception):
    pass


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DuplicateKeyError(next(name for name in names if names.count(name) > 1))
    return result


_YAML_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
_YAML_NUMBER = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)\Z"
)


def _parse_yaml(text: str) -> object:
    import yaml  # only when a spec is YAML

    class Loader(yaml.SafeLoader):
        """YAML with the numbers of YAML 1.2: 1e-5 is one, 8:32:8 is none; and no repeated keys."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [getattr(key, "value", None) for key, _ in node.value]
            for key in keys:
                if isinstance(key, str) and keys.count(key) > 1:
                    raise _DuplicateKeyError(key)
            return super().construct_mapping(node, deep)

    numbers = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    Loader.yaml_implicit_resolvers = {
        first: [(tag, rule) for tag, rule in rules if tag not in numbers]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for tag, rule in zip(numbers, (_YAML_INTEGER, _YAML_NUMBER), strict=True):
        Loader.add_implicit_resolver(tag, rule, list("-+.0123456789"))
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error).partition("\n")[0]
        raise ValueError(f"{what}{place}") from None
