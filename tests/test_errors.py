import pickle

import pytest

from calculon.base.errors import (
    MAX_PROBLEMS,
    CalculonError,
    Infeasible,
    Problem,
    SpecError,
    nearest,
)

FIRST = Problem("networks[1].efficiency", "a number of at most 1", "92", "write 0.92 for 92 %")
SECOND = Problem("", "an object", "null")


def test_a_problem_reads_as_place_expected_found_and_hint():
    assert str(FIRST) == (
        "networks[1].efficiency: expected a number of at most 1, found 92. Hint: write 0.92 for 92 %"
    )
    assert str(SECOND) == "expected an object, found null"


def test_a_spec_error_tells_all_problems_and_the_parts_of_the_first():
    error = SpecError("my.json", [FIRST, SECOND])
    assert str(error).splitlines() == [f"my.json: {FIRST}", f"my.json: {SECOND}"]
    assert (error.file, error.field) == ("my.json", FIRST.field)
    assert (error.expected, error.found, error.hint) == (FIRST.expected, FIRST.found, FIRST.hint)
    assert error.problems == (FIRST, SECOND)
    assert SpecError("my.json", SECOND).problems == (SECOND,)


def test_errors_can_be_caught_as_what_they_are():
    assert issubclass(SpecError, ValueError)
    assert issubclass(SpecError, CalculonError)
    assert issubclass(Infeasible, CalculonError)
    assert not issubclass(Infeasible, ValueError)


@pytest.mark.parametrize(
    "error",
    [
        SpecError("my.json", [FIRST, SECOND]),
        Infeasible("degrees", "no such split"),
        Infeasible("mem1_capacity", "too small", 2.0, 1.0, 1),
    ],
)
def test_an_error_survives_the_way_back_from_another_process(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("hiden", "did you mean 'hidden'?"), ("sequence", ""), ("", "")],
)
def test_the_nearest_spelling_is_suggested_only_when_it_is_near(name, hint):
    assert nearest(name, ["hidden", "seq_size"]) == hint


def test_a_message_tells_so_many_problems_and_counts_the_others():
    problems = [Problem(f"k{i}", "nothing", "something") for i in range(1_234)]
    error = SpecError("my.json", problems)
    assert error.problems == tuple(problems)
    lines = str(error).splitlines()
    assert len(lines) == MAX_PROBLEMS + 1
    assert lines[-1] == "my.json: and 1,214 more"
    assert len(str(SpecError("my.json", [Problem("k" * 10**6, "nothing", "something")]))) < 5_000


def test_messages_escape_what_a_terminal_would_act_on():
    error = SpecError("\x1b[31mred\n.json", Problem("a\tb", "é", "\ud800"))
    assert str(error) == r"\x1b[31mred\n.json: a\tb: expected é, found \ud800"
    assert str(Infeasible("nothing", "my\x07.json: no")) == r"my\x07.json: no"
