"""YAML of generated files: fields in their order, texts of several lines as blocks, and no references."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import SafeDumper


def manifest(*documents: Mapping[str, Any]) -> str:
    """Return documents as one YAML text.

    >>> print(manifest({"a": [1]}, {"b": "x"}), end="")
    a:
    - 1
    ---
    b: x
    """
    import yaml  # only to write it

    every = [dict(one) for one in documents]
    text: str = yaml.dump_all(every, Dumper=_dumper(), sort_keys=False, width=1000)
    return text


@cache
def _dumper() -> "type[SafeDumper]":
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes repeated parts again, since people edit the files."""

        def ignore_aliases(self, data: Any) -> bool:
            """Return true: no part refers to another."""
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar(
            "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
        )

    Dumper.add_representer(str, text)
    return Dumper
