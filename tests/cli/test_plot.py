"""``calculon plot``: every kind writes every format, the same each time, and says what is wrong."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from calculon.cli import plot_answers
from calculon.cli.commands.plot import KINDS
from calculon.cli.main import main
from calculon.cli.plot_curves import requested_series
from calculon.search.driver import search
from tests.cli.conftest import ARGUMENTS
from tests.documents.charts.reading import plot_arguments
from tests.helpers import ROOT
from tests.shipped_studies import compare_once

pytest.importorskip("matplotlib", reason="pictures need the extra plot")

TRIPLE = ",".join(ARGUMENTS)
SPACE = ("megatron-22B", 8, 4, "float16", "a100_80g")
NARROW = ("--fix", "microbatch_size=1", "--fix", "activation_recompute=full")
NARROW += ("--fix", "weight_offload=false", "--fix", "optimizer_offload=false")
BEGINS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}

PLAN = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm", "--tokens", "1T")
CALLS = {
    "breakdown": (f"run$a_$b={TRIPLE}", f"other={TRIPLE.replace('80g', '80e')}"),
    "waterfall": (TRIPLE, f"other={ARGUMENTS[0]},other.json,{ARGUMENTS[2]}"),
    "heatmap": (*SPACE, *NARROW),
    "surface": (*SPACE, *NARROW),
    "scaling": ("megatron-22B", "1,8,16", 16, "float16", "a100_80g", *NARROW),
    "validation": ("--study", "tab5"),
    "pareto": (*SPACE, *NARROW),
    "schedule": ("llama3-8B", "llama3-8B_h100x64_p4", "h100_80g_sxm", "--microbatches", 2),
}

FLAT = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1")
RUNS = {
    "campaign": (*PLAN, "--deadline", "20d"),
    "goodput": (*PLAN, "--procs", "64-128", "--mtbf", "20000,100d"),
    "budget": ("mlp-4x1024", "2", "h100,mi300x", "--tokens", "1T", "--batch", "8", *FLAT),
}
"""Pictures of whole runs, which are of edition corrected."""

SHORT = ("--prompt", "500", "--output", "100")
SERVED = {
    "batch": ("gpt2-124M", "1", "h100", *SHORT, "--tpot", "20ms"),
    "frontier": ("gpt2-124M", "1", "h100", *SHORT, "--fix", "token_budget=2048"),
}
"""Pictures of served models; without a file a terminal shows them, as the recorded screens do."""
ALL = CALLS | RUNS | SERVED


@pytest.fixture(autouse=True)
def other(spec):
    """Write another execution than the one of the arguments into the folder of the test."""
    changes = {"activation_recompute": "attn_only", "microbatch_size": 1}
    spec("examples", ARGUMENTS[1], "other.json", **changes)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Run a search of all executions, and of the best of two counts, once; return the folder of their files."""
    folder = tmp_path_factory.mktemp("results")
    counts = ("loe", "megatron-22B", "8,16", "16", "float16", "a100_80g")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["lae", *map(str, SPACE), "all.csv", *NARROW]) == 0
        for name in ("counts.csv", "counts.json"):
            assert main([*counts, name, "-t", "5", "--quiet", *NARROW]) == 0
    return folder


@pytest.fixture
def dump(run, results, tmp_path):
    shutil.copy(results / "all.csv", tmp_path)
    return "all.csv"


SUFFIXES = {"breakdown": ".svg", "schedule": ".pdf"}


@pytest.mark.usefixtures("without_help")
@pytest.mark.parametrize("kind", ALL)
def test_every_kind_writes_a_picture(run, request, tmp_path, kind):
    name = f"x{SUFFIXES.get(kind, '.png')}"
    if kind != "breakdown":
        request.getfixturevalue("unrendered")
    assert run("plot", kind, *ALL[kind], "-o", name) == (0, f"Output: {name}\n", "")
    assert (tmp_path / name).read_bytes().startswith(BEGINS[name[1:]])


