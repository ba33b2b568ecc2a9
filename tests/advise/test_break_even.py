"""Break-even values of two laws of a figure, in cases that are nothing but laws."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from calculon.advise.break_even import FURTHEST, Alternative, break_evens
from calculon.advise.elasticities import total


def case(law):
    """Return a case whose statistic is a function of the factor of the only figure."""

    def values(changes):
        return np.array([law(x / 5) for change in changes for x in change.values()], float)

    return SimpleNamespace(values=values, system=None, on=lambda _: float(law(1)))


def figure(**members):
    usual = {"path": "mem1.GBps", "value": 5.0, "kind": float, "unit": "GB/s"}
    return SimpleNamespace(**usual | members)


def found(law, other, *, same_machine=True, weights=(1, 1), **members):
    own, rival = case(law), Alternative(case(other), "", "", same_machine=same_machine)
    weight = dict(zip(map(id, (own, rival.case)), weights, strict=True))
    return break_evens(own, rival, [figure(**members)], lambda one: weight[id(one)])


def test_the_break_even_is_where_two_laws_are_equal():
    for law, other, expected in [
        (lambda x: x, lambda x: 3, 3),
        (lambda x: x, lambda x: FURTHEST, FURTHEST),
        (lambda x: x, lambda x: 1 / FURTHEST, 1 / FURTHEST),
        (lambda x: x, lambda x: FURTHEST * 1.01, None),
        (lambda x: x**-0.5, lambda x: 0.7 * x, 0.7 ** (-2 / 3)),
        (lambda x: 1 + x**9, lambda x: 2, 1),
        (lambda x: math.exp(math.log(x / 2) * math.log(x * 8)), lambda x: 1, 2),  # 1/8 is further
        (lambda x: 1 if x < 3 else 8, lambda x: 4, None),  # a step, over which nothing is equal
        (lambda x: max(x - 3, 0), lambda x: 2, 5),  # 0 is no multiple of anything
        (lambda x: -x, lambda x: 1, None),
    ]:
        (one,) = found(law, other)
        assert one.factor == (None if expected is None else pytest.approx(expected, rel=1e-9))
        assert one.ratio == (None if expected is None else pytest.approx(1, abs=1e-6))


def test_another_machine_keeps_its_statistic_and_processors_count():
    def factor(other, **options):
        return found(lambda x: x, other, **options)[0].factor

    assert factor(lambda x: 2 * x) is None
    assert factor(lambda x: 2 * x, same_machine=False) == pytest.approx(2)
    assert factor(lambda x: 3, weights=(6, 1)) == pytest.approx(3 / 6)
    for members in ({"unit": "GiB"}, {"kind": int}, {"unit": ""}):  # what is not tried
        assert found(lambda x: x, lambda x: 3, **members) == ()


def test_elasticities_of_rates_and_times_add_up():
    """Of a statistic that goes with powers of the factor by which the machine is faster."""
    known = {"TFLOP/s": -0.4, "GB/s": -0.1, "1/h": None, "s": 0.02, "h": 0.03, "d": 0.05, "": 7.0}
    effects = [SimpleNamespace(figure=figure(unit=unit), elasticity=known[unit]) for unit in known]
    laws = SimpleNamespace(faster=lambda factor, *, figures: factor ** (-0.9 if figures else -0.3))
    sums = total(laws, effects)
    assert sums.stated == pytest.approx(-0.4 - 0.1 - 0.02 - 0.03 - 0.05)
    assert (sums.lists, sums.together) == pytest.approx((-0.3, -0.9))
    assert (sums.unstated, sums.thresholds) == pytest.approx((0.1, sums.sum + 0.9))
