"""Tables of cases name those that fail, and leave fixtures to pytest."""

import inspect

import pytest

from tests.cases import for_each


def test_all_cases_that_fail_are_named():
    @for_each("third", [3, 0])
    @for_each(("first", "second"), [(1, 2), (3, 4)])
    def sums(tmp_path, first, second, third):
        assert first + second == third

    assert [*inspect.signature(sums).parameters] == ["tmp_path"]
    with pytest.raises(AssertionError) as caught:
        sums(tmp_path=None)
    assert caught.value.__notes__ == [
        "case: {'first': 3, 'second': 4}",
        "case: {'third': 3}",
        "also case: {'first': 1, 'second': 2}; also case: {'first': 3, 'second': 4}; "
        "case: {'third': 0}",
    ]


def test_a_case_that_should_raise_fails_where_it_does_not():
    @for_each("value", [1])
    def raises(value):
        with pytest.raises(ValueError, match="1"):
            str(value)

    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        raises()
