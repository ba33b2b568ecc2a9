"""``calculon llm-parameter-calculator``: the published line."""

import json
import re

import pytest

from tests.helpers import document


def test_a_file_is_named_without_its_last_extension(run, tmp_path):
    (tmp_path / "my.model.json").write_text(json.dumps(document("models", "megatron-1T")))
    assert run("lpc", "my.model.json").out == "my.model      -> 1.008 T\n"


def test_active_parameters_are_counted_with_and_without_the_input_embedding(run):
    # OpenAI 2025, arXiv:2508.10925, table 1: 5.13 and 3.61 billion, without the embedding
    for name, active, reported in (("gpt-oss-120b", 5.71, 5.13), ("gpt-oss-20b", 4.19, 3.61)):
        line = run("lpc", name).out
        found = re.search(r", ([\d.]+) G active \(([\d.]+) G without the input embedding\)", line)
        assert [float(one) for one in found.groups()] == pytest.approx([active, reported], abs=5e-3)
    shown = json.loads(run("catalog", "show", "gpt-oss-20b", "--format", "json").out)
    assert "active_parameters_without_embedding" in json.dumps(shown)
    assert "without the input embedding" not in run("lpc", "llama3-8B").out
