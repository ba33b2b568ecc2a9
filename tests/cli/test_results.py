"""``RESULT`` arguments: every form, and everything that can be wrong with one."""

import gzip
import json
import math
from pathlib import Path

import pandas as pd
import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.base.records import columns
from calculon.cli.result_files import file_document, read_table
from calculon.cli.results import read_results
from calculon.declarations.statistics import LEVEL, CorrectedStats, Stats
from calculon.plan.columns import DEFAULTS
from calculon.plan.plan import PUBLISHED_NAMES
from tests.cases import for_each
from tests.cli.conftest import ARGUMENTS
from tests.helpers import refusal

TRIPLE = ",".join(ARGUMENTS)
SPACE = ("megatron-22B", 8, 4, "float16", "a100_80g")


@pytest.fixture
def best(made):
    """A search with three results, in JSON."""
    made(("loe", *SPACE, "best.json", "-t", 3, "--quiet"))
    return "best.json"


@pytest.fixture
def counts(made):
    """A search over processors; nothing runs on the first."""
    options = [f"--fix={n}=false" for n in ("weight_offload", "optimizer_offload")]
    arguments = ("megatron-22B", "1,8,16", 16, "float16", "a100_80g", "counts.json")
    made(("loe", *arguments, *options, "--fix=activations_offload=false"))
    return "counts.json"


def labels(*texts, **specs):
    return [one.label for one in read_results(texts, **specs)]


def test_three_specs_are_estimated():
    (one,) = read_results([TRIPLE])
    assert one.stats == calculon.estimate(*ARGUMENTS).stats
    assert one.label == ", ".join(ARGUMENTS)
    assert [d.role for d in one.documents] == ["model", "execution", "system"]
    assert one.capacities == (80 * 2**30, 512 * 2**30)
    assert one.layers


def test_names_are_what_differs():
    other = TRIPLE.replace("a100_80g", "a100_80e")
    assert labels(TRIPLE, other) == ["a100_80g", "a100_80e"]
    assert labels(f"old={TRIPLE}", other) == ["old", ", ".join((*ARGUMENTS[:2], "a100_80e"))]
    assert labels(TRIPLE, TRIPLE) == [", ".join(ARGUMENTS)] * 2


def test_a_file_of_statistics(made):
    made(("llm", *ARGUMENTS, "stats.json.gz", "-l"))
    (one,) = read_results(["stats.json.gz"])
    assert one.stats == calculon.estimate(*ARGUMENTS).stats
    assert (one.label, one.execution, one.inputs) == ("stats", None, None)
    assert len(one.layers) == 24
    # nothing is offloaded, so that the kinds of memory follow
    assert one.memory()[0] == read_results([TRIPLE])[0].memory()[0]


def test_a_search_gives_its_best_or_what_is_picked(best):
    first, third = read_results([best, f"{best}#2"])
    assert (first.label, third.label) == ("best#0", "best#2")
    assert first.value("sample_rate") >= third.value("sample_rate")
    assert first.execution["num_procs"] == 8
    assert len(first.winners) == 3
    for one in (first, third):
        for kinds, tier in zip(one.memory(), (1, 2), strict=True):
            needed = one.value(f"proc_mem_tier{tier}_cap_req")
            assert sum(kinds.values()) == pytest.approx(needed)


def test_a_search_over_counts_gives_the_best_of_each(counts):
    assert labels(counts) == ["counts#8/0", "counts#16/0"]
    assert labels(f"{counts}#16") == ["counts#16/0"]
    assert labels(f"{counts}#16/0") == ["counts#16/0"]


def test_a_search_is_completed_by_its_model_and_system(best):
    (one,) = read_results([best], "megatron-22B", "a100_80g")
    assert one.inputs.name == "megatron-22B"
    assert one.layers
    assert len(one.winners) == 3
    assert [d.role for d in one.documents] == ["model", "system", "result"]
    with pytest.raises(SpecError, match="was it searched for a different model or system"):
        read_results([best], "megatron-22B", "a100_80e")


TABLES = {
    "best.csv": (),
    "best.parquet": (),
    "corrected.csv": ("--edition", "corrected", "--preset", "published"),
}
"""Tables of winners, with the options of their searches."""


