"""Changes of single expressions, and the outputs of two checkouts compared."""

import ast

import pytest

from scripts.freeze_run import differences, words_of_html
from scripts.mutants_run import Function, Places, Switching, changed, place, strongest
from tests.times import Listed, updated


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a + b", "a - b"),
        ("a * b", "a / b"),
        ("a < b", "a <= b"),
        ("a in b", "a not in b"),
        ("a and b", "a or b"),
        ("not a", "a"),
        ("-a", "a"),
        ("a if b else c", "c if b else a"),
        ("3", "4"),
        ("0.5", "1.25"),
        ("np.minimum(a, b)", "np.maximum(a, b)"),
        ("max(a)", "min(a)"),
        ("f'{a}' + b", None),
        ("True", None),
        ("f(a)", None),
    ],
)
def test_an_expression_is_changed(before, after):
    new = changed(ast.parse(before, mode="eval").body)
    assert (ast.unparse(new) if new else None) == after


def test_a_switch_chooses_between_an_expression_and_its_change():
    tree = ast.parse("def f(a, b=1):\n    return (a + 2) * 3")
    finder = Places()
    finder.visit(tree)
    texts = ["as it is", *map(ast.unparse, finder.found)]
    numbers = {place(node): number for number, node in enumerate(finder.found)}
    code = compile(Switching(numbers).visit(tree), "f", "exec")
    values = {}
    for number, text in enumerate(texts, -1):
        names = {"__builtins__": {"__import__": lambda _, on=number: Switch(on)}}
        exec(code, names)
        values[text] = names["f"](1)
    assert values == {"as it is": 9, "(a + 2) * 3": 1, "a + 2": -3, "2": 12, "3": 12}


def test_the_fast_tests_notice_the_most_changes_in_their_time():
    functions = {
        "quick": Function(0.1, {0}),
        "dear": Function(9.0, {0, 1, 2, 3}),
        "cheap": Function(1.0, {1, 2}),
        "other": Function(0.5, {3}, {0}),
        "same": Function(0.2, {4}, {0}),
        "no test of the suite": Function(0.1, {5}),
    }
    slow = {"dear", "cheap", "other", "same"}

    def chosen(seconds):
        return strongest(functions, [2.0], {"quick"}, slow, seconds)

    assert chosen(1.5) == ["cheap"]
    assert chosen(2.9) == ["cheap"]  # the others need a result that takes 2 s
    assert chosen(3.2) == ["cheap", "same"]
    assert chosen(3.8) == ["cheap", "same", "other"]  # for which it is there
    assert chosen(20.0) == ["cheap", "same", "other", "dear"]


def test_the_list_of_slow_tests_keeps_what_has_not_changed():
    old = {"a": Listed(1.0, True), "b": Listed(1.0), "gone": Listed(1.0), "near": Listed(0.035)}
    new = updated(old, {"a": 2.0, "b": 4.0, "c": 0.5, "short": 0.01, "near": 0.01})
    kept = {"a": Listed(1.0, True), "near": Listed(0.035)}
    assert new == kept | {"b": Listed(4.0), "c": Listed(0.5)}
    assert updated({"b": Listed(1.0)}, {"b": 0.02}) == {}


class Switch:
    """The change that is on."""

    def __init__(self, active: int) -> None:
        self.active = active

    def on(self, number: int) -> bool:
        return number == self.active


def test_outputs_are_compared_word_by_word_but_for_what_is_agreed():
    old = {"a": "step 1.25 s\nof all", "b": "x", "c": "y", "d": "z"}
    new = {"a": "step 1.25 s of\nall", "b": "x2", "c": "y2", "e": "z"}
    assert list(differences(old, new, ["c*", "x -> x2"])) == ["d: only before", "e: only now"]
    assert list(differences({"a": "1.250"}, {"a": "1.25"}, [])) == ["a:\n    -1.250\n    +1.25"]
    assert words_of_html("<style>p</style><p class='a'>1 &lt; 2</p>").split() == ["1", "<", "2"]
