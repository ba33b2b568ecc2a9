"""``calculon study``: results, resuming after every kind of interruption, and refusals."""

import json
import os
import shutil
import signal
import time

import pandas as pd
import pytest

import calculon
from calculon.base.units import known
from calculon.declarations.statistics import BOUNDS
from calculon.inputs import system
from calculon.search import task as sweep
from calculon.search.driver import search
from tests.cli.conftest import started
from tests.fuzzing import printed

STUDY = """\
models:
  - {model: megatron-22B, max_batch_size: 24}
systems:
  - {system: a100_80g, mem1.GiB: [1, 80], name: A}
num_procs: [8, 1021]
vary:
  offload:
    - {fix: {weight_offload: false, tensor_par: 8, microbatch_size: 1}}
    - {fix: {tensor_par: [1, 2], activation_recompute: full, optimizer_offload: true}}
quantities: {price: 10 + mem1.GiB, cost: price * num_procs}
top: 2
summary:
  rows: [mem1.GiB, price]
  best: {samples/s: sample_rate, per k$: 1000 * sample_rate / cost, shortest: total_time:min}
"""
SLOW = """\
models: [{model: megatron-22B, max_batch_size: 48}]
systems: [h100_80g_nvl8]
num_procs: 16:384:16
fix: {optimizer_sharding: true, activation_recompute: full, tensor_par: 8}
"""


@pytest.fixture(autouse=True)
def files(tmp_path):
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "slow.yaml").write_text(SLOW)


def study(run, output, *options, file="study.yaml"):
    return run("study", file, "-o", output, "--engine", "serial", *options)


BOTH = ("--edition", "sc23,corrected")


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Run the searches of the study once, in one edition and in both; return the folder, and what the first prints."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "study.yaml").write_text(STUDY)
    call = ["study", "study.yaml", "--engine", "serial", "-o"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, out, err = printed([*call, "r.csv"])
        assert (code, err) == (0, "")
        assert printed([*call, "both.csv", *BOTH])[0] == 0
    return folder, out


@pytest.fixture
def finished(searched, tmp_path):
    """Copy the table and the journal of the finished study; return the name of the table."""
    for name in ("r.csv", "r.csv.journal"):
        shutil.copy(searched[0] / name, tmp_path)
    return "r.csv"


def test_every_search_has_its_rows(searched):
    folder, out = searched
    table = pd.read_csv(folder / "r.csv")
    assert table["search"].nunique() == 8
    assert len(table.columns) == 10 + 4 + 23 + 96
    first = table[(table["mem1.GiB"] == 80) & (table["asked_num_procs"] == 8)].iloc[:2]
    fix = {"weight_offload": False, "tensor_par": 8, "microbatch_size": 1}
    best = search("megatron-22B", "a100_80g", 8, 24, top=2, fix=fix)
    assert first["sample_rate"].tolist() == best.evaluation["sample_rate"].tolist()
    assert first["rank"].tolist() == [0, 1]
    counts = [best.counts.total, best.counts.good, best.counts.bad]
    assert first[["total", "good", "bad"]].iloc[0].tolist() == counts
    assert first["cost"].tolist() == [90 * 8] * 2
    empty = table[table["asked_num_procs"] == 1021]
    assert empty["num_procs"].isna().all()
    assert empty["sample_rate"].isna().all()
    assert "Searches: 8\n" in out
    assert f"Output: r.csv ({len(table)} rows)" in out
    assert out.splitlines()[-1].split()[:2] == ["80", "90"]


def test_all_formats_hold_the_same(run, finished, tmp_path):
    for name in ("r.csv.gz", "r.json", "r.parquet"):
        shutil.copy("r.csv.journal", f"{name}.journal")  # so that no search is run again
        assert study(run, name).code == 0
    table = pd.read_csv(tmp_path / "r.csv")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "r.csv.gz"), table)
    parquet = pd.read_parquet(tmp_path / "r.parquet")
    rows = pd.DataFrame(json.loads((tmp_path / "r.json").read_text()))
    assert list(parquet.columns) == list(rows.columns) == list(table.columns)
    for name in table.columns:
        if table[name].dtype.kind == "f":
            wanted = pytest.approx(table[name].tolist(), nan_ok=True)
            for other in (parquet, rows):
                assert other[name].astype(float).tolist() == wanted


