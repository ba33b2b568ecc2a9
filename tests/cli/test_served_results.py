"""Deployments in ``calculon compare`` and ``calculon report``: files of ``serve``, and questions."""

import copy
import html
import json
import math
import re
from pathlib import Path

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.declarations.files import write_json
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.render.digits import Digits
from calculon.serving.served_record import read_served

LENGTHS = ("--prompt", "900", "--output", "300")
ASKED = {"prompt": 900, "output": 300}


@pytest.fixture(scope="module")
def served():
    """Two deployments, of which the second has smaller weights, and requests at too high a rate."""
    with pytest.MonkeyPatch.context() as patch:  # what would help takes long: of one is enough
        patch.setattr("calculon.serving.serve.hardware_gains", lambda system, figure: ())
        first = calculon.serve("llama3-8B", 1, "h100", ASKED)
        first.to_dict()
    return (
        first,
        calculon.serve(
            "llama3-8B", 1, "h100", ASKED, changes={"weights_dtype": "float8"}, rate=900
        ),
    )


@pytest.fixture
def files(run, served):
    """Write them as ``serve -o`` does."""
    for name, one in zip(("a.json", "b.json"), served, strict=True):
        write_json(name, one.to_dict())
    return "a.json", "b.json"


def test_files_stand_side_by_side(output_of, files):
    out = output_of("compare", "a.json", "fp8=b.json")
    lines = out.splitlines()
    assert lines[:2] == ["A  a", "B  fp8"]
    asked = lines[lines.index("Inputs that differ") + 2 :]
    assert asked[0].split() == ["weights_dtype", "bfloat16", "float8"]
    assert "B misses rate: 900 requests" in out


def test_ranges_of_figures_stand_side_by_side(output_of, files, served):
    out = output_of("compare", *files)
    said = {line.split(":")[0]: line for line in out.splitlines() if line.startswith("90 % range")}
    assert {*said} == {f"90 % range of {name}" for name in served[0].ranges}
    one = served[0].ranges["output_rate"]
    low, high = (Digits(one.spread).rate(end, one.value) for end in (one.low, one.high))
    assert f"A {low} to {high}, B " in said["90 % range of output_rate"]


def test_every_difference_is_that_of_the_figures(run, files):
    found = json.loads(run("compare", *files, "--format", "json").out)
    one, other = (json.loads(Path(name).read_text())["figures"] for name in files)
    lines = {line["name"]: line for line in found["figures"]}
    assert [*lines] == [*SERVING_FIGURES]
    for name, line in lines.items():
        assert line["values"] == [one[name], other[name]]
        known = None not in line["values"]
        assert line["differences"] == [other[name] - one[name] if known else None]
    for lines in (found["passes"]["decode"], found["memory"]):
        sizes = [max(abs(d) for d in line["differences"]) for line in lines]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.usefixtures("without_help")
def test_questions_stand_side_by_side(output_of):
    asked = ("llama3-8B,1,h100", "llama3-8B,1,a100_80g_sxm")
    out = output_of("compare", *asked, *LENGTHS, "--set", "max_batch=8", "--format", "json")
    found = json.loads(out)
    tpot = next(line for line in found["figures"] if line["name"] == "tpot")
    expected = [
        calculon.serve("llama3-8B", 1, system, ASKED, changes={"max_batch": 8})["tpot"]
        for system in ("h100", "a100_80g_sxm")
    ]
    assert tpot["values"] == expected
    assert [one["field"] for one in found["inputs"]] == ["system"]


def test_as_from_python(run, files, served):
    one, other = served
    both = calculon.compare(a=one, b=other)
    found = json.loads(run("compare", *files, "--format", "json").out)
    assert json.loads(json.dumps(both.to_dict())) == found
    assert repr(both) == "<ServedComparison of a, b>"
    frame = both.to_frame()
    assert frame[frame["table"] == "figures"]["name"].tolist() == [*SERVING_FIGURES]
    with pytest.raises(SpecError, match="a Served, like the others"):
        calculon.compare(one, calculon.estimate("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm"))


