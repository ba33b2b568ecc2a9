"""Exponentials of small numbers, against their series in exact fractions."""

from fractions import Fraction
from math import factorial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.campaign.exponentials import curvature, growth, ratio, sine_excess
from tests.cases import for_each

NUMBERS = st.floats(-3.0, 3.0)


def series(x, first, step):
    """Return Σ x^(k step)/(first + k step)! of one number, in fractions."""
    x = Fraction(x)
    return float(sum(x ** (k * step) / factorial(first + k * step) for k in range(40)))


@given(NUMBERS)
def test_none_loses_digits(x):
    assert growth(x) == pytest.approx(series(x, 1, 1), rel=1e-14)
    assert curvature(x) == pytest.approx(series(x, 2, 1), rel=1e-14)
    assert sine_excess(x) == pytest.approx(series(x, 3, 2), rel=1e-13)


@for_each("law", [growth, curvature, sine_excess])
def test_they_overflow_in_silence(law):
    assert law(np.array([800.0, np.inf])).tolist() == [np.inf, np.inf]


def test_shares_of_nothing_are_none():
    zero = np.zeros(2)
    assert ratio(zero, np.array([0.0, np.inf])).tolist() == [0, 0]
