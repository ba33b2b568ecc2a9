"""``calculon llm``: files as published, the page, and everything that can be wrong with a call."""

import gzip
import json
import time

import pytest

import calculon
from calculon.declarations.statistics import BOUNDS
from tests.cli.conftest import ARGUMENTS
from tests.helpers import NAMES, document

MODEL, EXECUTION, SYSTEM = ARGUMENTS


def test_stats_are_written_in_published_order_and_layout(run, tmp_path):
    assert run("llm", *ARGUMENTS, "stats.json") == (0, "", "")
    text = (tmp_path / "stats.json").read_text()
    stats = json.loads(text)
    assert tuple(stats) == NAMES
    assert stats == calculon.estimate(*ARGUMENTS).stats
    assert text == json.dumps(stats, indent=2)


def test_layers_and_peers_are_written_too(run, tmp_path):
    assert run("llm", *ARGUMENTS, "stats.json.gz", "-l", "-p", "peers.json").code == 0
    text = gzip.decompress((tmp_path / "stats.json.gz").read_bytes()).decode()
    stats = json.loads(text)
    assert list(stats) == [*NAMES, "layers"]
    assert [layer["name"] for layer in stats["layers"]][:2] == [
        "AttnBlock_Fork",
        "AttnBlock_LayerNorm",
    ]
    assert text == json.dumps(stats)
    peers = json.loads((tmp_path / "peers.json").read_text())
    assert list(peers) == [str(rank) for rank in range(3072)]
    assert peers["5"]["tensor"] == [4, 5, 6, 7]
    page = run("llm", *ARGUMENTS, "-", "-l").out
    assert "Mlp1" in page
    assert page.isascii()
    assert all(len(line) <= 80 and line == line.rstrip() for line in page.splitlines())


def test_numbers_that_are_not_finite_are_null(run, tmp_path, execution, monkeypatch):
    plan = execution(training=False, activation_recompute="none", optimizer_sharding=False)
    result = calculon.estimate(MODEL, plan, SYSTEM, layers=True)
    result.layers[0]["fw_arithmetic_intensity"] = float("inf")
    monkeypatch.setattr(
        calculon.Estimate, "to_dict", lambda _: result.stats | {"layers": result.layers}
    )
    assert run("llm", MODEL, plan, SYSTEM, "stats.json", "-l").code == 0
    text = (tmp_path / "stats.json").read_text()
    assert '"act_checkpoint_size_with_offload": null,' in text
    assert '"fw_arithmetic_intensity": null,' in text


def test_statistics_go_through_a_shell_redirection_that_appends(process, tmp_path):
    out = tmp_path / "all.txt"
    out.write_text("older\n")
    with out.open("a") as stream:
        process("llm", *ARGUMENTS, "/dev/stdout", stdout=stream, capture_output=False)
    older, text = out.read_text().split("\n", 1)
    assert (older, text.count('"total_time"')) == ("older", 1)


def test_the_page_goes_to_the_log_file_or_nowhere(run, tmp_path):
    assert run("-l", "page.txt", "llm", *ARGUMENTS, "-") == (0, "", "")
    assert "131.9 s" in (tmp_path / "page.txt").read_text()
    assert run("-v", "WARNING", "llm", *ARGUMENTS, "-") == (0, "", "")


def test_specs_may_be_yaml_or_compressed_or_come_from_standard_input(run, standard_input, tmp_path):
    raw = document("models", MODEL)
    model = "".join(f"{key}: {value}\n" for key, value in raw.items())
    (tmp_path / "model.yaml").write_text(model)
    system = json.dumps(document("systems", SYSTEM)).encode()
    (tmp_path / "system.json.gz").write_bytes(gzip.compress(system))
    assert "131.9 s" in run("llm", "model.yaml", EXECUTION, "system.json.gz", "-").out
    for data in (model, json.dumps(raw)):
        standard_input(data.encode())
        assert "131.9 s" in run("llm", "-", EXECUTION, SYSTEM, "-").out


# -- editions ---------------------------------------------------------------------------------------------------------