@pytest.mark.usefixtures("without_help")
def test_deployments_of_a_search_stand_side_by_side(run, output_of):
    asked = ("llama3-8B", "1,2", "h100", "best.json", *LENGTHS, "--fix", "token_budget=2048")
    assert run("sop", *asked, "-t", "2").code == 0
    out = output_of("compare", "best.json#0", "second=best.json#1", "--format", "json")
    found, searched = json.loads(out), json.loads(Path("best.json").read_text())
    assert [one["label"] for one in found["results"]] == ["best.json#0", "second"]
    for line in found["figures"]:
        expected = [one["figures"][line["name"]] for one in searched["winners"]]
        known = [math.nan if one is None else one for one in expected]
        values = [math.nan if one is None else one for one in line["values"]]
        assert values == pytest.approx(known, rel=1e-9, nan_ok=True)


def test_what_is_no_deployment_is_named(refuses, files):
    names = [*SERVING_FIGURES]
    table = f"{','.join(names)}\n{','.join('1' for _ in names)}\n"
    for name, text in (
        ("bad.json", "{"),
        ("empty.json", ""),
        ("plain.json", '{"num_procs": 8}'),
        ("table.csv", table),
    ):
        Path(name).write_text(text)
    Path("folder").mkdir()
    rows = [
        ("compare a.json", "2 to 26 deployments to compare"),
        ("compare a.json a.json#1", "a.json"),
        ("compare a.json b.json --edition sc23", "corrected, which serving exists"),
        ("compare a.json b.json --model llama3-8B", "--model: expected executions"),
        ("report a.json --tokens 1T -o x.html", "executions, which are trained"),
        ("report table.csv -o x.html", "deployments are read from the JSON of serve or serve-opt"),
    ]
    refuses((), rows)
    rows = [
        ("bad.json", "bad.json: expected a JSON document, found "),
        ("empty.json", "empty.json: expected a JSON document, found an empty file"),
        ("missing.json", "missing.json: expected a readable file, found no such file"),
        ("folder", "folder: expected a readable file, found is a directory"),
        ("table.csv", "table.csv: expected the JSON of llm, loe, plan or study, found a table of"),
        ("plain.json", "found another document"),
        ("llama3-8B,1", "the JSON of serve, or MODEL,DEPLOYMENT,SYSTEM, found 'llama3-8B,1'"),
        ("llama3-8B,no,h100", "no: expected a deployment file"),
        ("llama3-8B,llama3-8B_h100x64,h100", "MODEL,DEPLOYMENT,SYSTEM, found an execution"),
    ]
    refuses(("compare", "a.json"), rows)


DAMAGED = [
    (
        "a.json",
        ("figures", "mem_reserve"),
        None,
        "figures.mem_reserve: expected a number, found nu",
    ),
    ("a.json", ("deployment", "replicas"), True, "deployment.replicas: expected a whole number of"),
    ("best.json", ("workload", "prompt"), -1, "#0: prompt: expected a whole number of at least 1"),
    ("best.json", ("workload",), 3, "workload: expected an object, found 3"),
    ("best.json", ("model",), -1, "model: expected one line of text, found -1"),
    ("best.json", ("counts",), [], "counts: expected an object with named fields, found []"),
    ("best.json", ("counts", "total"), -1, "counts.total: expected a whole number of at least 0"),
    ("best.json", ("winners", 0), 3, "winners[0]: expected an object with named fields, found 3"),
    ("best.json", ("winners", 0, "replicas"), True, "winners[0].replicas: expected a whole number"),
    ("best.json", ("winners", 0, "batch"), "x", "winners[0].batch: expected a whole number of at"),
]
"""Members of files, wrong values, and what is said of them."""


