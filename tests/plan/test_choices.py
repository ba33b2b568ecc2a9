from dataclasses import replace

import numpy as np
import pytest

from calculon.base.distinct_rows import LARGEST_RANGE, distinct
from calculon.declarations.fields import Scope
from calculon.plan import choices
from calculon.plan.columns import field_of

FIELD, NUMBER = field_of("tp_async"), field_of("vocab_pad_multiple")


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        (FIELD, {"scope": Scope(0)}, "no scope"),
        (FIELD, {"searched": "loop"}, "(searched)"),
        (FIELD, {"adds": ""}, "lacks words"),
        (FIELD, {"mark": ""}, "lacks words"),
        (NUMBER, {"samples": ()}, "(samples)"),
        (NUMBER, {"scope": Scope.LAYOUT | Scope.BLOCK}, "decides no layers"),
        (NUMBER, {"scope": Scope.BATCH}, "SIZE_FIELDS"),
    ],
)
def test_what_a_declaration_leaves_out_is_found(field, change, words):
    assert list(choices._undeclared(field)) == []
    changed = replace(field, declaration=replace(field.declaration, **change))
    (found,) = choices._undeclared(changed)
    assert words in found


DRAW = np.random.default_rng(0)


@pytest.mark.parametrize(
    "columns",
    [
        [DRAW.integers(0, 2, 50).astype(bool), DRAW.integers(-1, 3, 50).astype(np.int8)],
        [DRAW.integers(0, 3, 50), np.zeros(50, np.int64), DRAW.integers(5, 9, 50)],
        [DRAW.integers(0, 3, 50) * LARGEST_RANGE, DRAW.integers(0, 3, 50).astype(float)],
        [DRAW.integers(0, 2**31, 50) for _ in range(4)],
        [np.array([7]), np.array([True])],
    ],
    ids=["small", "constant", "sorted", "large", "one"],
)
def test_distinct_rows_are_those_of_unique(columns):
    rows, row_of, first = distinct(columns)
    table = np.stack(columns, axis=1).astype(np.int64)
    expected, where, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    assert np.array_equal(rows, expected)
    assert np.array_equal(row_of, inverse.ravel())
    assert np.array_equal(first, where)
