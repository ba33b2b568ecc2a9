"""JSON for people reads back as what was written."""

import json

from hypothesis import given
from hypothesis import strategies as st

from calculon.spec.files import indented

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(document=VALUES)
def test_it_says_the_same(document):
    assert json.loads(indented(document)) == document


def test_lists_of_plain_values_are_on_one_line():
    text = indented({"a": [1, None, "b, [c]"], "d": [[2, 3.5], []]})
    assert text.splitlines()[1:-1] == [
        '  "a": [1, null, "b, [c]"],',
        '  "d": [',
        "    [2, 3.5],",
        "    []",
        "  ]",
    ]
