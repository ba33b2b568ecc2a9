"""``calculon serve-optimal``: tables, files, what is tried, and exit codes."""

import json
import re

import pytest

import calculon
from tests.helpers import csv_rows

ASKED = ("llama3-8B", "1,2", "h100_80g_sxm", "-", "--prompt", "1000", "--output", "200")
FEW = ("--fix", "token_budget=2048", "--fix", "pipeline_par=1")
OPTIONS = {"prompt": 1000, "output": 200, "fix": {"token_budget": 2048, "pipeline_par": 1}}


def test_the_cheapest_for_a_rate(output_of):
    limits = ("--rate", "5", "--ttft", "1", "--tpot", "40ms", "--percentile", "0.99")
    out = output_of("serve-optimal", *ASKED, *FEW, *limits, "--objective", "usd_per_mtoken:min")
    for words in (
        "Deployments of llama3-8B on 1, 2 x h100_80g_sxm",
        "TTFT of 1.00 s and TPOT of 40.0 ms for 99 % of requests",
        "3 deployments, each with its batch",
        "narrower ones only on request: --add weights_dtype=float8",
        "Best: lowest usd_per_mtoken",
    ):
        assert words in " ".join(out.split())
    same = calculon.search_deployments(
        *("llama3-8B", "1,2", "h100_80g_sxm"),
        objective="usd_per_mtoken:min",
        **OPTIONS | {"rate": 5, "ttft_limit": 1, "tpot_limit": 0.04},
    )
    (best,) = (line.split() for line in out.splitlines() if line.split()[:1] == ["0"])
    assert best[:2] == ["0", str(same.best.deployment.num_procs)]


def test_other_kinds_are_shown_unless_the_question_selects_deployments(output_of):
    out = output_of("sop", *ASKED[:1], "2", *ASKED[2:], "--format", "json")
    kinds = {(one["kind"], one["precision"]) for one in json.loads(out)["alternatives"]}
    assert len(kinds) == 4
    restricted = output_of("sop", *ASKED, *FEW, "--format", "json")
    assert "alternatives" not in json.loads(restricted)


def test_any_finds_the_fewest_processors_and_says_what_fewer_miss(output_of):
    alone = calculon.search_deployments(*ASKED[:1], 1, ASKED[2], **OPTIONS).best["request_rate"]
    asked = (*FEW, "--fix", "tensor_par=1", "--rate", str(2.5 * alone))
    out = " ".join(output_of("sop", ASKED[0], "any", *ASKED[2:], *asked).split())
    same = calculon.search_deployments(
        *(ASKED[0], "1:5", ASKED[2]),
        rate=2.5 * alone,
        **OPTIONS | {"fix": OPTIONS["fix"] | {"tensor_par": 1}},
    )
    count = same.best.deployment.num_procs
    assert f"Deployments of llama3-8B on {count} x h100_80g_sxm" in out
    assert f"fewest {count} processors; {count - 1} processors ({count - 1} replicas" in out


def test_counts_that_were_not_tried_are_named_where_they_may_do(run):
    alone = calculon.search_deployments(*ASKED[:1], 1, ASKED[2], **OPTIONS).best["request_rate"]
    asked = (*FEW, "--fix", "tensor_par=1", "--rate", str(1.2 * alone))
    skipped, every = (
        run("sop", ASKED[0], counts, *ASKED[2:], *asked).out for counts in ("1,4", "1,2")
    )
    assert "Counts between 1 and 4 were not tried and may be sufficient: 1:4:1." in skipped
    assert "were not tried" not in every


