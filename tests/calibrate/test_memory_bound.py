"""Memory-bound kernels and launches: a law gives its constants back, and the catalog holds what is fitted."""

import numpy as np
import pandas as pd
import pytest

from calculon import inputs
from calculon.calibrate.kernels import (
    attention,
    collectives,
    launches,
    memory_bound,
    serving,
)
from tests.calibrate.measured import GPUS, table
from tests.draws import some
from tests.helpers import document

BANDWIDTH, START, FORWARD, BACKWARD = 3350e9, 3e-6, 0.8, 0.6


@pytest.fixture(scope="module")
def tables():
    return {name: table(name) for name in ("memory_bound", "launches")}


def _row(op, pass_, impl, cols, time, **more):
    row = {"source": "aic-x", "gpu": "H100-SXM5-80GB", "dtype": "bfloat16", "rows": 8192}
    return row | {"op": op, "pass": pass_, "impl": impl, "cols": cols, "time_s": time} | more


def _made():
    """Rows of a processor that follows the law."""
    rows = []
    for cols in range(6000, 40000, 1000):
        size = 8192 * cols * 2
        once = size / BANDWIDTH
        rows += [
            _row("quantize_fp8", "fwd", "trtllm", cols, START + 1.5 * once / FORWARD),
            _row("rms_norm", "fwd", "cudnn", cols, START + 2 * once / FORWARD, source="c"),
            _row("rms_norm", "bwd", "cudnn", cols, 2 * START + 3 * once / BACKWARD, source="c"),
            _row("rms_norm", "fwd", "vllm", cols, 1.0),
            _row("add", "fwd", "torch", cols, 1.0, gpu="L4"),
        ]
    return pd.DataFrame(rows)


def test_a_law_gives_its_constants_back(tables):
    system = inputs.system("h100_80g_sxm")
    made = tables | {"memory_bound": _made()}
    found = memory_bound.fit(made, "H100-SXM5-80GB", system)
    assert found.fragment["ext"] == {
        "traffic": {"efficiency": FORWARD, "start": START},
        "kernels": {
            "norm": {"any": {"law": "stream", "efficiency": 0.8, "start": START, "backward": 0.6}}
        },
    }
    np.testing.assert_allclose(found.rows["predicted"], found.rows["measured"], rtol=2e-3)
    assert len(found.rows) == 3 * 34
    assert 0.1 < found.rows["held_out"].mean() < 0.5


def test_processors_without_measurements_have_no_fit(tables):
    system = inputs.system("h100_80g_sxm")
    measured = tables | {name: table(name) for name in ("attention", "collectives", "moe")}
    for part in (attention, collectives, launches, memory_bound, serving):
        assert part.fit(measured, "TPU v4", system) is None, part
        assert part.fit({}, "H100-SXM5-80GB", system) is None, part


@pytest.mark.parametrize("name", some(GPUS, 2))
def test_the_catalog_states_what_the_fit_found_and_held_out_kernels_are_within_a_tenth(
    tables, name
):
    system, raw, gpu = inputs.system(name), document("systems", name), GPUS[name]
    found = memory_bound.fit(tables, gpu, system)
    rows = found.rows[found.rows["held_out"]]
    errors = (rows["predicted"] / rows["measured"] - 1).abs()
    assert len(rows) > 10
    assert errors.median() < 0.1
    for part in (found, launches.fit(tables, gpu, system)):
        for key, value in part.fragment["ext"].items():
            assert value.items() <= raw["ext"][key].items()
        assert part.sources.items() <= raw["about"]["sources"].items()
