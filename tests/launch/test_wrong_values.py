"""Wrong values of any setting are an error of that setting, or listed; never a traceback."""

import math

import pytest

from calculon.base.errors import SpecError
from calculon.launch.dialect import Parsed, Reading, Setting
from calculon.launch.dialects import DIALECTS
from tests.launch.laws import collected

WRONG = (None, "x", "", -1, 0, 3.5, math.nan, math.inf, 10**30, True, "auto", [], [1], ["a"], {})
BASES = {
    "torchtitan": {
        "parallelism.pipeline_parallel_degree": 2,
        "training.seq_len": 4096,
        "model.name": "llama3",
        "model.flavor": "8B",
    },
    "deepspeed": {"zero_optimization.stage": 2},
    "accelerate": {"distributed_type": "FSDP"},
}


def _known(dialect):
    """Return the names of settings that rows know, and those of public files that are no Python."""
    names = {name for row in dialect.rows for name in row.settings}
    for path in collected(dialect.name):
        if path.suffix != ".py":
            names |= set(dialect.parse(path.read_text(), str(path), {}).settings)
    return sorted(names)


def _read(dialect, stated):
    reading = Reading(Parsed("file", {n: Setting(n, v, "file:1") for n, v in stated.items()}), 16)
    for row in dialect.rows:
        reading.lenient = row.subject != "execution"
        getattr(reading, row.subject).update(row.read(reading))
    return reading


def _failure(dialect, setting, value):
    """Return what reading a wrong value fails with that is no message of that setting."""
    try:
        found = _read(dialect, BASES[dialect.name] | {setting: value})
    except SpecError:
        return ""
    except Exception as error:
        return f"{setting}={value!r}: {error!r}"
    return "" if set(dialect.fields) <= set(found.execution) else f"{setting}={value!r}: fields"


@pytest.mark.parametrize("name", BASES)
def test_no_wrong_value_is_a_traceback(name):
    dialect = DIALECTS[name]
    failures = [_failure(dialect, setting, value) for setting in _known(dialect) for value in WRONG]
    assert len(failures) > 100
    assert [one for one in failures if one] == []
