"""Whole numbers of shell scripts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon.launch.texts.reading_budget import Budget
from calculon.launch.texts.shell_arithmetic import decided, whole


def _none(name):
    raise ValueError(name)


def test_expressions_have_the_values_of_c():
    rows = [
        *(("2 + 3 * 4", 14), ("(2 + 3) * 4", 20), ("-7 / 2", -3), ("7 % 4", 3), ("-7 % 4", -3)),
        *(("2 > 1 ? 5 : 6", 5), ("2 < 1 ? 5 : 6", 6), ("3 == 3", 1), ("3 != 3", 0)),
    ]
    assert [whole(text, _none) for text, _ in rows] == [value for _, value in rows]


def test_names_stand_for_variables():
    assert whole("A * (B + 1)", {"A": 3, "B": 4}.__getitem__) == 15


def test_nothing_else_has_a_value():
    rows = ["1.5", "f(1)", "a", "2 ** 3", "'x'", "1 +"]
    for text in rows:
        with pytest.raises((ValueError, SyntaxError)):
            whole(text, _none)


@given(st.integers(-1000, 1000), st.integers(-50, 50).filter(bool))
def test_quotient_and_remainder_give_the_number_again(a, b):
    assert whole(f"({a}) / ({b})", _none) * b + whole(f"({a}) % ({b})", _none) == a


def test_comparisons_hold_or_are_not_known():
    rows = [
        *(("8B", "=", "8B", True), ("8B", "==", "7?", False), ("70B", "==", "7*", True)),
        *(("a", "!=", "b", True), ("8", "-gt", "4", True), ("", "-eq", "0", True)),
        *(("x", "-eq", "0", None), ("a", "=~", "a", None)),
    ]
    for first, operator, second, holds in rows:
        found = decided(first, operator, second, Budget("run.sh"))
        assert found is holds, (first, operator, second)
