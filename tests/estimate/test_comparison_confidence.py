"""Confidence in the order of two predicted times: properties of the margin, and pairs of measured runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.declarations.statistics import ALL_PARTS_OF_TIME, LEVEL
from calculon.estimate import comparison_confidence
from calculon.estimate.comparison_confidence import (
    MAX_TIED,
    REPEATS,
    REST,
    calibrated_margins,
    errors_of_parts,
    margins_of_shares,
    ordered,
    orders,
    orders_of_stats,
    pairs_of,
    shares_of,
)
from calculon.estimate.evaluate import evaluate
from calculon.estimate.validated_runs import Runs, runs
from calculon.hardware.figures import slowed
from calculon.hardware.residuals import Residuals, Spread
from calculon.plan.plan import Plan
from tests.store import cache

MODEL, SYSTEM = "llama3-8B", "h100_80g_sxm"
PLAN = {
    "base": "megatron-lm",
    "tensor_par": 2,
    "pipeline_par": 1,
    "data_par": 32,
    "batch_size": 512,
}
PLANS = (
    PLAN,
    PLAN | {"grad_clip": False},
    PLAN | {"tensor_par": 4, "data_par": 16},
    PLAN | {"tensor_par": 8, "data_par": 8, "activation_recompute": "full"},
)

COUNT = len(ALL_PARTS_OF_TIME)


@cache
def _table():
    plan = Plan.from_records([inputs.execution(one) for one in PLANS])
    return plan, evaluate(MODEL, SYSTEM, plan)


def _stats(table):
    return {name: table[name] for name in table.names}


shares = st.lists(st.floats(0.001, 1), min_size=COUNT, max_size=COUNT).map(
    lambda parts: np.array(parts) / sum(parts)
)


@given(shares, shares)
def test_margins_are_symmetric_and_equal_plans_have_none(one, other):
    both = np.array([one, other]).T
    assert margins_of_shares(both) == pytest.approx([0, margins_of_shares(both, 1)[0]])
    assert margins_of_shares(np.array([one, one]).T).tolist() == [0, 0]


@given(shares, shares, st.integers(0, COUNT - 1), st.floats(0, 4))
def test_a_part_without_error_does_not_count(one, other, part, scale):
    both, errors = np.array([one, other]).T, np.linspace(0.5, 2, COUNT)
    margin = margins_of_shares(both, 0, errors)[1]
    assert margins_of_shares(both, 0, errors * scale)[1] == pytest.approx(scale * margin)
    errors[part] = 0
    only = np.delete(one - other, part) * np.delete(errors, part)
    assert margins_of_shares(both, 0, errors)[1] == pytest.approx(math.hypot(*only))


def test_equal_plans_tie_and_the_probability_is_that_of_a_normal_error():
    assert ordered(0.0, 0.0).probability == 0.5
    assert not ordered(0.0, 0.0).distinguishable
    assert ordered(0.1, 0.0).probability == 1
    assert ordered(0.1, 0.1).probability == pytest.approx((1 + LEVEL) / 2)
    assert ordered(0.11, 0.1).distinguishable
    assert not ordered(0.09, 0.1).distinguishable
    one, other = ordered(0.05, 0.1), ordered(-0.05, 0.1)
    assert one.probability + other.probability == pytest.approx(1)
    assert one.longer == pytest.approx(math.expm1(0.05))
    assert one.to_dict()["margin"] == pytest.approx(math.expm1(0.1))


def test_plans_are_ordered_by_their_rates_and_shares():
    plan, table = _table()
    stats = _stats(table)
    model, system = inputs.model(MODEL), inputs.system(SYSTEM)
    found = orders(model, system, plan, stats)
    assert found[0].probability == 0.5
    rates, margins = table["sample_rate"], margins_of_shares(shares_of(stats))
    for one, rate, margin in zip(found, rates, margins, strict=True):
        assert one.longer == pytest.approx(rates[0] / rate - 1)
        assert one.margin == pytest.approx(math.expm1(margin))
    back = orders(model, system, plan, stats, first=2)
    assert back[0].probability == pytest.approx(1 - found[2].probability)
    plain = [calculon.estimate(MODEL, one, SYSTEM).stats for one in PLANS]
    for one, other in zip(orders_of_stats(plain), found, strict=True):
        assert one.to_dict() == pytest.approx(other.to_dict())


# -- a calibrated system ----------------------------------------------------------------------------------------------


def _calibrated(*spreads):
    system = inputs.system(SYSTEM)
    return replace(system, calibration=Residuals(spreads))


NETWORK = Spread(part="networks[0]", low=0.8, high=1.3, level=0.9)
MATRIX = Spread(part="matrix.bfloat16", low=0.9, high=1.1, level=0.9)


def test_residuals_of_parts_are_perturbed_for_both_plans_together():
    plan, table = _table()
    model, system = inputs.model(MODEL), _calibrated(NETWORK, MATRIX)
    squares = np.zeros(len(plan))
    for one in (NETWORK, MATRIX):
        low, same, high = (
            evaluate(model, slowed(system, one, factor), plan)["total_time"]
            for factor in (one.low, 1.0, one.high)
        )
        assert same == pytest.approx(table["total_time"], rel=1e-4)
        sides = (np.log(times / times[0] / (same / same[0])) for times in (low, high))
        squares += np.max(np.abs(list(sides)), axis=0) ** 2
    found = calibrated_margins(model, system, plan)
    assert found == pytest.approx(np.sqrt(squares))
    assert found[0] == 0
    told = orders(model, system, plan, _stats(table))
    assert [one.margin for one in told] == pytest.approx(np.expm1(found).tolist())


def test_residuals_of_whole_iterations_say_nothing_of_parts():
    plan, _ = _table()
    whole = Spread(part="training", low=0.8, high=1.2, level=0.9)
    assert calibrated_margins(inputs.model(MODEL), _calibrated(whole), plan) is None


# -- pairs of measured runs -------------------------------------------------------------------------------------------


def _runs(*rows):
    """Return runs of source, parameters, measured and predicted time, and the share of exposed traffic."""
    names = ("source", "parameters", "measured", "predicted", "share")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    place = ALL_PARTS_OF_TIME.index("tp_comm_exposed_time")
    parts = []
    for share in columns.pop("share"):
        cells = ["0"] * len(ALL_PARTS_OF_TIME)
        cells[place], cells[0] = str(100 * share), str(100 * (1 - share))
        parts.append(" ".join(cells))
    same = dict.fromkeys(("system", "type", "preset"), ["x"] * len(rows))
    texts = {name: list(map(str, cells)) for name, cells in columns.items()}
    return Runs({**texts, **same, "parts": parts})


SOME = _runs(
    ("one", 7, 1.0, 1.0, 0.1),  # three pairs
    ("one", 7, 1.1, 1.0, 0.2),
    ("one", 7, 2.0, 2.0, 0.4),
    ("one", 13, 5.0, 1.0, 0.4),  # another model: no pair
    ("two", 7, 1.2, 1.0, 0.2),
    ("two", 7, 2.4, 1.0, 0.4),
    ("three", 7, 9.0, 1.0, 0.4),  # alone
)


def test_pairs_are_of_one_model_and_source_and_sources_count_alike():
    pairs = pairs_of(SOME)
    order = np.argsort(pairs.errors)
    assert pairs.errors[order] == pytest.approx([0, math.log(1.1), math.log(1.1), math.log(2)])
    assert pairs.weights[order] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])
    each = math.hypot(1, REST)
    assert sorted(pairs.distances) == pytest.approx(
        [0.1 * each, 0.2 * each, 0.2 * each, 0.3 * each]
    )


def test_the_error_of_a_part_is_the_quantile_over_sources():
    two = math.sqrt(math.log(2) ** 2 - REPEATS**2) / (0.2 * math.hypot(1, REST))
    assert pairs_of(SOME).error == pytest.approx(two)
    alone = pairs_of(SOME).without(1)  # the second source
    one = math.sqrt(math.log(1.1) ** 2 - REPEATS**2) / (0.1 * math.hypot(1, REST))
    assert alone.error == pytest.approx(one)
    assert alone.margins(one).max() == pytest.approx(
        math.hypot(REPEATS, one * 0.3 * math.hypot(1, REST))
    )


def test_without_pairs_nothing_is_told_apart(monkeypatch):
    alone = _runs(("one", 7, 1.0, 1.0, 0.1), ("two", 7, 1.1, 1.0, 0.3))
    assert pairs_of(alone).error == math.inf
    assert pairs_of(Runs(dict.fromkeys(alone.columns, ()))).error == math.inf
    monkeypatch.setattr(comparison_confidence, "runs", lambda: alone)
    monkeypatch.setattr(comparison_confidence, "errors_of_parts", errors_of_parts.__wrapped__)
    both = np.array([[0.5, 0.5], [0.5, 0.5], *[[0, 0]] * (COUNT - 2)])
    assert margins_of_shares(both).tolist() == [0, 0]
    both[:2, 1] = (0.4, 0.6)
    assert margins_of_shares(both).tolist() == [0, math.inf]
    assert not ordered(math.log1p(0.99 * MAX_TIED), math.inf).distinguishable
    assert ordered(math.log1p(1.01 * MAX_TIED), math.inf).distinguishable  # a tie is never larger
    assert ordered(0.7, math.inf).probability == 0.5


@pytest.mark.parametrize("sign", [-1, 1])
def test_plans_that_differ_as_repeated_runs_do_are_a_tie(sign):
    assert not ordered(0.99 * sign * REPEATS, 0.0).distinguishable
    assert ordered(1.01 * sign * REPEATS, 0.0).distinguishable


@cache
def _held_out():
    """Return the pairs, the margin of each from all other sources, and the one ratio that fits all as well."""
    pairs = pairs_of(runs())
    margins, constant = np.zeros((2, len(pairs.errors)))
    for source in range(pairs.sources.max() + 1):
        here, others = pairs.sources == source, pairs.without(source)
        margins[here] = pairs.margins(others.error)[here]
        order = np.argsort(others.errors)
        reached = np.cumsum(others.weights[order])
        constant[here] = others.errors[order][np.searchsorted(reached, LEVEL * reached[-1])]
    return pairs, margins, constant


def _covered(pairs, margins, rows):
    return np.average((pairs.errors <= margins)[rows], weights=pairs.weights[rows])


def test_margins_hold_nine_of_ten_pairs_of_sources_that_they_have_not_seen():
    pairs, margins, constant = _held_out()
    everything = np.ones(len(margins), bool)
    assert 0.85 <= _covered(pairs, margins, everything) <= 0.95
    order = np.argsort(pairs.distances, kind="stable")
    reached = np.cumsum(pairs.weights[order]) / pairs.weights.sum()
    quarters = [order[(reached > i / 4) & (reached <= (i + 1) / 4)] for i in range(4)]
    assert all(0.8 <= _covered(pairs, margins, one) <= 0.97 for one in quarters)
    assert _covered(pairs, constant, quarters[0]) > 0.95  # what is alike has a margin too wide
    assert _covered(pairs, constant, quarters[3]) < 0.75  # what is not has one too narrow
