"""Charts of the page in notebooks: the same ones, made of results."""

from dataclasses import replace

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from calculon.explore.page_state import State
from calculon.explore.result_charts import chart as specified
from calculon.render.plotly_charts import figure
from tests.cases import for_each
from tests.documents import results
from tests.explore.asking import made

OF_PLANS = {
    "breakdown": "time",
    "memory": "memory",
    "traffic": "traffic",
    "schedule": "schedule",
    "operators": "block",
    "roofline": "roofline",
}
"""Kinds of charts, and the parts of the page that show them."""

TINY = State(model="mlp-2x1024", system="a100_80g_sxm", procs=2, batch="512")
OWN = {"tensor_par": 1, "pipeline_par": 2, "microbatch_size": 4, "pipeline_interleaving": 1}


@pytest.fixture(scope="module")
def answer():
    return calculon.plan(TINY.model, TINY.procs, TINY.system, batch=512, mine=OWN)


def chart(result, kind, **options):
    """Return a chart of a result as Plotly draws it."""
    return figure(specified(result, kind, **options))


def on_page(part, **members):
    """Return the chart of a part of the page of the same question."""
    return without_links(figure(made(part, replace(TINY, **members)).chart))


def without_links(value):
    """Return a chart without the addresses to which clicks lead."""
    if isinstance(value, dict):
        return {name: without_links(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_links(one) for one in value]
    return "" if isinstance(value, str) and value.startswith("/?") else value


@for_each("kind", OF_PLANS)
def test_an_answer_has_the_charts_of_the_page(kind, answer):
    expected = on_page(OF_PLANS[kind])
    assert without_links(chart(answer, kind)) == expected
    assert without_links(chart(answer.best, kind)) == expected
    mine = on_page(OF_PLANS[kind], plan=OWN)
    assert without_links(chart(answer.mine.estimate, kind)) == mine != expected


def test_the_way_from_ones_own_plan_to_the_best_is_that_of_the_page(answer):
    assert without_links(chart(answer, "waterfall")) == on_page("against", plan=OWN)


def test_a_waterfall_is_that_of_the_answer_under_its_own_names(answer):
    alone = calculon.waterfall(answer.mine.estimate, answer.best)
    found, whole = (chart(one, "waterfall") for one in (alone, answer))
    (ends, others) = (one["layout"]["yaxis"].pop("ticktext") for one in (found, whole))
    assert ends[1:-1] == others[1:-1]
    times = [one["x"] for one in whole["data"]]  # the page shows them without the memory
    assert [one["x"] for one in found["data"]][: len(times)] == times


@for_each(
    ("kind", "part", "axes"),
    [
        ("heatmap", "search-splits", {}),
        ("pareto", "search-front", {"x": "mfu"}),
        ("capacity", "machine-capacity", {}),
    ],
)
def test_an_answer_has_the_charts_of_searches_and_of_the_machine(kind, part, axes, answer):
    assert without_links(chart(answer, kind, **axes)) == on_page(part, options=axes)


def test_numbers_of_processors_are_those_of_the_page():
    asked = calculon.plan(TINY.model, [1, 2], TINY.system, batch=512)
    expected = on_page("search-counts", options={"counts": "1,2"})
    assert without_links(chart(asked, "scaling")) == expected


@pytest.mark.large
def test_what_memory_buys_is_the_same_of_a_sensitivity_that_searched_again():
    small = calculon.plan("mlp-2x1024", 2, "a100_80g_sxm")
    asked = small.best.model, small.best.execution, small.best.system
    again = calculon.sensitivity(*asked, replan=True)
    assert without_links(chart(again, "capacity")) == without_links(chart(small, "capacity"))
    with pytest.raises(SpecError, match="replan=True"):
        chart(calculon.sensitivity(*asked), "capacity")


def test_executions_have_their_best_by_split_and_what_none_beats(answer):
    places = {"x": "proc_mem_tier1_cap_req", "y": "sample_rate"}
    table = answer.found.evaluation  # in the order of the rate
    found, searched = (
        chart(one, kind, **places)["data"]
        for one, kind in ((table, "scatter"), (answer.found, "pareto"))
    )
    assert [one["name"] for one in found] == ["each split", "Pareto-optimal", "best"]
    for one, other in zip(found, searched, strict=True):
        assert (one["x"], one["y"]) == (other["x"], other["y"])
    worst_first = table.take(slice(None, None, -1))
    assert chart(worst_first, "scatter", **places)["data"][0]["y"] == found[0]["y"]
    counts = chart(table, "scatter", x="num_procs", y="sample_rate")["data"]
    assert {x for trace in counts for x in trace["x"]} == {TINY.procs}
    assert list(table.plot(interactive=True).data[0].x) == found[0]["x"]


def test_options_are_those_of_the_part(answer):
    expected = on_page("schedule", options={"microbatches": "3"})
    assert without_links(chart(answer.best, "schedule", microbatches=3)) == expected


def test_a_search_has_its_best_by_split_and_what_none_beats():
    found = calculon.search(
        "gpt2-124M", "a100_80g_sxm", 4, 16, "bfloat16", preset="megatron-lm", top=20
    )
    splits, front, best = chart(found, "pareto", x="", y="")["data"]
    rows = found.to_frame()
    first = rows.drop_duplicates(["tensor_par", "pipeline_par"])
    assert splits["y"] == first["sample_rate"].tolist()
    assert best["y"] == splits["y"][:1]
    memory = rows["proc_mem_tier1_cap_req"]
    unbeaten = [
        not ((rows["sample_rate"] >= rate) & (memory < size)).any()
        and not ((rows["sample_rate"] > rate) & (memory <= size)).any()
        for rate, size in zip(rows["sample_rate"], memory, strict=True)
    ]
    assert sorted(front["y"]) == sorted(set(rows["sample_rate"][unbeaten]))
    drawn = found.plot(x="total_time", interactive=True)
    assert len(drawn.data) == 3
    with pytest.raises(SpecError, match="total_tine"):
        found.plot(x="total_tine", interactive=True)


@for_each("kind", OF_PLANS)
def test_plans_of_the_published_edition_have_them_too(kind):
    found = calculon.estimate("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
    assert chart(found, kind)["data"]


def test_a_chart_whose_legend_is_text_of_the_page_has_its_own_in_a_notebook(answer):
    assert made("memory", TINY).figure["layout"]["showlegend"] is False
    assert answer.plot("memory", interactive=True).layout.showlegend


def test_every_kind_of_picture_is_interactive_and_unknown_kinds_are_refused(answer):
    with pytest.raises(SpecError, match="expected one of breakdown, schedule, memory"):
        answer.best.plot("scaling", interactive=True)
    with pytest.raises(SpecError, match="none for memory"):
        answer.best.plot("memory", interactive=True, microbatch=2)
    run = calculon.campaign("gpt2-124M", "gpt2-124M_a100x2_ddp", "a100_80g_sxm", tokens="1G")
    assert len(run.plot(interactive=True).data) > 3


def test_nothing_to_draw_is_told(answer):
    whole = {**answer.best.execution.to_dict(), "microbatch_size": 512, "data_par_overlap": False}
    table = calculon.evaluate("llama3-70B", "h100_80g_sxm", [whole])
    assert not table.feasible.any()
    with pytest.raises(Infeasible, match="none of 1 executions"):
        table.plot(interactive=True)
    none = results.no_answer()
    assert none.best is None
    with pytest.raises(Infeasible, match="nothing to draw"):
        none.plot(interactive=True)
    alone = replace(answer, mine=None)
    with pytest.raises(Infeasible, match="nothing to draw"):
        alone.plot("waterfall", interactive=True)


def test_results_of_every_kind_are_interactive():
    asked = {"prompt": 500, "output": 100}
    one = results.estimate_of()
    shown = (
        served := calculon.serve("gpt2-124M", 1, "h100", users=4, **asked),
        calculon.by_batch(served),
        calculon.search_deployments("gpt2-124M", 1, "h100", asked),
        calculon.compare(one, results.estimate_of(results.ONE)),
        calculon.sweep("llama3-8B", "h100_80g_sxm", results.ONE, set={"batch_size": [256, 512]}),
        results.fleets(),
    )
    for result in shown:
        assert result.plot(interactive=True).data, type(result)