@pytest.fixture
def table(made):
    """Write a table of three winners."""
    return lambda name: made(("loe", *SPACE, name, "-t", 3, "--quiet", *TABLES[name]))


@pytest.mark.parametrize("name", ["best.csv", "best.parquet"])
def test_a_row_of_a_table(table, best, name):
    table(name)
    (row,) = read_results([f"{name}#1"])
    (wanted,) = read_results([f"{best}#1"])
    assert row.stats == pytest.approx(wanted.stats, nan_ok=True)
    assert dict(row.execution) == dict(wanted.execution)


def _write(name, content):
    Path(name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


WRONG = {
    "nothing": "a file, or APP,EXE,SYS",
    "gpt3-175B, x, y": r"^x: expected an? execution file",
    "-,x,y": "found standard input",
    "missing.json": "missing.json: expected a readable file",
    "missing.csv": "missing.csv: expected a readable table",
    "gpt3-175C,x,a100_80g": "did you mean 'gpt3-175B-hf'",
    "best.json#3": "a rank from 0 to 2, found #3",
    "best.json#x": "a rank from 0 to 2, found #x",
    "best.json#8/0": "the file holds one search",
    "counts.json#4": "the processors are 1, 8, 16",
    "counts.json#1": "a search with results, found no executions",
    "empty.json": "a search with results",
    "number.json": "the JSON of llm, loe, plan or study",
    "other.json": "the JSON of llm, loe, plan or study",
    "numbers.yaml": "the JSON of llm, loe, plan or study",
    "few.json": "few.json: fw_time: expected a number, found nothing",
    "single.json": "plan or study, found an object with total_time. Hint: compare and report read",
    "list.json": "row 0: expected the JSON of llm, loe, plan or study, found an object with a, b, c",
    "half.json": "half.json: #0: execution.tensor_par: expected a whole number",
    "stats.json#1": "the file holds one estimate",
    "short.csv": "row 0: expected the JSON of llm, loe, plan or study, found an object with total_",
    "none.csv": "at least one row, found none",
}
"""Arguments that are no result, and what is said of them."""


def test_says_what_is_wrong(made, best, counts):
    made(("llm", *ARGUMENTS, "stats.json"))
    _write("empty.json", {})
    _write("number.json", 3)
    _write("other.json", {"a": 1})
    _write("numbers.yaml", b"1: {2: {}}")
    _write("single.json", {"total_time": 1.0})
    _write("list.json", [dict.fromkeys("abcd", 1)])
    statistics = json.loads(Path("stats.json").read_text())
    del statistics["fw_time"]
    _write("few.json", statistics)
    _write("half.json", {"0": {"execution": {"num_procs": 1}, "stats": {}}})
    _write("short.csv", b"total_time\n1.0\n")
    _write("none.csv", b"total_time\n")
    for text, expected in WRONG.items():
        with pytest.raises(SpecError, match=expected):
            read_results([text])


# -- editions ---------------------------------------------------------------------------------------------------------

TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
FLASH = ("llama3-8B", 8, 64, "bfloat16", "h100_80g_sxm")


@pytest.mark.usefixtures("unvalidated", "unrendered")
def test_an_interval_that_is_none_is_left_out(run, made):
    made(("llm", *TODAY, "today.json"))
    raw = json.loads(Path("today.json").read_text())
    assert read_results(["today.json"])[0].interval["low"] == raw["total_time_low"]
    del raw["question"]  # or it is estimated again
    for low in (None, "much", 1e9):
        _write("damaged.json", raw | {"total_time_low": low})
        assert read_results(["damaged.json"])[0].interval is None, low
    for high in (0, float("inf")):
        _write("damaged.json", raw | {"total_time_high": high})
        (one,) = read_results(["damaged.json"])
        assert one.interval is None, high
    assert (one.ends, one.bounded_stats) == ("", one.stats)
    assert run("report", "damaged.json", "-o", "damaged.html").code == 0


@pytest.fixture(params=["found.json", "found.parquet"])
def corrected(made, request):
    """A search of the corrected edition with a flash kernel, as JSON and as a table."""
    fix = ("--fix", "attn_impl=flash", "--fix", "tensor_par=4", "--fix", "pipeline_par=1")
    options = ("-t", 3, "--quiet", "--edition", "corrected", *fix)
    made(("loe", *FLASH, request.param, *options))
    return request.param


def test_a_search_of_the_corrected_edition_is_read_back(corrected):
    (one,) = read_results([corrected])
    assert (one.edition, one.execution["edition"]) == ("corrected", "corrected")
    assert one.execution["attn_impl"] == "flash"
    wanted = calculon.estimate(FLASH[0], one.execution, FLASH[4])
    assert one.stats == pytest.approx(wanted.stats, nan_ok=True)
    ends = {"level": LEVEL, "low": wanted.belief.low, "high": wanted.belief.high}
    assert one.interval == pytest.approx(ends)
    assert list(one.bounded_stats.values())[-2:] == pytest.approx(list(ends.values())[1:])
    (whole,) = read_results([corrected], FLASH[0], FLASH[4])
    assert whole.edition == "corrected"
    assert whole.layers


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("name", ["best.csv", "corrected.csv"])
def test_a_table_with_the_published_fields_alone(table, name):
    """Optional fields that a table does not have are the default."""
    table(name)
    options = TABLES[name]
    names = [*PUBLISHED_NAMES, *("edition",) * bool(options), *calculon_names(bool(options))]
    pd.read_csv(name, dtype=str)[names].to_csv("few.csv", index=False)
    (few,), (whole,) = read_results(["few.csv#1"]), read_results([f"{name}#1"])
    assert few.execution == whole.execution
    assert few.execution["attn_impl"] == DEFAULTS["attn_impl"]
    assert few.edition == whole.edition == ("corrected" if options else "sc23")
    assert few.stats == whole.stats


def calculon_names(corrected):
    return [c.name for c in columns(CorrectedStats if corrected else Stats)]


def test_rows_of_two_editions_in_one_table(table):
    for name in ("best.csv", "corrected.csv"):
        table(name)
    both = pd.concat([pd.read_csv("best.csv"), pd.read_csv("corrected.csv")])
    both.to_csv("both.csv", index=False)
    published, new = read_results(["both.csv#0", "both.csv#3"])
    assert (published.edition, new.edition) == ("sc23", "corrected")
    assert "mfu" not in published.stats
    assert new.stats["mfu"] == read_results(["corrected.csv"])[0].stats["mfu"]
    assert dict(published.execution) == dict(read_results(["best.csv"])[0].execution)


def test_the_winners_of_a_search_are_those_of_its_edition(run):
    small = ("--where", "proc_mem_tier1_cap_req < 60 * GiB")  # in either edition
    assert run("loe", *SPACE, "small.json", "-t", 3, "--quiet", *small).code == 0
    specs = ("megatron-22B", "a100_80g")
    own, other = read_results(["small.json"], *specs, editions=("sc23", "corrected"))
    assert (len(own.winners), len(other.winners)) == (3, 0)
    assert other.stats["total_time"] != own.stats["total_time"]


def test_a_file_that_lies_about_its_edition(made):
    rows = [
        ({"edition": "corect"}, r"edition: expected one of sc23, corrected, found 'corect'"),
        ({"edition": "corrected"}, "parameters: expected a number, found nothing"),
    ]
    for change, expected in rows:
        made(("llm", *ARGUMENTS, "stats.json"))
        _write("lies.json", json.loads(Path("stats.json").read_text()) | change)
        with pytest.raises(SpecError, match=expected):
            read_results(["lies.json"])


def test_a_damaged_result_is_refused(best):
    rows = [
        ("stats", "total_time", None, "total_time: expected a number above 0, found null"),
        ("stats", "total_time", math.nan, "total_time: expected a number above 0, found nan"),
        ("stats", "total_time", -5, "total_time: expected a number"),
        ("stats", "total_time", 1.0, "total_time: expected the sum of its parts"),
        ("stats", "fw_time", "<b>", "fw_time: expected a number"),
        ("stats", "fw_time", 10**400, "fw_time: expected a number, found 1000"),
        ("stats", "fw_time", True, "fw_time: expected a number, found true"),
        ("stats", "act_space", math.nan, "act_space: expected a number, found nan"),
        ("stats", "layers", {}, "layers: expected a list of objects, found an empty obj"),
        ("stats", "layers", [3], r"layers\[0\]: expected an object with named fields, found 3"),
        ("stats", "layers", [{"name": 3}], r"\[0\].name: expected one line of text, found 3"),
        ("stats", "layers", [{"name": "a", "weight": "x"}], r"\[0\].weight: expected a number"),
        ("execution", "tensor_par", "<b>", "tensor_par: expected a whole number"),
        ("execution", "activation_recompute", "<b>", "activation_recompute: expected one of full"),
    ]
    for part, name, value, expected in rows:
        document = json.loads(Path(best).read_text())
        document["0"][part][name] = value
        _write("damaged.json", document)
        with pytest.raises(SpecError, match=rf"damaged.json: #0: {part}\..*{expected}"):
            read_results(["damaged.json"])


def test_a_result_of_other_types_is_no_traceback(refuses, best):
    whole = json.loads(Path(best).read_text())
    wanted = "the JSON of llm, loe, plan or study"
    statistics = "best.json: #0.stats: expected an object, found []"
    rows = [
        (whole["0"] | {"stats": []}, statistics),
        (whole["0"] | {"execution": []}, "best.json: #0.execution: expected an object, found []"),
        ([], wanted),
        (3, wanted),
    ]
    calls = (
        f"compare {best} {best}#1",
        f"report {best} -o x.html",
        f"plot breakdown {best} -o x.png",
    )
    for entry, expected in rows:
        _write(best, whole | {"0": entry})
        refuses((), [(call, expected) for call in calls])


def test_a_device_has_no_hash():
    with pytest.raises(SpecError, match="/dev/zero: expected a regular file"):
        file_document("model", "/dev/zero", "zero")


@pytest.mark.usefixtures("unvalidated", "unrendered")
def test_members_that_a_layer_lacks_are_0(run, made):
    made(("llm", *ARGUMENTS, "stats.json", "-l"))
    document = json.loads(Path("stats.json").read_text())
    for layer in document["layers"]:
        del layer["optimizer"]
    document["layers"][0] |= {"kind": "dense", "more": [1]}  # of a kind, but of how many blocks?
    _write("stats.json", document)
    assert run("report", "stats.json", "-o", "x.html").code == 0
    assert [layer["optimizer"] for layer in read_results(["stats.json"])[0].layers] == [0.0] * 24


def test_a_row_whose_execution_is_none(table):
    table("best.csv")
    table = pd.read_csv("best.csv", dtype=str)
    for cell in ("x", "8.5", "9" * 400):
        table.assign(tensor_par=cell).to_csv("wrong.csv", index=False)
        with pytest.raises(SpecError, match="row 0: tensor_par: expected a whole number"):
            read_results(["wrong.csv"])


HEAD = "name,num_procs,words\na,8,1.5\n"
CUT = "row 1: expected 3 cells, as in the header, found 2. Hint: is the file cut short?"


@pytest.mark.parametrize("path", ["r.csv", "r.csv.gz"])
@for_each(
    ("last", "rows", "told"),
    [
        ("", 1, ""),
        ("b,16,2.5\n", 2, ""),
        ("b,16,", 2, ""),
        ('b,16,"two\nlines"\n', 2, ""),
        ("b,16", 0, CUT),
    ],
)
def test_a_table_that_ends_within_a_row_is_cut_short(path, last, rows, told, tmp_path):
    data = f"{HEAD}{last}".encode()
    file = tmp_path / path
    file.write_bytes(gzip.compress(data) if path.endswith(".gz") else data)
    assert refusal(read_table, str(file)).removeprefix(f"{file}: ") == told
    assert told or len(read_table(str(file))) == rows


def test_a_damaged_archive_is_no_table(tmp_path):
    file = tmp_path / "r.csv.gz"
    file.write_bytes(gzip.compress(b"a,b\n" + bytes(range(48, 58)) * 100)[:-12])
    assert "expected a readable table, found " in refusal(read_table, str(file))
