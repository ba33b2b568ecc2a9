import math
from typing import get_type_hints

import pytest

from calculon.base import units
from calculon.declarations.statistics import Work


@pytest.mark.parametrize(("power", "prefix"), [*enumerate("kMGTPEZY", 1)])
def test_each_prefix_stands_for_a_thousand_or_1024_of_the_one_before(power, prefix):
    assert units.scaled(1.5 * 1000.0**power, "B") == f"1.500 {prefix}B"
    assert units.scaled(1.5 * 1024.0**power, "B", binary=True) == f"1.500 {prefix.upper()}iB"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999, "999.000"),
        (-1000, "-1.000 k"),
        (1e30, "1000000.000 Y"),
        (math.inf, "inf"),
        (0, "0.000"),
    ],
)
def test_scaled_at_the_edges(value, text):
    assert units.scaled(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5e-7, "0.5000 us"),
        (9.5e-4, "950.0 us"),
        (1e-3, "1.000 ms"),
        (0.5, "500.0 ms"),
        (1, "1.000 s"),
        (86400, "86400 s"),
        (-2.5, "-2.500 s"),
        (math.inf, "inf s"),
    ],
)
def test_a_duration_has_four_digits_and_a_unit_that_suits_it(seconds, text):
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.827, 0.119, "0.83"),  # the examples of the Particle Data Group
        (0.827, 0.367, "0.83"),  # but never one digit alone
        (5.993, 0.354, "5.99"),
        (5.993, 0.355, "6.0"),
        (5.993, 5.0, "6.0"),
        (5.993, 1e-9, "5.993"),
        (699832.0, 8e4, "700,000"),
        (-12.34, 0.5, "-12.3"),
        (0.0, 1.0, "0"),
        (math.inf, 1.0, "inf"),
        (12.3456, 0.0, "12.35"),
    ],
)
def test_a_number_has_the_digits_that_its_error_leaves(value, error, text):
    assert units.known(value, error) == text


@pytest.mark.parametrize(
    ("seconds", "error", "text"),
    [(1.04, 0.1, "1.04 s"), (0.1234, 0.03, "123 ms"), (3.21e-5, 2e-6, "32.1 us")],
)
def test_a_duration_with_an_error(seconds, error, text):
    assert units.duration(seconds, error) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (1234.5, "1234"), (0.012, "0.01200"), (math.nan, "nan")]
)
def test_significant_digits_without_an_exponent(value, text):
    assert units.significant(value) == text


def test_an_annotation_tells_its_unit():
    hints = get_type_hints(Work, include_extras=True)
    assert units.unit_of(hints["time"]) == units.Unit("s")
    assert units.unit_of(hints["mem_accessed"]) == units.Unit("B", binary=True)
    assert units.unit_of(float) == units.Unit("")