@pytest.mark.usefixtures("without_help")
def test_a_winner_is_a_deployment_that_serve_reads(run, output_of, refuses, tmp_path):
    path = tmp_path / "best.json"
    out = output_of("sop", *ASKED[:3], str(path), *ASKED[4:], *FEW, "-t", "3")
    assert f"Output: {path}" in out
    document = json.loads(path.read_text())
    winners = document["winners"]
    assert len(winners) == document["counts"]["feasible"] == 3
    asked = ("llama3-8B", f"{path}#1", "h100_80g_sxm", *ASKED[4:], "--format", "json")
    found = json.loads(run("serve", *asked).out)
    assert (found["batch"], found["figures"]) == (winners[1]["batch"], winners[1]["figures"])
    wrong = ("llama3-8B", f"{path}#3", "h100_80g_sxm", *ASKED[4:])
    refuses(("serve",), [(wrong, "expected a rank from 0 to 2, found #3")])


def test_a_frontier_to_a_table(output_of, tmp_path):
    path = tmp_path / "frontier.csv"
    figures = ("output_rate_per_proc", "interactivity")
    options = ("--pareto", ",".join(figures), "-o", str(path))
    out = output_of("serve-optimal", *ASKED, *FEW, *options)
    assert "Frontier: no other is better in all of" in out
    rows = csv_rows(path.read_text())
    first, second = ([float(row[name]) for row in rows] for name in figures)
    assert len(rows) > 3
    assert first == sorted(first, reverse=True)
    assert second == sorted(second)
    out = output_of("sop", *ASKED, *FEW, *options[:2], "--format", "csv")
    assert csv_rows(out)[0]["batch"] == rows[0]["batch"]


@pytest.mark.large
def test_types_are_tried_where_they_are_asked_for(output_of):
    options = ("--add", "weights_dtype=float8,int4_g128", "--format", "json", "-t", "99")
    found = json.loads(output_of("sop", *ASKED, *FEW, *options))
    types = ["bfloat16", "float8", "int4_g128"]
    assert found["types"]["weights_dtype"] == types
    assert {one["deployment"]["weights_dtype"] for one in found["winners"]} == {*types}


def test_limits_that_none_keeps(refuses, tmp_path):
    path = tmp_path / "none.json"
    nearest = "none of 3 deployments meets the limits; the nearest, 1 replica of TP 2, misses TPOT"
    rows = [("--tpot 1ms", nearest), ("--tpot 1ms", "times the limit")]
    refuses(("sop", *ASKED[:3], path, *ASKED[4:], *FEW), rows, code=1)
    assert not path.exists()


def test_a_rate_beyond_the_capacity_states_the_processors_that_it_needs(run):
    found = run("sop", *ASKED, *FEW, "--rate", "9000")
    first, *limits, hint = (
        line.removeprefix("calculon: infeasible: ") for line in found.err.splitlines()
    )
    assert first.endswith(f"misses {len(limits)} limits:")
    assert re.fullmatch(r"- rate: 9,000 requests/s needed, capacity [\d.]+", limits[0])
    assert re.search(r"roughly \d+ processors", hint)
    assert "serve-optimal llama3-8B any h100_80g_sxm --rate 9000" in hint


def test_bad_input(refuses):
    rows = [
        ("--fix tensor_pa=2", "--fix: tensor_pa: expected a field of a deployment"),
        ("--fix prefill.num_procs=2", "separate prefill pools have an option: --apart"),
        ("--fix tensor_par", "FIELD=VALUE"),
        ("--add num_prox=2", "expected a field of a deployment, found 'num_prox'. Hint: see"),
        ("--add kv_dtype=int3", "--add: kv_dtype: expected one of"),
        ("--set max_batch=4", "in a search: --fix max_batch=VALUE"),
        ("--set workload.rate=abc", "workload: rate: expected a number above 0"),
        ("--set workload.nope=3", "known are prompt, output"),
        ("--set workload.prompt=0", "workload: prompt: expected a whole number of at least 1"),
        ("--pareto ttft,ttft", "--pareto: expected two different figures"),
        ("--pareto ttft,", "such as output_rate_per_proc,interactivity"),
        ("--pareto ,", "such as output_rate_per_proc,interactivity"),
        ("--pareto ttft,tpot -t 2", "leave out -t"),
        ("-o best.xls", "an output name that ends in"),
        ("--workload nothing", "nothing: expected a workload"),
    ]
    refuses(("serve-optimal", *ASKED), rows)
