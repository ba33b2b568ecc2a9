"""The three words of a question: processors and machine may stand in either order."""

from argparse import Namespace

import pytest

from calculon.apps.cli.question_options import set_in_order

QUESTION = ("plan", "gpt2-124M", "--batch", "64", "--seq", "1k", "-o", "-")


def test_a_plan_takes_the_machine_before_or_after_the_processors(run):
    command, model, *options = QUESTION
    told = [run(command, model, *words, *options) for words in (("8", "h100"), ("h100", "8"))]
    assert [one.code for one in told] == [0, 0]
    assert told[0].out == told[1].out


@pytest.mark.parametrize("counts", ["8", "1k", "512,1024", "512-4096", "8:64:x2", "any"])
@pytest.mark.parametrize("system", ["h100", "h100,h200", "node.json", "2080ti"])
def test_counts_and_a_machine_find_their_places(counts, system):
    for words in ((counts, system), (system, counts)):
        arguments = Namespace(num_procs=words[0], system=words[1])
        set_in_order(arguments)
        assert (arguments.num_procs, arguments.system) == (counts, system)


@pytest.mark.parametrize("words", [("8", "16"), ("h100", "h200"), ("any", "1k")])
def test_what_may_be_either_stays_as_it_was_written(words):
    arguments = Namespace(num_procs=words[0], system=words[1])
    set_in_order(arguments)
    assert (arguments.num_procs, arguments.system) == words


def test_a_file_that_is_called_as_a_count_is_a_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "8").write_text("{}")
    arguments = Namespace(num_procs="h100", system="8")
    set_in_order(arguments)
    assert (arguments.num_procs, arguments.system) == ("h100", "8")
