"""What several tests share: the reference results, and how numbers are compared."""

import gzip
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import calculon
from calculon.plan.choice import Choice
from calculon.plan.plan import DEFAULTS
from calculon.records import columns
from calculon.statistics import Stats

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "tests" / "reference"
RELATIVE = 1e-9
"""How closely published numbers are met."""

FLOORS = {"fw_offload_exposed_time": 1e-15, "bw_offload_exposed_time": 1e-15}
"""Differences of nearly equal times, clamped at 0: seconds that do not count."""

NAMES = tuple(column.name for column in columns(Stats))
"""The statistics, in published order."""


def document(folder: str, name: str) -> dict[str, Any]:
    """Read a spec file that the repository ships, as it stands."""
    return json.loads((ROOT / folder / f"{name}.json").read_text())


@cache
def reference_cases(name: str) -> tuple[dict[str, Any], ...]:
    """Read a file of reference results, one case a line."""
    with gzip.open(REFERENCE / f"{name}.jsonl.gz", "rt") as lines:
        return tuple(json.loads(line) for line in lines)


@cache
def reference_system(name: str) -> calculon.System:
    """Return a system of the catalog, or one that only the reference results use."""
    own = REFERENCE / "systems" / f"{name}.json"
    return calculon.inputs.system(own if own.exists() else name)


def choice(**changes: Any) -> Choice:
    """Return a block's choices: nothing is recomputed, overlapped or split, but for what is changed."""
    plain = {
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": "none",
        "tensor_par_comm_type": "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "training": True,
    }
    return Choice(**DEFAULTS | plain | changes)


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> list[str]:
    """List the members in which two results differ by more than the published precision."""
    assert list(found) == list(expected)
    return [
        f"{name}: {found[name]!r} instead of {wanted!r}"
        for name, wanted in expected.items()
        if not _close(found[name], wanted, FLOORS.get(name, 0.0))
    ]


def _close(found: Any, expected: Any, floor: float) -> bool:
    if isinstance(expected, str) or expected is None or found is None:
        return found == expected
    return math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=floor)


def bits(stats: Mapping[str, float | None]) -> np.ndarray:
    """Return the bit patterns of the statistics of one execution; null is not-a-number."""
    values = [math.nan if stats[name] is None else stats[name] for name in NAMES]
    return np.array(values).view(np.int64)


def table_bits(result: calculon.Evaluation) -> np.ndarray:
    """Return the bit patterns of a table, one row per execution."""
    return np.stack([result[name] for name in NAMES], axis=1).view(np.int64)