def test_a_finished_study_is_not_run_again(output_of, finished, tmp_path, monkeypatch):
    before = (tmp_path / "r.csv").read_bytes()
    (tmp_path / "r.csv").write_text("damaged")
    monkeypatch.setattr(sweep, "run", None)
    out = study(output_of, "r.csv")
    assert "Finished before: 8 (kept in r.csv.journal)" in out
    assert (tmp_path / "r.csv").read_bytes() == before


def slow_study(tmp_path):
    """Start a study in a session of its own, and wait until some of its searches are finished."""
    options = ("slow.yaml", "-o", "r.csv", "-c", "2")
    process = started(tmp_path, "study", *options, start_new_session=True)
    journal = tmp_path / "r.csv.journal"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    return process


def test_a_study_of_the_catalog_goes_by_its_name_and_may_only_be_counted(run, tmp_path):
    assert run("study", "tutorial", "-o", "t.csv", "--debug") == (0, "Searches: 576\n", "")
    assert not list(tmp_path.glob("t.csv*"))


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.large),
    ],
    ids=["ctrl-c", "a batch system"],
)
def test_a_signal_stops_and_says_how_to_go_on(tmp_path, number, code, word):
    process = slow_study(tmp_path)
    os.killpg(process.pid, number)  # a terminal tells the workers too
    _, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert err.splitlines()[0] == f"calculon: {word}"
    assert "of 24 searches are finished and kept in r.csv.journal; the same command resumes" in err
    assert len(err.splitlines()) == 2
    assert not (tmp_path / "r.csv").exists()


