"""Whole groups are held out, always the same ones; residuals are what their names say."""

import numpy as np
import pytest

from calculon.calibrate.solve import held_out, residuals, tabulated
from tests.calibrate.measured import row


def rows(groups):
    return [row(group=group) for group in groups]


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_groups_stay_together(share):
    some = rows([str(i % 7) for i in range(50)])
    held = held_out(some, share)
    inside = {r.group for r, out in zip(some, held, strict=True) if out}
    outside = {r.group for r, out in zip(some, held, strict=True) if not out}
    assert inside & outside == set()
    assert len(inside) == min(max(1, int(7 * share + 0.5)), 6)


def test_the_order_of_rows_does_not_matter():
    some = rows([str(i % 7) for i in range(50)])
    assert (held_out(some[::-1], 0.3)[::-1] == held_out(some, 0.3)).all()
    assert (held_out(some, 0.3) == held_out(some, 0.3)).all()


def test_more_is_held_out_of_the_same():
    some = rows([str(i) for i in range(20)])
    assert (held_out(some, 0.3) <= held_out(some, 0.6)).all()


def test_none_is_held_out_of_one_group_or_by_a_share_of_nothing():
    assert not held_out(rows("aaa"), 0.3).any()
    assert not held_out(rows("abc"), 0.0).any()


def test_residuals_are_relative_to_the_measured_time():
    found = residuals(["a", "b", "c"], np.array([1.0, 2.0, 4.0]), np.array([1.1, 2.0, 3.0]))
    errors = 100 * np.array([0.1, 0.0, -0.25])
    assert found == {
        "n": 3,
        "mape": pytest.approx(np.abs(errors).mean(), abs=1e-3),
        "median": pytest.approx(np.median(np.abs(errors))),
        "p90": pytest.approx(np.percentile(np.abs(errors), 90)),
        "bias": pytest.approx(errors.mean()),
        "worst": pytest.approx(-25),
        "worst_row": "c",
    }


def test_large_messages_are_told_apart_where_there_are_small_ones():
    some = [row(message=m, size=m) for m in (2.0**10, 2.0**20, 2.0**21, 2.0**22)]
    held = np.array([False, True, False, True])
    none = np.zeros(4, dtype=bool)
    found = tabulated("networks[0]", some, np.ones(4), held, none)
    assert [(one["rows"], one["n"]) for one in found] == [
        ("fitted", 2),
        ("held out", 2),
        ("fitted, above 1 MiB", 1),
        ("held out, above 1 MiB", 1),
    ]
    assert [one["rows"] for one in tabulated("x", some[2:], np.ones(2), held[2:], none[2:])] == [
        "fitted",
        "held out",
    ]