def test_bad_questions_of_served_models(run, refuses):
    load = " ".join(SHORT)
    rows = [
        (f"frontier llama3-8B 0 h100 {load}", "found 0 in '0'"),
        (f"frontier llama3-8B x h100 {load}", "found 'x'"),
        (f"frontier llama3-8B 4 h10 {load}", "h10: expected a system"),
        (f"frontier llama3-8B 4 h100 {load} --rate 3", "rate: expected none"),
        (f"batch llama3-8B 1 h100 {load} -o x.txt", "a name that ends in .png"),
    ]
    refuses(("plot",), rows)
    done = run("plot", "frontier", "llama3-70B", "1", "h100", "a100_80g_sxm", *SHORT)
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert all(f"{system}: none of" in done.err for system in ("h100_80g_sxm", "a100_80g_sxm"))


SHOWN = (ROOT / "examples" / "pictures.md").read_text(encoding="utf-8").replace("./bin/", "")


@pytest.mark.large
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_examples_run(run, kind, monkeypatch):
    monkeypatch.setattr(plot_answers, "compare", compare_once)
    for line in kind.examples.splitlines():
        if line in SHOWN:
            continue  # run as a transcript of a page
        found = run(*shlex.split(line)[1:])
        assert (found.code, found.err) == (0, ""), line


def curves(rows):
    """Return the curves of a file with some rows."""
    Path("study.json").write_text(json.dumps(rows))
    asked = {"source": ["study.json"], "where": None, "edition": None, "changes": []}
    return requested_series(SimpleNamespace(**asked))


def test_curves_of_a_space_are_the_best_of_each_count():
    fixed = [f"--fix={one}" for one in NARROW[1::2]]
    space = ("megatron-22B", "1,8", "8", "float16", "a100_80g", "--edition", "corrected")
    (one,) = requested_series(plot_arguments("scaling", *space, *fixed))
    fix = dict.fromkeys(("weight_offload", "optimizer_offload"), False)
    fix |= {"microbatch_size": 1, "activation_recompute": "full"}
    best = search("megatron-22B", "a100_80g", 8, 8, top=1, edition="corrected", fix=fix)
    expected = [(1, None), (8, best.to_frame()["sample_rate"][0])]
    assert [(point.num_procs, point.rate) for point in one.points] == expected
    assert one.terms == "corrected, torchtitan"


def test_a_study_has_a_curve_for_each_model(run):
    rows = [
        {"model": m, "asked_num_procs": n, "sample_rate": r, "total_efficiency": r and 0.5}
        for m, n, r in (("a", 8, None), ("a", 16, 2.0), ("b", 8, 1.0), ("b", 16, 3.0))
    ]
    first, second = curves(rows)
    assert [first.label, second.label] == ["a", "b"]
    assert [point.rate for point in first.points] == [None, 2.0]
    assert [point.num_procs for point in second.points] == [8, 16]


def test_each_edition_of_a_table_has_a_curve(run):
    rows = [
        {"num_procs": n, "sample_rate": r, "total_efficiency": 0.5, **edition}
        for n, r, edition in (
            (8, 1.0, {}),
            (8, 2.0, {"edition": "corrected"}),
            (16, 3.0, {"edition": "sc23"}),
        )
    ]
    found = curves(rows)
    assert [one.label for one in found] == ["study, edition sc23", "study, edition corrected"]
    assert [one.terms for one in found] == ["sc23", "corrected"]
    assert [[point.rate for point in one.points] for one in found] == [[1.0, 3.0], [2.0]]


@pytest.mark.usefixtures("unrendered")
def test_rows_are_chosen_by_optional_fields_that_a_table_does_not_have(run, refuses, dump):
    call = ("plot", "heatmap", dump, "-o", "x.png", "--where")
    assert run(*call, "edition == 'sc23' and attn_impl == 'eager'").code == 0
    message = "expected executions to draw, found none"
    refuses(call, [(("edition == 'corrected'",), message)])


@pytest.mark.large
@pytest.mark.parametrize("kind", CALLS)
def test_every_kind_draws_both_editions(run, tmp_path, kind):
    call = (*ARGUMENTS, "--microbatches", 4) if kind == "schedule" else CALLS[kind]
    for name in ("plain", "sc23", "corrected"):
        edition = () if name == "plain" else ("--edition", name)
        assert run("plot", kind, *call, *edition, "-o", f"{name}.png").code == 0
    plain, published, corrected = (
        (tmp_path / f"{name}.png").read_bytes() for name in ("plain", "sc23", "corrected")
    )
    assert plain == published != corrected