@pytest.mark.usefixtures("without_help", "files")
def test_a_damaged_member_is_refused(run, refuses):
    asked = ("llama3-8B", "1", "h100", "best.json", *LENGTHS, "--fix", "token_budget=2048")
    assert run("sop", *asked, "-t", "1").code == 0
    for name, path, value, message in DAMAGED:
        document = json.loads(Path(name).read_text())
        inside = document
        for member in path[:-1]:
            inside = inside[member]
        inside[path[-1]] = value
        Path("x.json").write_text(json.dumps(document))
        rank = "#0" * (name == "best.json")
        calls = [f"compare x.json{rank} b.json"]
        calls += [f"serve llama3-8B x.json{rank} h100", f"export-flags vllm x.json{rank}"] * bool(
            rank
        )
        refuses(
            (), [(call, f"x.json{'' if message[0] == '#' else ': '}{message}") for call in calls]
        )


@pytest.mark.usefixtures("unvalidated", "unrendered", "without_help")
def test_a_page_has_each_deployment_with_its_picture(run, files):
    code, out, err = run("report", *files, "-o", "served.html")
    assert (code, out) == (1, "Output: served.html\n")
    assert "b: it misses rate: 900 requests" in err
    page = Path("served.html").read_text()
    assert page.count("<svg ") == 2
    words = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    for told in ("What limits", "Inputs that differ", "Assumptions", "a.json", "unbounded"):
        assert told in words
    changed = json.loads(Path("a.json").read_text())
    changed["figures"]["tpot"] *= 2
    Path("old.json").write_text(json.dumps(changed))
    assert run("report", "old.json", "-o", "old.html").code == 0
    assert "<svg " not in Path("old.html").read_text()


@pytest.mark.usefixtures("unvalidated", "unrendered", "without_help")
def test_the_page_of_a_question(run, served):
    asked = ("--prompt", "900", "--output-tokens", "300")
    assert run("report", "llama3-8B,1,h100", *asked, "-o", "served.html").code == 0
    assert "900 tokens in, 300 out" in Path("served.html").read_text()
    calculon.report(served[0], "python.html")
    assert "900 tokens in, 300 out" in Path("python.html").read_text()


@pytest.mark.usefixtures("without_help")
def test_a_damaged_document_says_where():
    drafts = {"draft": "ngram", "draft_tokens": 2, "acceptance": 0.5}
    found = calculon.serve("llama3-8B", 1, "h100", ASKED, tpot_limit=0.02, changes=drafts)
    document = json.loads(json.dumps(found.to_dict()))
    for place in (
        ("speculation", "tokens"),
        ("figures", "spec_speedup"),
        ("model",),
        ("deployment", "max_batch"),
        ("workload", "prompt"),
        ("figures", "tpot"),
        ("passes", "decode", "causes", "weights"),
        ("passes", "prefill", "rows", "mlp", "time"),
        ("limits",),
        ("cut",),
        ("worth",),
    ):
        damaged = copy.deepcopy(document)
        inside = damaged
        for name in place[:-1]:
            inside = inside[name]
        inside[place[-1]] = [1]
        with pytest.raises(SpecError) as error:
            read_served(damaged, "x.json")
        (problem,) = error.value.problems
        assert problem.field.removesuffix("[0]") == ".".join(place)


@pytest.mark.usefixtures("without_help")
@pytest.mark.parametrize(
    ("stated", "missing"),
    [
        ({"run_time": 12.5}, ["workload.requests"]),
        ({"prefill_busy": 0.5}, ["figures.balanced_prefill", "figures.decode_busy"]),
        (
            {"usd_per_mtoken": 2.0, "usd_per_mtoken_blended": None},
            ["figures.usd_per_mtoken_blended"],
        ),
    ],
)
def test_figures_that_others_need_are_asked_for(stated, missing):
    document = json.loads(json.dumps(calculon.serve("llama3-8B", 1, "h100", ASKED).to_dict()))
    for name, value in stated.items():
        (document if name == "run_time" else document["figures"])[name] = value
    with pytest.raises(SpecError) as error:
        read_served(document, "x.json")
    assert sorted(problem.field for problem in error.value.problems) == missing
