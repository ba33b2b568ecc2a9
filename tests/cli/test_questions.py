"""Results that carry their question: what they say, what is found by it, and what is said of specs that changed."""

import json
from pathlib import Path

import pandas as pd
import pytest

import calculon
from calculon.cli.results import read_results
from calculon.declarations.decode import SpecWarning
from calculon.version import __version__
from tests.helpers import ROOT

MODEL, SYSTEM = "megatron-126M", "a100_80g_sxm"
SPACE = (MODEL, 8, 8, "bfloat16", SYSTEM)
FIX = ("--quiet", "--fix", "tensor_par=1,2", "--fix", "weight_offload=false")
FEW = (*FIX, "--fix", "microbatch_size=1", "--fix", "activation_recompute=none")
SHORT = {"tensor_par": 2, "pipeline_par": 2, "data_par": 2, "batch_size": 8}


@pytest.fixture
def best(made):
    """The best three of a search under a preset."""
    made(("loe", *SPACE, "best.json", "-t", 3, *FIX, "--preset", "megatron-lm"))
    return "best.json"


@pytest.fixture
def own(made):
    """A model and a system of one's own, with results of a search for them and of an estimate."""
    space = ("shape.json", *SPACE[1:4], "node.json")
    made(
        ("loe", *space, "best.json", "-t", 2, *FEW, "--edition", "corrected"),
        ("llm", "shape.json", "plan.json", "node.json", "one.json"),
        **{
            "shape.json": (ROOT / "models" / f"{MODEL}.json").read_text(),
            "node.json": json.dumps({"base": SYSTEM, "mem1": {"GiB": 90}}),
            "plan.json": json.dumps({"base": "megatron-lm", **SHORT}),
        },
    )
    return "best.json"


def _write(path, document):
    Path(path).write_text(json.dumps(document))
    return path


def _read(path):
    return json.loads(Path(path).read_text())


def test_a_search_says_what_was_asked(best):
    found = _read(best)
    assert list(found) == ["0", "1", "2"]
    for entry in found.values():
        assert list(entry) == ["execution", "stats", "belief", "order", "question"]
        question = entry["question"]
        assert (question["calculon"], question["edition"]) == (__version__, "corrected")
        assert (question["model"]["name"], question["system"]["name"]) == (MODEL, SYSTEM)
        assert question["preset"]["name"] == "megatron-lm"
        assert question["search"] == {
            "num_procs": 8,
            "max_batch_size": 8,
            "datatype": "bfloat16",
            "top": 3,
            "risk": 0.1,
            "fix": {"tensor_par": [1, 2], "weight_offload": [False]},
        }
        whole = calculon.estimate(MODEL, entry["execution"], SYSTEM)
        assert entry["belief"] == json.loads(json.dumps(whole.belief.to_dict()))
        assert {k: whole.question[k] for k in ("model", "system")} == {
            k: question[k] for k in ("model", "system")
        }


def test_an_estimate_says_what_was_asked(run):
    _write("plan.json", {"base": "megatron-lm", **SHORT})
    run("llm", MODEL, "plan.json", SYSTEM, "one.json", "--set", "mem1.GiB=90")
    question = _read("one.json")["question"]
    asked = calculon.inputs.execution("plan.json")
    assert question["system"]["set"] == {"mem1.GiB": 90}
    assert (question["execution"]["name"], question["execution"]["source"]) == ("plan", "plan.json")
    assert calculon.inputs.execution(question["execution"]["fields"]) == asked


def test_a_hash_is_that_of_the_content(run, own):
    _write("same.json", {"about": {"source": "a letter"}, "mem1": {"GiB": 90}, "base": SYSTEM})
    _write("other.json", {"base": SYSTEM, "mem1": {"GiB": 91}})
    found = [calculon.inputs.system(f"{n}.json").origin.digest for n in ("node", "same", "other")]
    assert found[0] == found[1] != found[2]
    assert _read(own)["0"]["question"]["system"] == {
        "name": "node",
        "source": "node.json",
        "sha256": found[0],
    }