def test_a_waterfall_needs_two_plans_of_one_question(run, refuses):
    assert run("llm", *ARGUMENTS, "stats.json").code == 0
    rows = [
        ((), "expected 2 results or more: a plan, and the plans it changes into, found 1"),
        (TRIPLE.replace("a100_80g", "h100_80g_nvl8"), "system: expected one system for both plans"),
        (TRIPLE, "found the same plan"),
        ("stats.json", "expected an execution whose model and system are known"),
    ]
    refuses(("plot", "waterfall", "-o", "x.png", TRIPLE), rows)


@pytest.mark.usefixtures("unrendered")
def test_files_are_drawn_too_and_processors_are_an_axis(run, results, dump, tmp_path):
    assert run("plot", "pareto", dump, "--against", "num_procs", "-o", "x.png").code == 0
    shutil.copy(results / "counts.json", tmp_path)
    assert run("plot", "scaling", "counts.json", "counts.json", "-o", "b.png").code == 0


def test_says_what_is_wrong(refuses, tmp_path):
    plan, space, triple = (" ".join(map(str, words)) for words in (PLAN, SPACE, ARGUMENTS))
    pictures = "a name that ends in .png, .svg, .pdf"
    rows = [
        ("", "the following arguments are required: KIND"),
        ("pie", "invalid choice: 'pie'"),
        (f"goodput {plan} --procs 0 -o x.png", "--procs: expected whole numbers"),
        (f"goodput {plan} --procs 1 -o x.png", "processors of a replica"),
        (f"goodput {plan} --mtbf soon -o x.png", "--mtbf: expected a time"),
        (f"goodput {plan} --mtbf 0 -o x.png", "--mtbf: expected a time above 0"),
        (f"campaign {plan.partition(' --')[0]} -o x.png", "expected the length of the run"),
        (f"heatmap {space}", "the following arguments are required: -o"),
        (f"heatmap {space} -o -", pictures),
        (f"heatmap {space} -o x.gif", pictures),
        (f"heatmap {space} -o no/x.png", "no such folder"),
        ("heatmap gpt3-175B 8 -o x.png", "or APP NUM_PROCS MAX_BATCH DATATYPE SYS"),
        ("heatmap gpt3-175B 8 x float16 a100_80g -o x.png", "MAX_BATCH"),
        ("heatmap gpt3-175B 8,9 9 float16 a100_80g -o x.png", "one proc"),
        ("heatmap no.csv -o x.png", "no.csv: expected a readable table"),
        ("heatmap a.csv b.csv -o x.png", "a.csv"),
        (f"heatmap {space} --objective rate -o x.png", "expected a statistic"),
        (f"heatmap {space} --edition new -o x.png", "one of sc23, corrected"),
        ("heatmap a.csv --edition corrected -o x.png", "--edition: expected a space"),
        (f"pareto {space} --against num_procs:up -o x.png", "max or min"),
        ("validation --study none -o x.png", "expected a study"),
        (f"schedule {triple} --microbatches 65 -o x.png",
         "--microbatches: expected at most the 64 of a pipeline's batch, found 65"),
        (f"schedule {triple} --microbatches 0 -o x.png", "a whole number above 0"),
        ("schedule megatron-1T no.json a100_80g -o x.png", "no.json"),
        ("schedule a b -o x.png", "expected APP EXE SYS, or one result of loe or llm"),
        ("schedule a b c d -o x.png", "expected APP EXE SYS, or one result of loe or llm"),
    ]  # fmt: skip
    refuses(("plot",), rows)
    rows = [
        ("budget llama-3-8b 1 h100 --tokens 1T -o x.png", "no plan fits"),
        ("scaling megatron-1T 1 1 float16 a100_80g --fix optimizer_offload=false -o x.png",
         "no plan can run"),
        ("surface gpt3-175B 2 2 float16 a100_80g -o x.png",
         "no plan can run: there is no surface to draw"),
    ]  # fmt: skip
    refuses(("plot",), rows, code=1)
    assert not (tmp_path / "x.png").exists()


def test_a_column_that_is_missing_is_named(run, refuses):
    run("lae", *SPACE, "few.csv", *NARROW, "--columns", "num_procs,tensor_par,sample_rate")
    message = "few.csv: pipeline_par: expected a column of this name, found none"
    refuses(("plot", "heatmap", "few.csv"), [("-o x.png", message)])


