"""``calculon import-model``: a configuration of Hugging Face as a model file."""

import json
from pathlib import Path

import pytest

from calculon import inputs
from tests.declarations.configurations import HUB, llama

COUNT = "8,030,261,248 parameters (8.030 G)"


@pytest.fixture
def config(tmp_path):
    """Write a configuration; return its path."""

    def write(raw=None, name="config.json"):
        path = tmp_path / name
        path.write_text(json.dumps(llama() if raw is None else raw))
        return path

    return write


def test_a_model_is_printed_and_its_count_told(run, config):
    code, out, err = run("import-model", config())
    assert (code, err) == (0, f"{COUNT}\n")
    shipped = inputs.model("llama3-8B").to_dict()
    source = "Hugging Face config.json, model_type llama"
    assert json.loads(out) == shipped | {"about": {"source": source}}


def test_a_folder_stands_for_its_configuration(run, config):
    path = config()
    for command in ("import-model", "import"):
        assert run(command, path.parent).out == run(command, path).out
        assert run(command, "x" * 5000).code == 2


def test_a_model_is_written_and_is_one(run, output_of, config):
    out = output_of("import-model", config(), "-o", "mine.json", "--name", "Mine, 8B")
    assert out == f"Mine, 8B: {COUNT}\nOutput: mine.json\n"
    assert inputs.model("mine.json") == inputs.model("llama3-8B")
    assert run("lpc", "mine.json").out == "mine          -> 8.030 G\n"
    assert json.loads(Path("mine.json").read_text())["about"]["name"] == "Mine, 8B"


def test_the_file_names_the_model_that_has_no_name(run, config):
    out = run("import-model", config(HUB["llama2-7B"]), "-o", "mine.json.gz").out
    assert out.startswith("mine: 6,738,415,616 parameters")
    assert inputs.model("mine.json.gz") == inputs.model("llama2-7B")


def test_a_configuration_comes_from_standard_input(run, standard_input):
    standard_input(json.dumps(llama()).encode())
    code, out, _ = run("import-model", "-", "-o", "-")
    assert code == 0
    assert json.loads(out)["num_blocks"] == 32


def test_what_cannot_be_imported_writes_nothing(refuses, config, tmp_path):
    path = config(llama(vocab_size=None))
    message = f"error: {path}: vocab_size: expected a whole number of at least 1, found null"
    refuses(("import-model", path, "-o"), [("mine.json", message)])
    assert not (tmp_path / "mine.json").exists()


def test_a_wrong_argument_is_one_message(refuses, config, tmp_path):
    text = config().read_text()
    rows = [
        ("-o config.json", "expected a separate file, found an input of that name"),
        ("-o mine.txt", "expected an output name that ends in .json"),
        ("-s 0", "expected a whole number above 0, found '0'"),
        ("-s 9999999999", "the largest whole number is 2147483647"),
    ]
    refuses(("import-model", "config.json"), rows)
    refuses(("import-model",), [("nothing.json", "nothing.json: expected a readable file")])
    assert (tmp_path / "config.json").read_text() == text


def test_a_long_trained_context_is_told(run, config):
    long = config(llama(max_position_embeddings=131_072))
    out = run("import-model", long, "-o", "mine.json").out
    assert "Note: sequences of 131,072 tokens, the longest context" in out
    assert "--seq-size 8192" in out
    assert "--seq-size 8192" in run("import-model", long).err
    assert "Note" not in run("import-model", long, "-o", "mine.json", "--seq-size", "131072").out


def test_the_part_of_a_multimodal_configuration_is_said(output_of, config):
    out = output_of(
        "import-model", config({"model_type": "vl", "llm_config": llama()}), "-o", "m.json"
    )
    assert "Note: the text model only, as described by llm_config" in out


def test_a_model_beyond_all_bounds_of_machine_numbers_is_counted(output_of, config):
    out = output_of("import-model", config(llama(hidden_size=10**9)), "-o", "mine.json")
    assert " E)" in out
