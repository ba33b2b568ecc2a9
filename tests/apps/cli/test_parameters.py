"""``calculon llm-parameter-calculator``: the published line."""

import json

import pytest

from tests.helpers import document


@pytest.mark.parametrize("command", ["lpc", "llm-parameter-calculator"])
def test_the_line_is_the_published_one(run, command):
    assert run(command, "megatron-1T") == (0, "megatron-1T   -> 1.008 T\n", "")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["gpt3-175B"], "gpt3-175B     -> 174.616 G\n"),
        (["gpt3-175B", "-a", "4"], "gpt3-175B -> 174.616 G\n"),
        (["gpt3-175B", "--aligns", "20"], "gpt3-175B            -> 174.616 G\n"),
        (["gpt3-175B", "-a", "-3"], "gpt3-175B -> 174.616 G\n"),
    ],
    ids=["13 characters", "never cut", "wider", "negative"],
)
def test_names_are_padded(run, arguments, line):
    assert run("lpc", *arguments).out == line


def test_a_file_is_named_without_its_last_extension(run, tmp_path):
    (tmp_path / "my.model.json").write_text(json.dumps(document("models", "megatron-1T")))
    assert run("lpc", "my.model.json").out == "my.model      -> 1.008 T\n"


def test_an_unknown_model_is_an_error(run):
    assert run("lpc", "gpt3-177b").code == 2