def test_an_edition_is_chosen_for_one_call(run):
    found = json.loads(run("llm", *ARGUMENTS, "-", "-f", "json", "--edition", "corrected").out)
    result = calculon.estimate(*ARGUMENTS, edition="corrected")
    assert found.pop("edition") == "corrected"
    assert found.pop("groups") == [group.to_dict() for group in result.groups]
    assert {name: found.pop(name) for name in BOUNDS} == result.bounds
    assert found.pop("question") == json.loads(json.dumps(result.question))
    assert found.pop("belief") == json.loads(json.dumps(result.belief.to_dict()))
    assert found == result.stats
    assert run("llm", *ARGUMENTS, "-", "--edition", "sc23") == run("llm", *ARGUMENTS, "-")


def test_an_execution_has_an_edition_of_its_own(run, execution):
    plan = execution(edition="corrected")
    own = run("llm", MODEL, plan, SYSTEM, "-").out
    assert "edition corrected, common" in own.splitlines()[0]  # it names no framework
    assert own == run("llm", MODEL, EXECUTION, SYSTEM, "-", "--edition", "corrected").out
    published = run("llm", MODEL, plan, SYSTEM, "-", "--edition", "sc23").out
    assert published == run("llm", *ARGUMENTS, "-").out


# -- infeasible: exit 1, one message on stderr, nothing written ------------------------------------------------------


def test_what_does_not_fit_is_one_message_and_no_file(run, tmp_path, execution):
    plan = execution(activation_recompute="none", optimizer_sharding=False)
    code, out, err = run("llm", MODEL, plan, SYSTEM, "stats.json", "-p", "peers.json")
    assert (code, out) == (1, "")
    assert err.startswith("calculon: infeasible: memory of a100_80g is too small: ")
    assert err.count("\n") == 1
    assert ". Hint: it fits with " in err
    assert [path.name for path in tmp_path.iterdir()] == ["execution.json"]


# -- bad input: exit 2, before any work -------------------------------------------------------------------------------


def test_a_wrong_call_is_explained(refuses, tmp_path):
    rows = [
        (f"{MODEL} {EXECUTION} {SYSTEM} - -p -", "--peers: expected a file name, found '-'"),
        (f"{MODEL} {SYSTEM} {EXECUTION} -", f"{EXECUTION}: expected a system file"),
        (f"{MODEL} {SYSTEM} {EXECUTION} -", "found an execution of the catalog"),
        ((MODEL, "", SYSTEM, "-"), "error: execution: expected a catalog name"),
        (f"megatron-2T {EXECUTION} {SYSTEM} -", "did you mean 'megatron-1T'?"),
        (f"- - {SYSTEM} -", "expected one input from standard input, found 2 times '-'"),
        (f"{MODEL} {EXECUTION} {SYSTEM} - --edition corected", "did you mean 'corrected'?"),
        (f"{MODEL} {EXECUTION} {SYSTEM} - --edition corected", "expected one of sc23, corrected"),
        ("llama3-8B llama3-8B_h100x64 h100_80g_sxm - --edition sc23",
         "edition: expected corrected, which preset=megatron-lm needs, found sc23"),
    ]  # fmt: skip
    refuses(("llm",), rows)
    assert list(tmp_path.iterdir()) == []


def test_outputs_are_checked_before_any_work(refuses, monkeypatch, tmp_path):
    (tmp_path / "input.json").write_text("{}")
    monkeypatch.setattr("calculon.estimate", None)
    rows = [
        ("stats.csv", "stats.csv: expected an output name that ends in .json"),
        ("stats.json -p peers.txt", "peers.txt: expected an output name"),
        ("stats.json -p ./stats.json", "expected a separate file"),
    ]
    refuses(("llm", *ARGUMENTS), rows)
    words = "expected a separate file, found an input"
    refuses(("llm", "input.json", EXECUTION, SYSTEM), [("input.json", words)])
    assert [path.name for path in tmp_path.iterdir()] == ["input.json"]


@pytest.mark.large
@pytest.mark.parametrize("model", [{}, {"num_blocks": 8_000, "seq_size": 1_024_000}])
def test_what_is_far_from_fitting_is_refused_soon(run, tmp_path, model):
    (tmp_path / "m.json").write_text(json.dumps(document("models", "llama3-8B") | model))
    small = ("--set", "system.mem1.GiB=3") if not model else ()
    begin = time.process_time()
    code, _, err = run("llm", "m.json", "llama3-8B_h100x64", "h100_80g_sxm", "-", *small)
    assert time.process_time() - begin < 6  # 2 on a quiet machine; it took 37
    assert code == 1
    assert "is too small" in err
