"""How far two times must be apart: what the errors of ratios of measured runs say."""

import math

import numpy as np
import pytest

from calculon.inspect import told_apart
from calculon.inspect.told_apart import least_ratio, ratio_errors
from calculon.inspect.validated_runs import Runs, runs


def _runs(*rows):
    """Return runs of source, parameters, measured and predicted time."""
    columns = dict(
        zip(("source", "parameters", "measured", "predicted"), zip(*rows, strict=True), strict=True)
    )
    same = dict.fromkeys(("system", "type", "preset"), ["x"] * len(rows))
    return Runs({**{name: list(map(str, cells)) for name, cells in columns.items()}, **same})


SOME = _runs(
    ("one", 7, 1.0, 1.0),  # three pairs, of which two are of a run whose time is 10 % longer
    ("one", 7, 1.1, 1.0),
    ("one", 7, 2.0, 2.0),
    ("one", 13, 5.0, 1.0),  # another model: no pair
    ("two", 7, 1.2, 1.0),
    ("two", 7, 2.4, 1.0),
    ("three", 7, 9.0, 1.0),  # alone
)


def test_pairs_are_of_one_model_and_source_and_sources_count_alike():
    errors, weights = ratio_errors(SOME)
    order = np.argsort(errors)
    assert errors[order] == pytest.approx([0, math.log(1.1), math.log(1.1), math.log(2)])
    assert weights[order] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])


@pytest.fixture
def of(monkeypatch):
    """Return the ratio that some runs give."""

    def found(some):
        monkeypatch.setattr(told_apart, "runs", lambda: some)
        return least_ratio.__wrapped__()

    return found


def test_the_ratio_is_the_quantile_of_errors(of):
    assert of(SOME) == pytest.approx(2)
    assert of(_runs(*[("one", 7, 1.1, 1.0), ("one", 7, 1.0, 1.0)])) == pytest.approx(1.1)


def test_without_pairs_nothing_is_told_apart(of):
    assert of(_runs(("one", 7, 1.0, 1.0), ("two", 7, 1.1, 1.0))) == math.inf


def test_runs_of_the_catalog_tell_something():
    errors, weights = ratio_errors(runs())
    largest = math.log(least_ratio()) + 1e-12  # of a rounded exponential
    inside = weights[errors <= largest].sum() / weights.sum()
    assert 0.9 <= inside < 0.93
    assert 1 < least_ratio() < 2
