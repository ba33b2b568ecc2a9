"""Laws of collectives from tables of nccl-tests."""

import json

import numpy as np
import pandas as pd
import pytest

from calculon import inputs
from calculon.calibrate.kernels.collectives import COPY_SHARE, _fit_operation, fit
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import place
from calculon.hardware.stated_networks import MEASURABLE
from tests.calibrate import measured
from tests.calibrate.measured import table
from tests.draws import some
from tests.helpers import document

GPUS = measured.GPUS | {"a100_40g_sxm": "A100-SXM4-40GB"}
TABLES = {"collectives": table("collectives")}


@pytest.mark.parametrize("name", some(GPUS, 2))
def test_the_catalog_has_what_the_fit_gives(name):
    system = inputs.system(name)
    part = fit(TABLES, GPUS[name], system)
    stated = document("systems", name)["ext"]["networks"]
    for link, fitted in zip(stated, part.fragment["ext"]["networks"], strict=True):
        assert link["kind"] == fitted["kind"]
        for operation, law in link.get("operations", {}).items():
            found = fitted["operations"][operation]
            for key in ("latency", "rank_latency", "long_step", "least_step", "ring_ranks"):
                assert law.get(key, 0) == pytest.approx(found.get(key, 0), rel=0.02)
            for one, other in zip(law["rates"], found["rates"], strict=True):
                assert one[:2] == pytest.approx(other[:2], rel=0.02)
                # flat optimum: processors differ
                assert one[2:] == pytest.approx(other[2:], rel=0.02, abs=1e-6)
    off = abs(part.rows.predicted / part.rows.measured - 1)
    laws = part.fragment["ext"]["networks"][0]["operations"]
    steps = {name: law.get("least_step", 0) for name, law in laws.items()}
    assert steps["all_reduce"] == pytest.approx(2 * steps["reduce_scatter"], rel=1e-3)
    assert set(part.rows.group) == {f"collectives, {one}" for one in MEASURABLE}
    assert off[part.rows.held_out].median() <= 0.07
    assert off[~part.rows.held_out].median() <= 0.05
    told = document("systems", name)["about"]["kernels"]["collectives, all"]
    assert told["median"] == pytest.approx(100 * off[part.rows.held_out].median(), abs=1e-3)


@pytest.mark.parametrize(("name", "gpu"), [("gb200_nvl72", "GB200"), ("gb300_nvl72", "GB300")])
def test_long_all_reduces_of_other_machines_with_the_same_links_have_small_errors(name, gpu):
    system, rows = inputs.system(name), TABLES["collectives"]
    rows = rows[
        (rows.gpu == gpu) & (rows.op == "all_reduce") & (rows.bytes >= 2**21 * rows.num_gpus)
    ]
    off = [
        float(group_time(system, "all_reduce", row.bytes, place(system, row.num_gpus), AUTO))
        / row.time_s
        - 1
        for row in rows.itertuples()
    ]
    assert len(off) >= 11
    assert np.abs(off).mean() <= 0.05


def test_a_law_comes_back_from_its_own_times():
    system = inputs.system("h100_80g_sxm")
    rows = [
        {
            "source": "made",
            "gpu": "new",
            "op": operation,
            "nodes": 1,
            "num_gpus": ranks,
            "link": "NVLink4 (450 GB/s)",
            "bytes": size,
            "time_s": float(group_time(system, operation, size, place(system, ranks), AUTO)),
            "library": "NCCL 2.29",
        }
        for operation in ("all_gather", "reduce_scatter")
        for ranks in (2, 4, 8)
        for size in 2 ** np.arange(9, 32)
    ]
    part = fit({"collectives": pd.DataFrame(rows)}, "new", system)
    assert part.rows.predicted.to_numpy() == pytest.approx(part.rows.measured, rel=2e-3)
    assert set(part.fragment["ext"]["networks"][0]["operations"]) == {
        "all_gather",
        "reduce_scatter",
    }
    assert json.loads(json.dumps(part.fragment)) == part.fragment


@pytest.mark.parametrize("switched", [False, True])
def test_constants_of_a_law_stay_within_their_bounds(switched):
    """Times without end have the slowest law that is looked for, and no time at all has the fastest."""
    table = [(n, 2.0**i, 2.0**i / 450e9) for n in (2, 8) for i in range(10, 30)]
    rows = pd.DataFrame(table, columns=["num_gpus", "bytes", "wire"]).assign(op="all_reduce")
    most = COPY_SHARE * (2 * 7 / 9 if switched else 1)  # 2 (n - 1) / (n + 1) of what switches pass
    slowest = (1e-3, 1e-4, 2, 0.1, 1e-3, 8, 0.1, 1e-3)  # latencies; by ranks share and ramp
    fastest = (1e-7, 1e-13, 2, COPY_SHARE, 1e-10, 8, most, 1e-10)
    for seconds, wanted in ((100.0, slowest), (1e-14, fastest)):
        law, _ = _fit_operation(rows.assign(time_s=seconds), switched=switched)
        constants = [law["latency"], law["rank_latency"], *np.ravel(law["rates"])]
        assert constants == pytest.approx(wanted, rel=0.01, abs=0)
