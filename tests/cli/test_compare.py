"""``calculon compare``: differences, their sources, and every format."""

import json
import re

import pytest

import calculon
from calculon.base.units import chance
from calculon.cli.commands.compare import MOST
from calculon.estimate.comparison_confidence import MAX_TIED
from tests.cli.conftest import ARGUMENTS
from tests.helpers import NAMES, csv_rows

A = ",".join(ARGUMENTS)
B = A.replace("a100_80g", "a100_80e")


@pytest.fixture
def statistics():
    return [calculon.estimate(*text.split(",")).stats for text in (A, B)]


def test_equal_statistics_are_counted_unless_asked_for(run):
    brief, whole = run("compare", A, B).out, run("compare", A, B, "--all").out
    assert "are equal" in brief
    assert "weight_space " not in brief
    assert all(f"\n{name} " in whole for name in NAMES)


def test_json_holds_every_value_difference_and_ratio(run, statistics):
    found = json.loads(run("compare", A, B, "--format", "json").out)
    assert [one["label"] for one in found["results"]] == ["a100_80g", "a100_80e"]
    assert len(found["results"][0]["documents"][0]["sha256"]) == 64
    assert found["inputs"] == [{"field": "system", "values": ["a100_80g", "a100_80e"]}]
    assert [one["name"] for one in found["statistics"]] == list(NAMES)
    first, second = statistics
    for one in found["statistics"]:
        a, b = first[one["name"]], second[one["name"]]
        assert one["values"] == [a, b]
        assert one["differences"] == [b - a]
        assert one["ratios"] == [b / a if a else None]
    assert sum(one["differences"][0] for one in found["time"]) == pytest.approx(
        second["total_time"] - first["total_time"]
    )
    sizes = [abs(one["differences"][0]) for one in found["time"]]
    assert sizes == sorted(sizes, reverse=True)


def test_several_results_are_compared_with_the_first(run):
    found = json.loads(run("compare", A, B, A, "-f", "json").out)
    (total,) = [one for one in found["statistics"] if one["name"] == "total_time"]
    assert len(total["values"]) == 3
    assert total["differences"][1] == 0


# -- editions ---------------------------------------------------------------------------------------------------------

BOTH = ("--edition", "sc23,corrected", "--preset", "published")


def test_editions_are_in_json_and_csv(run):
    published, corrected = (
        calculon.estimate(*ARGUMENTS, edition=name, preset="published").stats
        for name in ("sc23", "corrected")
    )
    found = json.loads(run("compare", A, *BOTH, "-f", "json").out)
    assert [one["edition"] for one in found["results"]] == ["sc23", "corrected"]
    assert found["inputs"] == [{"field": "edition", "values": ["sc23", "corrected"]}]
    assert [one["name"] for one in found["statistics"]] == list(corrected)
    for one in found["statistics"]:
        assert one["values"] == [published.get(one["name"]), corrected[one["name"]]]
    (mfu,) = [one for one in found["statistics"] if one["name"] == "mfu"]
    assert (mfu["differences"], mfu["ratios"]) == ([None], [None])
    rows = csv_rows(run("compare", A, *BOTH, "-f", "csv").out)
    assert {(row["edition"], row["reference_edition"]) for row in rows} == {("corrected", "sc23")}
    (row,) = [row for row in rows if row["name"] == "mfu"]
    assert (float(row["value"]), row["reference"]) == (corrected["mfu"], "")


def test_every_execution_is_estimated_in_every_edition(run):
    found = json.loads(run("compare", f"one={A}", B, *BOTH, "-f", "json").out)
    assert [one["label"] for one in found["results"]] == [
        "one, edition sc23",
        "one, edition corrected",
        "megatron-1T, 3072_t4_p64_d12_mbs4_full, a100_80e, edition sc23",
        "megatron-1T, 3072_t4_p64_d12_mbs4_full, a100_80e, edition corrected",
    ]


def test_an_edition_that_all_share_is_said_unless_it_is_the_published_one(run):
    out = run("compare", A, B, "--edition", "corrected").out
    assert out.startswith("A  a100_80g (edition corrected)\nB  a100_80e (edition corrected)\n")
    assert "A corrected" not in out
    assert run("compare", A, B, "--edition", "sc23").out == run("compare", A, B).out


def test_files_of_statistics_stay_as_they_are(run, refuses):
    run("llm", *ARGUMENTS, "old.json")
    message = "--edition: expected executions to estimate, found files of results only"
    refuses(("compare", *BOTH), [("old.json again=old.json", message)])
    found = json.loads(run("compare", "old.json", A, "--edition", "corrected", "-f", "json").out)
    assert [one["edition"] for one in found["results"]] == ["sc23", "corrected"]


def test_an_execution_that_fits_in_one_edition_only(refuses, execution):
    plan = execution(microbatch_size=8)  # twice the checkpoints, which only one of them splits
    message = "a100_80g in edition sc23: memory"
    call = ("compare", f"megatron-1T,{plan},a100_80g")
    refuses(call, [("--edition corrected,sc23", message)], code=1)


def test_says_what_is_wrong(refuses):
    rows = [
        ((A,), "expected 2 to 26 results to compare, found 1"),
        ((A, "x.json"), "x.json: expected a readable file"),
        ((), "the following arguments are required: RESULT"),
    ]
    editions = ["sc24", "sc23,sc24", "", "sc23,,corrected"]
    rows += [((A, "--edition", text), "expected one of sc23, corrected") for text in editions]
    refuses(("compare",), rows)


TODAY = "llama3-8B,llama3-8B_h100x64,h100_80g_sxm"


