"""Columns of codes in limits of frameworks compare as the names that they stand for."""

import numpy as np

from calculon.plan.rules.preset_rules import _Named


def test_two_columns_of_names_compare_name_by_name():
    one = _Named(np.array([0, 1, -1]), ("a", "b"))
    other = _Named(np.array([1, 0, -1]), ("b", "a"))
    assert (one == other).tolist() == [True, True, True]
    assert (one != _Named(np.array([0, 0, 0]), ("a",))).tolist() == [False, True, True]
    assert (one == "b").tolist() == [False, True, False]