def test_the_published_files_are_as_they_were(run):
    for name in ("old.json", "old.csv"):
        run("loe", *SPACE[:3], "float16", SYSTEM, name, *FEW, "--edition", "sc23")
    run("llm", "megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g", "one.json")
    assert set(_read("old.json")["0"]) == {"execution", "stats"}
    assert "question" not in _read("one.json")
    assert not {"model", "system", "asked_preset"} & set(pd.read_csv("old.csv").columns)


@pytest.mark.parametrize(("command", "suffix"), [("loe", "parquet"), ("lae", "csv")])
def test_tables_say_model_system_edition_and_preset(run, command, suffix):
    _write("mine.json", {"title": "Ours", "base": "megatron-lm", "fields": {}})
    assert run(command, *SPACE, f"t.{suffix}", *FEW, "--preset", "mine.json").code == 0
    table = pd.read_csv("t.csv") if suffix == "csv" else pd.read_parquet("t.parquet")
    names = ("model", "system", "edition", "preset", "asked_preset")
    told = [set(table[name].astype(str)) for name in names]
    assert told == [{MODEL}, {SYSTEM}, {"corrected"}, {"megatron-lm"}, {"mine"}]
    again = calculon.evaluate(MODEL, SYSTEM, table)
    assert again["total_time"] == pytest.approx(table["total_time"].to_numpy())


def test_a_result_is_read_as_an_execution(run, output_of, best):
    entry = _read(best)["1"]
    stats = json.loads(output_of("llm", MODEL, "best.json#1", SYSTEM, "-", "-f", "json"))
    assert stats["total_time"] == pytest.approx(entry["stats"]["total_time"], rel=1e-12)
    assert run("block", MODEL, "best.json#1", SYSTEM).code == 0


@pytest.mark.usefixtures("unvalidated", "unrendered")
def test_specs_of_results_are_found(run, best):
    one, other = read_results(["a=best.json", "b=best.json#2"])
    assert one.inputs.name == MODEL
    assert other.inputs.machine.name == SYSTEM
    assert one.layers
    assert len(one.winners) == 3
    assert run("compare", "a=best.json", "b=best.json#2").code == 0
    title = f"Training of {MODEL} on 8 x {SYSTEM}, edition corrected, megatron-lm"
    assert run("report", "best.json#0", "best.json#2", "-o", "r.html").code == 0
    assert f"<title>{title}</title>" in Path("r.html").read_text()


def test_specs_of_results_are_found_beside_them(run, own, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for path in ("../best.json", "../one.json"):
        (one,) = read_results([path])
        assert (one.inputs.name, one.inputs.machine.name) == ("shape", "node")


def test_what_was_set_is_set_again(run):
    _write("plan.json", {"base": "megatron-lm", **SHORT})
    options = ("--set", "mem1.GiB=90", "--set", "seq_size=1024")
    run("llm", MODEL, "plan.json", SYSTEM, "one.json", *options)
    (one,) = read_results(["one.json"])
    assert one.inputs.machine.capacities[0] == 90 * 2**30
    assert one.title == f"Training of {MODEL} (seq_size=1024) on 8 x {SYSTEM} (mem1.GiB=90)"


def test_a_spec_that_changed_is_told(run, own):
    _write(
        "node.json", {"base": SYSTEM, "mem1": {"GiB": 90}, "mem2": {"GiB": 89}}
    )  # without effect
    with pytest.warns(SpecWarning, match="the system node differs"):
        (one,) = read_results([own])
    assert one.inputs is not None
    _write("node.json", {"base": SYSTEM, "mem1": {"GiB": 90, "GBps": 1000}})
    with pytest.warns(SpecWarning, match=r"best#0: the system node differs from node, with which"):
        (one,) = read_results([own])
    assert one.inputs is None  # what is told is what the file has
    code, _, err = run("llm", "shape.json", own, "node.json", "-")
    assert code == 0
    assert "calculon: warning: best.json: the system node differs from" in err
    assert run("llm", "shape.json", own, SYSTEM, "-").err == ""
    assert run("llm", "shape.json", own, "node.json", "-", "--set", "mem1.GBps=1500").err == ""


def test_a_spec_that_is_gone_is_told(refuses, own):
    Path("node.json").unlink()
    with pytest.warns(
        SpecWarning, match=r"best#0: its system node.json was not found; give it with --system"
    ):
        (one,) = read_results([own])
    assert one.inputs is None
    assert one.title == "Training of shape on 8 x node"
    message = "best.json: expected a result that names its system, with the files"
    refuses(("plot", "schedule", own), [("-o x.png", message)])


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("0.9", rf"best#0: calculon {__version__} computes .*, 0.9 had "),
        (__version__, "best#0: it is for a different model or system than .*the file"),
    ],
)
def test_a_result_that_differs_is_of_another_version_or_model(best, version, told):
    found = _read(best)
    assert found["0"]["question"]["calculon"] == __version__
    found["0"]["question"]["calculon"] = version
    stats = found["0"]["stats"]
    stats["total_time"] += stats["fw_time"]
    stats["fw_time"] *= 2
    _write(best, found)
    with pytest.warns(SpecWarning, match=told):
        (one,) = read_results([best])
    assert one.stats == {name: stats[name] for name in one.stats}


