"""Wrong values of any setting are an error of that setting, or listed; never a traceback."""

import math
from contextlib import suppress

import pytest

from calculon.errors import SpecError
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


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_no_wrong_value_is_a_traceback(name, value):
    dialect = DIALECTS[name]
    for setting in _known(dialect):
        with suppress(SpecError):
            found = _read(dialect, BASES[name] | {setting: value})
            assert set(dialect.fields) <= set(found.execution)
