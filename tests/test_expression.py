"""Arithmetic of study files."""

import numpy as np
import pytest

from calculon.declarations.expression import Expression

CELLS = {"a": 6, "b": 4, "text": "full", "blank": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + b * 2", 14),
        ("(a + b) * 2 - -1", 21),
        ("a / b", 1.5),
        ("a // b + a % b", 3),
        ("7", 7),
        ("'attn_only' if text == 'full' else text", "attn_only"),
        ("a if text != 'full' else b", 4),
        ("blank or 96", 96),
        ("a or 96", 6),
        ("a > b and b >= 4", True),
        ("not a < b or blank", True),
        ("a <= b or blank", None),
    ],
)
def test_value(text, value):
    assert Expression.parse(text).of(CELLS) == value


def test_names_are_those_it_needs():
    assert Expression.parse("a / (b * a) if c == 'd' else e").names == ("a", "b", "c", "e")


def test_works_on_arrays():
    found = Expression.parse("x + 2 * y").of({"x": np.arange(3.0), "y": np.ones(3)})
    assert found.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "f(a)",
        "a.b()",
        "a[b]",
        "(a + b).c",
        "lambda: 0",
        "{a}",
        "min()",
        "floor(a, b)",
        "None",
        "1j",
        "b'x'",
        "a is b",
        "f'{a}'",
        "(" * 300,
    ],
)
def test_refuses_what_is_more_than_arithmetic(text):
    with pytest.raises(ValueError, match=r".+"):
        Expression.parse(text)


@pytest.mark.parametrize(("text", "words"), [("a / 0", "a=6"), ("blank * a", r"blank=\(blank\)")])
def test_says_why_there_is_no_value(text, words):
    with pytest.raises(ValueError, match=words):
        Expression.parse(text).of(CELLS)


def test_decodes_numbers_and_reports_the_rest():
    problems = []
    assert Expression.decode(3, "x", problems).of({}) == 3
    assert not problems
    assert Expression.decode(["a"], "x", problems) is None
    assert Expression.decode("a(", "y", problems) is None
    assert [problem.field for problem in problems] == ["x", "y"]


def test_a_text_is_not_computed_with():
    with pytest.raises(ValueError, match="no value for 'a' \\* 3000000000"):
        Expression.parse("'a' * 3000000000").of({})


def test_an_expression_is_as_deep_as_functions_can_walk():
    assert Expression.parse(" + ".join(["a"] * 200)).of({"a": 1}) == 200
    with pytest.raises(ValueError, match="too long an expression"):
        Expression.parse(" + ".join(["a"] * 202))