def test_results_are_estimated_with_changes(run, best):
    (plain,), (changed,) = (
        read_results([best]),
        read_results([best], changes=["networks[0].bandwidth=10", "execution.p2p_overlap=false"]),
    )
    assert changed.stats["total_time"] >= plain.stats["total_time"]
    assert changed.inputs.machine.name == f"{SYSTEM} (networks[0].bandwidth=10)"


def test_a_schedule_needs_the_result_alone(run, best):
    pytest.importorskip("matplotlib")
    assert run("plot", "schedule", f"{best}#1", "-o", "x.svg").code == 0
    assert f"best#1, {SYSTEM}" in Path("x.svg").read_text()


def test_a_preset_of_a_file_keeps_its_name(run):
    change = {"ce_impl": {"value": "fused", "why": "Ours."}}
    _write("mine.json", {"title": "Ours", "base": "megatron-lm", "fields": change})
    _write("plan.json", SHORT)
    found = calculon.estimate(MODEL, "plan.json", SYSTEM, preset="mine.json")
    assert (found.preset.name, found.execution.preset) == ("mine", "megatron-lm")
    assert run("llm", MODEL, "plan.json", SYSTEM, "one.json", "--preset", "mine.json").code == 0
    known = _read("one.json")["question"]["preset"]
    assert (known["name"], known["base"]) == ("mine", "megatron-lm")
    (one,) = read_results(["one.json"])
    assert one.terms == "corrected, mine"
    page = run("llm", MODEL, "plan.json", SYSTEM, "-", "--preset", "mine.json").out
    assert "edition corrected, mine" in " ".join(page.split("\n")[:2])


DAMAGED = [
    ("what?", "question: expected an object with named fields, found 'what?'"),
    ({"model": -1}, "question.model: expected an object with named fields, found -1"),
    ({"system": []}, "question.system: expected an object with named fields, found []"),
    ({"preset": "x"}, "question.preset: expected an object, found 'x'"),
    ({"search": 1}, "question.search: expected an object, found 1"),
    ({"execution": {"fields": []}}, "question.execution.fields: expected an object, found []"),
    ({"model": {"name": 3}}, "question.model.name: expected one line of text, found 3"),
    ({"system": {"set": 2}}, "question.system.set: expected an object, found 2"),
    ({"system": {"sha256": {}}}, "question.system.sha256: expected one line of text"),
]


def test_a_damaged_question_is_refused(best, refuses):
    found = _read(best)
    for question, message in DAMAGED:
        found["0"]["question"] = question
        _write("x.json", found)
        calls = ("compare x.json x.json", f"llm {MODEL} x.json {SYSTEM} -")
        refuses((), [(call, f"x.json: #0.{message}") for call in calls])
    del found["0"]["question"]
    _write("x.json", found)
    assert read_results(["x.json"])[0].question is None
