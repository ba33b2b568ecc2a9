"""Configurations as they stand on Hugging Face, one or more per family, without keys that say nothing of the shape.

A row of ``configurations.jsonl`` has a name (in most rows the repository), the configuration, the number of parameters
of its weights where that is public (without vision towers and modules that predict further tokens), and the name of the
model in the catalog.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple


class Case(NamedTuple):
    """A configuration, the parameters that its weights have (where that is public), and its name in the catalog."""

    config: dict[str, Any]
    parameters: int | None
    catalog: str


ROWS = map(json.loads, Path(__file__).with_suffix(".jsonl").read_text().splitlines())
CASES = {
    row["name"]: Case(row["config"], row.get("parameters"), row.get("catalog", "")) for row in ROWS
}
HUB = {name: case.config for name, case in CASES.items()}


def llama(**changes: Any) -> dict[str, Any]:
    """Return the configuration of Llama 3 8B, changed."""
    return HUB["llama3-8B"] | changes
