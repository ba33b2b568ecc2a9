"""Words and statements of shell scripts."""

import pytest

from calculon.errors import SpecError
from calculon.launch.texts.shell_words import (
    Array,
    Choice,
    Function,
    Group,
    Loop,
    Simple,
    statements,
)


def _words(text):
    return [one.words for one in statements(text, "run.sh") if isinstance(one, Simple)]


def test_words_keep_their_quotes_and_lose_comments_and_continuations():
    text = "train 'a b' \"$X y\" \\\n  --flag # a comment \\\nnext"
    assert _words(text) == [("train", "'a b'", '"$X y"', "--flag"), ("next",)]


def test_redirections_are_no_words():
    rows = ["> log", "2>&1 | tee log", "&> log", ">> log", "<<< text"]
    for end in rows:
        assert _words(f"train --a 1 {end}")[0] == ("train", "--a", "1"), end


def test_lists_are_assigned_and_added_to_with_comments_between_their_words():
    found = statements("A=( --x 1 # one\n  --y )\nA+=('--z 2')", "run.sh")
    assert found == (
        Array("A", False, ("--x", "1", "--y"), 1),
        Array("A", True, ("'--z 2'",), 3),
    )


def test_a_choice_has_a_branch_for_each_condition_and_one_without():
    (found,) = statements("if [ $A = 1 ]; then x; elif [ $A = 2 ]\nthen y\nelse z; fi", "run.sh")
    assert isinstance(found, Choice)
    assert [words for words, _ in found.branches] == [
        ("[", "$A", "=", "1", "]"),
        ("[", "$A", "=", "2", "]"),
        (),
    ]
    assert [body[0].words for _, body in found.branches] == [("x",), ("y",), ("z",)]


def test_cases_have_their_patterns_and_the_star_always_holds():
    (found,) = statements("case $M in\n 8B | 7B) a;; *) b ;;\nesac", "run.sh")
    assert [words for words, _ in found.branches] == [("case", "$M", "8B", "7B"), ()]


def test_tests_joined_with_an_assignment_are_choices():
    first, second = statements('[ -z "$Q" ] && Q=4\n[ -n "$Q" ] || Q=5', "run.sh")
    assert first.branches == ((("[", "-z", '"$Q"', "]"), (Simple(("Q=4",), 1),)),)
    assert second.branches[0][0][0] == "!"


def test_loops_and_functions_have_bodies():
    loop, function = statements("for i in 1 2; do echo $i; done\nf() { echo x; }", "run.sh")
    assert loop == Loop((Simple(("echo", "$i"), 1),), "i", ("1", "2"))
    assert function == Function("f", (Group((Simple(("echo", "x"), 2),)),))


def test_here_documents_belong_to_their_command_and_are_no_statements():
    first, second = statements("read -r -d '' cmd <<EOF\nmkdir x\nEOF\ntrain", "run.sh")
    assert first.text == "mkdir x"
    assert second.words == ("train",)


def test_here_documents_that_the_file_ends_before_are_empty():
    rows = ["train <<", "train <<EOF", "train <<-EOF; more"]
    for text in rows:
        first, *_ = statements(text, "run.sh")
        assert first == Simple(("train",), 1), text


def test_what_has_no_end_is_told_with_its_line():
    rows = ["a 'b", 'a "b', "A=(1 2", "a ${B", "a $(b", "a `b"]
    for text in rows:
        with pytest.raises(SpecError, match=r"run.sh:2: expected the end of what") as caught:
            statements(f"first\n{text}", "run.sh")
        assert caught.value.found == "the end of the file"