@pytest.mark.large
def test_goes_on_after_kill_9_and_leaves_no_workers(run, output_of, tmp_path):
    process = slow_study(tmp_path)
    import psutil

    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    finished = (tmp_path / "r.csv.journal").read_bytes().count(b"\n") - 1
    assert 2 <= finished < 24
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert (len(gone) >= 2, alive) == (True, [])
    assert f"Finished before: {finished} " in study(output_of, "r.csv", file="slow.yaml")
    assert study(run, "whole.csv", file="slow.yaml").code == 0
    assert (tmp_path / "r.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


@pytest.mark.large
def test_a_summary_may_have_structures_in_its_rows_or_no_rows(run, output_of, tmp_path):
    base = STUDY.partition("summary:")[0]
    (tmp_path / "study.yaml").write_text(base)
    out = study(output_of, "r.csv")
    assert '{"weight_offload": [false], "tensor_par": [8], "microbatch_size": [1]}' in out
    (tmp_path / "study.yaml").write_text(base + "summary: {rows: [], best: {b: sample_rate}}\n")
    assert study(run, "r.csv").code == 0


def test_refuses_before_any_work(refuses, tmp_path):
    rows = [
        ("nothing.yaml -o r.csv", "nothing.yaml: expected a study file"),
        ("study.yaml -o r.txt", "r.txt: expected an output name that ends in .parquet, .csv"),
        ("study.yaml -o r.csv --scheduler tcp://x:1", "add --engine dask"),
    ]
    refuses(("study",), rows)
    assert not list(tmp_path.glob("r.csv*"))


def test_runs_in_several_editions(searched):
    table = pd.read_csv(searched[0] / "both.csv")
    assert table["search"].nunique() == 2 * 8
    assert set(table["asked_edition"]) == {"sc23", "corrected"}
    corrected = table[table["asked_edition"] == "corrected"].dropna(subset="sample_rate")
    assert set(corrected["edition"]) == {"corrected"}
    assert corrected["mfu"].notna().all()
    assert table.loc[table["asked_edition"] == "sc23", "mfu"].isna().all()


MODERN = """\
models: [{model: llama3-8B, max_batch_size: 16}]
systems: [h100_80g_sxm]
num_procs: 16
datatype: bfloat16
edition: corrected
objective: mfu
fix: {attn_impl: flash, tensor_par: 2, pipeline_par: 1}
summary:
  rows: [model]
  best: {rate: sample_rate, slowest: 'total_time_high:min', size: num_procs * 1001}
"""


def test_a_study_names_its_edition_and_its_summary_has_the_digits_that_are_known(run, tmp_path):
    (tmp_path / "today.yaml").write_text(MODERN)
    result = study(run, "r.json", file="today.yaml")
    (row,) = json.loads((tmp_path / "r.json").read_text())
    fix = {"attn_impl": "flash", "tensor_par": 2, "pipeline_par": 1}
    space = ("llama3-8B", "h100_80g_sxm", 16, 16, "bfloat16")
    best = search(*space, objective="mfu", fix=fix, edition="corrected", risk=1)
    assert row["mfu"] == best[0].stats["mfu"]
    belief = best[0].belief
    assert [row[name] for name in BOUNDS] == pytest.approx([belief.low, belief.high])
    spread = (row["total_time_high"] - row["total_time_low"]) / 2 / row["total_time"]
    (line,) = [one for one in result.out.splitlines() if one.startswith("llama3-8B")]
    _, rate, _, slowest, _, size, _ = line.split()
    assert rate == known(row["sample_rate"], spread * row["sample_rate"])
    assert slowest == known(row["total_time_high"], spread * row["total_time_high"])
    assert size == "16,016"  # nothing of it is a time
    assert f"Times are accurate to +-{spread * 100:.0f} % (90 %)" in result.out
    refused = study(run, "x.csv", "--edition", "sc23", file="today.yaml")
    assert refused.code == 2
    assert "corrected" in refused.err


def test_each_model_of_a_study_has_the_edition_that_it_needs(run, output_of, tmp_path):
    text = (
        "models: [megatron-22B, llama3-8B]\nsystems: [h100_80g_sxm]\nmax_batch_size: 16\n"
        "num_procs: 16\ndatatype: bfloat16\nfix: {tensor_par: 8, optimizer_offload: false}\n"
    )
    (tmp_path / "both.yaml").write_text(text)
    assert "Edition: sc23, corrected" in study(output_of, "r.csv", file="both.yaml")
    table = pd.read_csv("r.csv").set_index("model")
    assert table["edition"].to_dict() == {"megatron-22B": "sc23", "llama3-8B": "corrected"}
    (tmp_path / "both.yaml").write_text(text + "edition: sc23\n")
    assert study(run, "x.csv", file="both.yaml").code == 2


def test_a_table_of_a_study_can_be_evaluated_again(searched):
    table = pd.read_csv(searched[0] / "both.csv")
    known = {"mem1.GiB", "price", "asked_num_procs", "asked_edition", "rank"}
    assert known <= set(table.columns)
    rows = table[(table["mem1.GiB"] == 80) & (table["rank"] >= 0)]
    again = calculon.evaluate("megatron-22B", "a100_80g", rows)
    assert again.feasible.all()
    assert again["sample_rate"].tolist() == rows["sample_rate"].tolist()
    one = calculon.estimate("megatron-22B", rows.iloc[0], "a100_80g")
    assert one.stats["sample_rate"] == rows["sample_rate"].iloc[0]


def test_a_figure_that_divides_by_zero_is_undefined_in_its_summary(output_of, tmp_path):
    (tmp_path / "study.yaml").write_text(
        """\
models: [{model: megatron-22B, max_batch_size: 24}]
systems: [a100_80g]
num_procs: 8
vary: {split: [{kind: a, fix: {tensor_par: 8}}, {kind: b, fix: {tensor_par: 4}}]}
summary:
  rows: [kind]
  best: {x: 1 / (tensor_par - 8), tokens: tokens_per_second, rate: sample_rate}
"""
    )
    out = study(output_of, "r.csv")
    rows = [line.split() for line in out.splitlines() if line.lstrip()[:2] in ("a ", "b ")]
    # tokens: not a statistic of this edition, which is no division by 0
    assert [row[:3] for row in rows] == [["a", "undefined", "-"], ["b", "-0.2500", "8"]]
    line = "x is undefined for 1 execution: 1 / (tensor_par - 8) divides by 0, or is no finite"
    assert line in out
    assert "tokens is undefined" not in out


RUNS = """\
models: [{model: megatron-126M, max_batch_size: 16}]
systems: [a100_80g_sxm, h100_80g_sxm]
num_procs: 8
objective: usd
fix: {tensor_par: 1, pipeline_par: 1}
campaigns: [{tokens: 1G}, {campaign: {tokens: 2G}}]
"""


def test_a_study_of_runs_tells_prices_and_defaults_with_their_sources(output_of, tmp_path):
    (tmp_path / "runs.yaml").write_text(RUNS)
    words = " ".join(study(output_of, "runs.csv", file="runs.yaml").split())
    for name in ("a100_80g_sxm", "h100_80g_sxm"):
        price = system(name).ext.price.on_demand
        assert words.count(f"price {name} {price.usd:.2f} USD/h (on demand, {price.date}") == 1
    assert words.count("mtbf_processor 50,677 h (419 interruptions") == 1
    days = pd.read_csv("runs.csv")["days"]
    assert days[1] == pytest.approx(2 * days[0], rel=1e-2)
