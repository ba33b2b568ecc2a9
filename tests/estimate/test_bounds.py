"""The interval of the time as columns of tables: that of the estimates, row by row."""

import numpy as np
import pytest

import calculon
from calculon.declarations.statistics import BOUNDS, FITS

SPACE = ("llama3-8B", "h100_80g_sxm", 64, 512, "bfloat16")
MACHINE = SPACE[:2]


@pytest.fixture(scope="module")
def found():
    fix = {"tensor_par": 2, "pipeline_par": 1, "attn_impl": "flash"}
    return calculon.search(*SPACE, top=3, fix=fix, edition="corrected")


def test_rows_have_the_interval_of_their_estimate(found):
    for row, one in enumerate(found):
        ends = [found.bounds[name][row] for name in BOUNDS]
        assert ends == pytest.approx([one.belief.low, one.belief.high], rel=1e-12)
        assert found.evaluation[FITS][row] == one.stats[FITS] == one.belief.memory.fits
        assert 0 < ends[0] < ends[1]


def test_a_frame_of_winners_has_it_and_is_evaluated_again(found):
    frame = found.to_frame()
    assert BOUNDS.keys() < {*frame.columns}
    again = calculon.evaluate(*MACHINE, frame)
    assert (again["total_time"] == frame["total_time"]).all()
    assert calculon.bounds(*MACHINE, again).keys() == BOUNDS.keys()


def test_rows_that_cannot_run_have_none(found):
    frame = found.plan.to_frame()
    frame.loc[1, "mem_reserved_mib"] = 10**6
    table = calculon.evaluate(*MACHINE, frame)
    assert table.feasible.tolist() == [True, False, True]
    for name, column in calculon.bounds(*MACHINE, table).items():
        assert np.isnan(column).tolist() == [False, True, False]
        assert column[0] == found.bounds[name][0]
    nothing = table.take(~table.feasible)
    assert np.isnan(list(calculon.bounds(*MACHINE, nothing).values())).all()
    empty = calculon.bounds(*MACHINE, table.take(slice(0, 0)))
    assert {name: len(column) for name, column in empty.items()} == dict.fromkeys(BOUNDS, 0)