@pytest.mark.usefixtures("unrendered")
def test_a_table_of_several_counts_wants_one_for_a_heatmap(run, results, tmp_path):
    shutil.copy(results / "counts.csv", tmp_path)
    found = run("plot", "heatmap", "counts.csv", "-o", "x.png")
    assert "Hint: choose one: --where 'num_procs == 8'" in found.err
    chosen = run("plot", "heatmap", "counts.csv", "--where", "num_procs == 8", "-o", "x.png")
    assert chosen.code == 0


def test_says_how_to_install_what_is_missing(refuses, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    rows = [
        ("-o x.png", "expected the library matplotlib, for pictures, found it is not installed"),
        ("-o x.png", f"{sys.executable} -m pip install 'matplotlib>=3.8'"),
    ]
    refuses(("plot", "breakdown", TRIPLE), rows)


def test_a_cell_that_is_no_number_is_named(refuses, results):
    whole = "expected a whole number"
    rows = [
        ("scaling", "sample_rate", "abc", "expected a number, found 'abc'"),
        ("scaling", "num_procs", "x", f"{whole} of at least 1, found 'x'"),
        ("scaling", "num_procs", "inf", whole),
        ("scaling", "num_procs", "8.5", whole),
        ("heatmap", "tensor_par", "0", f"{whole} of at least 1"),
        ("heatmap", "tensor_par", "True", whole),
        ("heatmap", "num_procs", "9" * 400, whole),
        ("pareto", "proc_mem_tier1_cap_req", "much", "expected a number"),
    ]
    header, first, *others = (results / "counts.csv").read_text().splitlines()
    for kind, column, cell, expected in rows:
        cells = first.split(",")
        cells[header.split(",").index(column)] = cell
        Path("counts.csv").write_text("\n".join([header, ",".join(cells), *others]) + "\n")
        message = f"counts.csv: row 0: {column}: {expected}"
        refuses(("plot", kind, "counts.csv"), [("-o x.png", message)])


@pytest.mark.parametrize("row", [[], 3, {"num_procs": [8]}, {"num_procs": 10**400}])
def test_a_row_of_json_that_is_none_is_named(refuses, row):
    Path("study.json").write_text(json.dumps([row]))
    kinds = ("scaling", "heatmap", "pareto")
    refuses(("plot",), [(f"{kind} study.json -o x.png", "study.json: ") for kind in kinds])


@pytest.mark.usefixtures("unrendered")
def test_rows_without_an_execution_are_no_cells(run):
    none = dict.fromkeys(("num_procs", "tensor_par", "pipeline_par", "sample_rate"))
    some = {"num_procs": 8, "tensor_par": 8, "pipeline_par": 1, "sample_rate": 2.0}
    Path("study.json").write_text(json.dumps([none, some]))
    assert run("plot", "heatmap", "study.json", "-o", "x.png").code == 0


def test_a_table_of_searches_that_found_nothing_cannot_be_drawn(refuses):
    names = "num_procs tensor_par pipeline_par data_par sample_rate total_efficiency "
    names += "proc_mem_tier1_cap_req"
    row = {"asked_num_procs": 8} | dict.fromkeys(names.split())
    Path("study.json").write_text(json.dumps([row, row]))
    wanted = "calculon: infeasible: study.json: no row has an execution to draw\n"
    kinds = ("scaling", "heatmap", "surface", "pareto")
    refuses(("plot",), [(f"{kind} study.json -o x.png", wanted) for kind in kinds], code=1)
    assert not Path("x.png").exists()


def test_each_system_of_a_study_has_a_curve(run):
    rows = [
        {"model": "m", "system": s, "mem1.GiB": m, "max_batch_size": n, "asked_num_procs": n,
         "sample_rate": n * m if m else 1.0, "total_efficiency": 0.5}
        for s in ("a", "b") for m in (None, 40, 160) for n in (8, 16)
    ]  # fmt: skip
    found = curves(rows)
    changes = ("", ", mem1.GiB 40", ", mem1.GiB 160")
    assert [one.label for one in found] == [f"{s}{change}" for s in "ab" for change in changes]
    assert [[p.rate for p in one.points] for one in found[:2]] == [[1.0, 1.0], [320.0, 640.0]]