@pytest.fixture
def other(spec):
    """Return the example of today with other choices: it is as fast, or twice as slow."""
    model, plan, system = TODAY.split(",")
    return lambda **changes: f"{model},{spec('examples', plan, **changes)},{system}"


SAME = {"longer": 0, "margin": 0, "probability": 0.5, "told_apart": False}


def test_results_that_are_not_told_apart_say_so(run, other):
    near = run("compare", TODAY, other(data_par_overlap=False))
    assert near.out.count("Intervals of the time (90 %): A ") == 1
    assert re.search(r"\n(A and B are too close to call, )?[AB] is faster in ", near.out)
    same = json.loads(run("compare", TODAY, other(), "-f", "json").out)
    assert same["orders"]["B"] == SAME
    assert all(one["interval"]["low"] < one["interval"]["high"] for one in same["results"])


def test_plans_of_one_question_are_led_from_one_to_the_other(run, other):
    far = other(activation_recompute="full", tensor_par=8, data_par=8, tensor_par_overlap="none")
    found = json.loads(run("compare", TODAY, far, "-f", "json").out)
    told, order = found["waterfalls"]["B"], found["orders"]["B"]
    (total,) = [one for one in found["statistics"] if one["name"] == "total_time"]
    assert order["longer"] == pytest.approx(total["ratios"][0] - 1)
    assert found["told_apart"] == [order["longer"] > min(order["margin"], MAX_TIED)]
    assert order["probability"] > 0.5
    assert sum(step["seconds"] for step in told["steps"]) == pytest.approx(total["differences"][0])
    text = run("compare", TODAY, far).out
    assert "From A to B, one change at a time" in text
    assert all(step["change"].split(" -> ")[0] in text for step in told["steps"])
    rows = csv_rows(run("compare", TODAY, far, "-f", "csv").out)
    steps = [row for row in rows if row["table"] == "waterfall, s a step"]
    assert [row["name"] for row in steps] == [step["change"] for step in told["steps"]]
    assert float(steps[-1]["value"]) == pytest.approx(total["values"][1])
    for row in steps:
        difference = float(row["value"]) - float(row["reference"])
        assert difference == pytest.approx(float(row["difference"]))


def test_what_shares_no_machine_is_not_compared_with_more_than_its_interval(run):
    machine = TODAY.replace("h100_80g_sxm", "h200_141g_sxm")
    found = json.loads(run("compare", TODAY, machine, "-f", "json").out)
    assert (found["told_apart"], found["waterfalls"]) == ([None], {})
    assert "one change at a time" not in run("compare", TODAY, machine).out
    both = json.loads(run("compare", A, B, "-f", "json").out)
    assert both["told_apart"] == [None]
    assert [one["interval"] for one in both["results"]] == [None, None]


def test_the_probabilities_of_fitting_are_compared(run):
    plans = [
        f"llama3-8B,llama3-8B_h100x64,{system}" for system in ("h100_80g_sxm", "h200_141g_sxm")
    ]
    said = " ".join(run("compare", *plans).out.split())
    first, second = (calculon.estimate(*text.split(",")).stats["fits"] for text in plans)
    assert f"fits with a probability of A {chance(first)}, B {chance(second)}" in said
    assert "fits with a probability" not in run("compare", A, B).out


def test_plans_of_files_stand_between_model_and_system(output_of):
    search = ("search", "llama3-8B", "8", "h100", "--batch", "64", "--fix", "tp=2", "-t", "3", "-q")
    output_of(*search, "-o", "best.json")
    found = output_of("compare", "llama3-8B", "best.json#0", "tp=2 dp=4 batch=64", "h100")
    assert re.match(r"A  best#0 .*\nB  tp=2 dp=4 batch=64 ", found)
    alone = output_of("compare", "best.json#0", "best.json#2", "-f", "json")
    both = output_of("compare", "llama3-8B", "best.json#0", "best.json#2", "h100", "-f", "json")
    assert json.loads(both)["statistics"] == json.loads(alone)["statistics"]


def test_a_plan_is_compared_on_several_systems(run):
    apart = run("compare", "llama3-8B", "tp=2 dp=4", "a100", "h100", "--format", "json").out
    joined = run("compare", "llama3-8B", "tp=2 dp=4", "a100,h100", "--format", "json").out
    systems = ["a100_80g_sxm", "h100_80g_sxm"]
    assert json.loads(apart)["inputs"][0] == {"field": "system", "values": systems}
    assert apart == joined


def test_statistics_that_differ_most_are_listed_unless_all_are_asked_for(run, statistics):
    first, second = statistics
    brief, whole = run("compare", A, B).out, run("compare", A, B, "--verbose").out
    names = {name for name in NAMES if first[name] != second[name]}
    listed = {name for name in names if f"\n{name} " in brief}
    assert all(f"\n{name} " in whole for name in names)
    assert len(listed) == MOST

    def difference(name):
        a, b = first[name], second[name]
        return abs(b - a) / max(abs(a), abs(b))

    assert min(map(difference, listed)) >= max(map(difference, names - listed))


def test_layouts_of_many_chunks_hide_no_other_result(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    layout = "tp=8 pp=16 dp=1 batch=64 vpp=2 stage_blocks=Et*2|(t*3|)*29t*3|t*4L"
    balanced = "tp=8 pp=16 dp=1 batch=64 vpp=3"
    page = run("compare", "gpt3-175b", layout, balanced, "a100_80g_sxm").out
    differing = page.split("Inputs that differ")[1].split("\n\n")[0]
    assert re.search(r"stage_blocks +2, 30 x 3, 4\b", differing)
    assert re.search(r"pipeline_interleaving +2 +3$", differing, re.MULTILINE)
