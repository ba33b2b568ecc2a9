"""The three words of a question: processors and machine may stand in either order."""

import json
from argparse import Namespace

from calculon.cli.question_options import set_in_order


def test_a_plan_takes_the_machine_before_the_processors(run):
    words = ("plan", "gpt2-124M", "h100", "2", "--batch", "8", "--fix", "tensor_par=1", "-o", "-")
    question = json.loads(run(*words).out)["question"]
    assert (question["system"]["name"], question["num_procs"]) == ("h100_80g_sxm", [2])


def _in_order(*words):
    arguments = Namespace(num_procs=words[0], system=words[1])
    set_in_order(arguments)
    return arguments.num_procs, arguments.system


def test_counts_and_a_machine_find_their_places():
    for counts in ("8", "1k", "512,1024", "512-4096", "8:64:x2", "any"):
        for system in ("h100", "h100,h200", "node.json", "2080ti"):
            assert _in_order(counts, system) == _in_order(system, counts) == (counts, system)


def test_what_may_be_either_stays_as_it_was_written():
    for words in (("8", "16"), ("h100", "h200"), ("any", "1k")):
        assert _in_order(*words) == words


def test_a_file_that_is_called_as_a_count_is_a_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "8").write_text("{}")
    assert _in_order("h100", "8") == ("h100", "8")
