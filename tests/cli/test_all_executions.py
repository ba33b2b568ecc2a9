"""``calculon lae``: what it keeps, and what it leaves alone."""

from pathlib import Path

import pandas as pd

import calculon
from calculon.declarations.statistics import BOUNDS
from calculon.inputs import system
from calculon.search import driver

SPACE = ("megatron-22B", 8, 4, "float16", "a100_80g")
NARROW = ("--fix", "tensor_par=8", "--fix", "optimizer_sharding=false")
NARROW += ("--fix", "activation_recompute=full", "--fix", "microbatch_size=1")
NARROW += ("--fix", "weight_offload=false", "--fix", "activations_offload=false")


def test_a_condition_that_keeps_nothing_leaves_an_older_file_alone(run):
    name = "all.csv.gz"
    assert run("lae", *SPACE, name, *NARROW).code == 0
    before = Path(name).read_bytes()
    assert "Output: " not in run("lae", *SPACE, name, *NARROW, "--debug").out
    nothing = run("lae", *SPACE, name, *NARROW, "--where", "total_time < 0")
    assert nothing.code == 1
    assert "Selected executions: 0 of" in nothing.out
    assert Path(name).read_bytes() == before
    assert run("lae", *SPACE, name, *NARROW, "--where", "total_time < 0", "-n").code == 0
    assert Path(name).read_bytes() != before


def test_an_interrupted_run_says_so(run, monkeypatch):
    def interrupt(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "feasible_numbers", interrupt)
    result = run("lae", *SPACE, "all.csv", *NARROW)
    assert result.code == 130
    assert "calculon: interrupted: 0 of" in result.err
    assert "nothing written" in result.err
    assert not Path("all.csv").exists()


def test_a_table_of_the_corrected_edition_has_its_columns(run, tmp_path):
    assert run("lae", *SPACE, "new.csv", "--edition", "corrected", *NARROW).code == 0
    assert run("lae", *SPACE, "old.csv", *NARROW).code == 0
    new, old = (pd.read_csv(tmp_path / name) for name in ("new.csv", "old.csv"))
    assert set(new.columns) > {*old.columns, *BOUNDS}
    assert (new["total_time_low"] < new["total_time_high"]).all()
    again = calculon.evaluate(SPACE[0], SPACE[4], new)
    ends = calculon.bounds(SPACE[0], SPACE[4], again)
    assert all((new[name] == column).all() for name, column in ends.items())
    assert set(new["edition"]) == {"corrected"}
    assert (new["mfu"] > 0).all()
    assert (again["total_time"] == new["total_time"]).all()
    columns = ["--columns", "tensor_par,edition,mfu,total_time_low"]
    assert run("lae", *SPACE, "few.csv", "--edition", "corrected", *NARROW, *columns).code == 0
    assert list(pd.read_csv(tmp_path / "few.csv").columns) == columns[1].split(",")
    assert run("lae", *SPACE, "x.csv", *NARROW, *columns).code == 2


def test_whole_runs_say_what_they_assume_and_what_they_miss(run, output_of):
    runs = ("megatron-126M", 8, 16, "float16", "a100_80g_sxm", "runs.csv", "--tokens", "1G")
    few = ("--fix", "tensor_par=1", "--fix", "pipeline_par=1", "--columns", "days,usd")
    words = " ".join(output_of("lae", *runs, *few).split())
    assert "mtbf_processor 50,677 h (419 interruptions" in words
    price = system("a100_80g_sxm").ext.price.on_demand
    assert f"price {price.usd:.2f} USD/h (on demand, {price.date}" in words
    none = run("lae", *runs, *few, "--deadline", "1min")
    assert (none.code, "best run in days misses its deadline" in none.out) == (1, True)
