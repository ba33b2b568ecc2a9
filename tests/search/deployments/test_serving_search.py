"""The search for deployments finds what serving every one of them finds, bit for bit."""

import math

import numpy as np
import pytest

from calculon import search_deployments
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.search.deployments.deployment_rows import solve
from calculon.search.deployments.deployment_vocabulary import objective
from calculon.search.deployments.serving_search import make_ranking, make_space, rounded, run
from calculon.serving.serve import serve
from calculon.serving.states.operating_point import LATE
from tests.search.deployments.every_deployment import every, every_apart, fields_of
from tests.serving.given import H100, SMALL
from tests.store import cache

LENGTHS = {"prompt": 700, "output": 100}
LOADS = (
    LENGTHS,
    LENGTHS | {"tpot_limit": 0.004, "ttft_limit": 0.02},
    LENGTHS | {"rate": 60, "tpot_limit": 0.01},
    LENGTHS | {"users": 50},
    LENGTHS | {"requests": 300},
)
COUNTS, BUDGETS = (1, 2), (0, 512)
FIXED = {"pipeline_par": (1, 2), "token_budget": BUDGETS}
TYPES = ("bfloat16", "float8")


@cache
def _every(number, types=TYPES, caps=(0,)):
    return every(SMALL, COUNTS, H100, LOADS[number], types=types, budgets=BUDGETS, caps=caps)


def _best(ones, text, count):
    """Return the best of some deployments: of equal ones those with more tokens/s of a user, then the first."""
    asked = objective(text)
    scored = []
    for place, one in enumerate(ones):
        if one.feasible:
            values = np.array(
                [asked.value(one.served[asked.statistic.name]), one.served["interactivity"]]
            )
            scored.append((*(-rounded(values)), place))
    return [ones[place] for *_, place in sorted(scored)[:count]]


OBJECTIVES = (
    "output_rate_per_proc",
    "usd_per_mtoken",
    "ttft",
    "tpot_p:min",
    "request_latency",
    "max_context",
    "mem_used:max",
    "concurrency:max",
)


@pytest.mark.parametrize(
    "number",
    [*range(len(LOADS)), *(pytest.param(n, marks=pytest.mark.large) for n in (5, 6, 7))],
)
def test_the_best_are_those_of_all(number):
    text, top, number = OBJECTIVES[number], 1 + number * 5 % 12, number % len(LOADS)
    types = TYPES if number == 0 else TYPES[:1]
    caps = (0, 8) if number == 1 else (0,)
    fix = FIXED | {"weights_dtype": types, "max_batch": caps}
    asked = make_space(SMALL, [*COUNTS], H100, LOADS[number], fix=fix)
    ones = _every(number, types, caps)
    expected = _best(ones, text, top)
    for prune in (True, False):
        found = run(asked, make_ranking(text, top), prune=prune)
        assert [fields_of(one) for one in found.deployments] == [one.fields for one in expected]
        for rank, one in enumerate(expected):
            stats = {
                name: math.nan if value is None else value
                for name, value in one.served.stats.items()
            }
            columns = {name: float(column[rank]) for name, column in found.columns.items()}
            assert columns.pop("batch") == one.served.batch
            np.testing.assert_equal(columns, stats)
    for one, same in zip(expected[:1], found, strict=False):
        assert same.stats == one.served.stats
    assert found.counts.total == len(ones)
    assert found.counts.feasible == sum(one.feasible for one in ones)


@pytest.mark.parametrize("model", ["small", "mixture"])
@pytest.mark.parametrize("rate", [3, 60, 700])
def test_bounds_at_a_rate_skip_no_winner(model, rate):
    """At a rate, tokens/s of a processor are equal for all splits of a count: ties decide."""
    load = LENGTHS | {"rate": rate, "tpot_limit": 0.01}
    asked = make_space(
        MIXTURE if model == "mixture" else SMALL, (2, 8), H100, load, fix={"pipeline_par": (1, 2)}
    )
    for top in (1, 3):
        found, every = (run(asked, make_ranking(top=top), prune=prune) for prune in (True, False))
        assert found.numbers.tolist() == every.numbers.tolist()
    assert found.counts.solved <= every.counts.solved


@pytest.mark.parametrize("number", range(len(LOADS)))
def test_a_brief_solution_lacks_only_the_figures_that_take_longest(number):
    space = make_space(SMALL, [*COUNTS], H100, LOADS[number], fix=FIXED)
    group = space.groups[0]
    brief, full = (solve(space, group, np.arange(len(group)), brief=one) for one in (True, False))
    for name in SERVING_FIGURES:
        if name in LATE:
            assert np.isnan(brief.value(name)).all()
            assert not np.isnan(full.value(name)).all()
        else:
            np.testing.assert_equal(brief.value(name), full.value(name))
    # Rankings by one of them have it.
    for name in LATE - {"even_context"}:
        assert run(space, make_ranking(name)).best[name] > 0


def test_a_frontier_has_no_dominated_point_and_loses_none():
    names, caps, number = ("output_rate_per_proc", "interactivity"), (0, 8), 1
    found = search_deployments(
        *(SMALL, COUNTS, H100, LOADS[number]),
        pareto=names,
        fix=FIXED | {"max_batch": caps},
    )
    ones = [one for one in _every(number, TYPES[:1], caps) if one.feasible]
    points = {tuple(rounded(np.array([one.served[name] for name in names]))) for one in ones}
    kept = {
        one for one in points
        if not any(other != one and all(b >= a for a, b in zip(one, other, strict=True)) for other in points)
    }  # fmt: skip
    scores = rounded(np.stack([found.columns[name] for name in names]))
    assert {*zip(*scores.tolist(), strict=True)} == kept
    assert len(found) == len(kept)
    assert np.all(np.diff(scores[0]) < 0)
    assert np.all(np.diff(scores[1]) > 0)


def test_powers_of_two_are_batches_of_a_frontier_of_saturated_replicas():
    asked = {"pareto": ("output_rate_per_proc", "interactivity"), "fix": {"token_budget": 2048}}
    saturated = search_deployments(SMALL, 2, H100, LENGTHS, **asked)
    assert {1, 2, 4, 8} <= {one.max_batch for one in saturated.deployments}
    loaded = search_deployments(SMALL, 2, H100, LENGTHS, users=50, **asked)
    assert {one.max_batch for one in loaded.deployments} == {0}


@pytest.mark.parametrize("load", [pytest.param(LOADS[1], marks=pytest.mark.large), LOADS[2]])
def test_pools_apart_are_all_tried(load):
    ones = every_apart(SMALL, 3, H100, load)
    asked = make_space(SMALL, 3, H100, load, fix={"pipeline_par": (1, 2)}, apart=True)
    pools = [group for group in asked.groups if group.pools is not None]
    assert [len(group) for group in pools] == [len(ones)]
    for text in ("output_rate_per_proc", "ttft_p:min"):
        found = run(asked, make_ranking(text, len(asked)))
        apart = [place for place, one in enumerate(found.deployments) if one.prefill is not None]
        expected = _best(ones, text, len(ones))
        for place, one in zip(apart, expected, strict=True):
            deployment = found.deployments[place].to_dict()
            assert {
                name: deployment[name] for name in ("num_procs", "tensor_par", "pipeline_par")
            } == {name: value for name, value in one.fields.items() if name != "prefill"}
            assert {**deployment["prefill"], **one.fields["prefill"]} == deployment["prefill"]
            for name in ("output_rate", "ttft_p", "tpot", "transfer_time", "prefill_busy"):
                np.testing.assert_equal(found.columns[name][place], one.served[name])


MIXTURE = {
    **{"hidden": 512, "feedforward": 1024, "seq_size": 1024, "attn_heads": 8, "attn_size": 64},
    **{"num_blocks": 2, "kv_heads": 4, "activation": "swiglu", "vocab": 32000},
    **{"num_experts": 8, "experts_per_token": 2, "dropout": False},
}


def test_experts_are_split_over_nodes_where_attention_stays_in_one():
    fix = {"pipeline_par": 1, "token_budget": 2048}
    asked = make_space(MIXTURE, 16, H100, LENGTHS, fix=fix)
    ones = every(MIXTURE, (16,), H100, LENGTHS, stages=(1,), budgets=(2048,))
    tried = [fields_of(asked.deployment(number)) for number in range(len(asked))]
    assert tried == [one.fields for one in ones]
    wide = {one["attn_data_par"] for one in tried if one["tensor_par"] == 16}
    assert wide == {2, 4, 8, 16}  # 8, 4, 2 and 1 of the 8 processors of a node share attention
    assert "within a node of 8" in asked.bounds
    heads = MIXTURE | {"attn_heads": 16, "attn_size": 32}  # which 16 ranks can share
    usual = make_space(heads, 16, H100, LENGTHS, fix=fix)
    added = make_space(heads, 16, H100, LENGTHS, fix=fix, add={"tensor_par": 16})
    beyond = {added.deployment(number) for number in range(len(added))}
    beyond -= {usual.deployment(number) for number in range(len(usual))}
    assert {(one.tensor_par, one.attn_data_par) for one in beyond} == {(16, 1)}
    assert "of 8 or 16" in added.bounds


def test_experts_are_split_in_every_way():
    load = LENGTHS | {"tpot_limit": 0.01}
    ones = every(MIXTURE, (4,), H100, load, stages=(1,), budgets=(2048,))
    asked = make_space(MIXTURE, 4, H100, load, fix={"pipeline_par": 1, "token_budget": 2048})
    assert [fields_of(asked.deployment(number)) for number in range(len(asked))] == [
        one.fields for one in ones
    ]
    found = run(asked, make_ranking("output_rate_per_proc", 3))
    expected = _best(ones, "output_rate_per_proc", 3)
    assert [fields_of(one) for one in found.deployments] == [one.fields for one in expected]


def test_drafts_are_split_like_the_model_as_far_as_they_can():
    """The draft has 14 heads, the model 64: of 1, 2, 4 and 8 ranks a node divides both where there are 1 or 2."""
    drafts = {"draft": "model:qwen2.5-0.5B", "draft_tokens": 2, "acceptance": 0.6}
    add = {name: (value,) for name, value in drafts.items()}
    fix = {"token_budget": 2048, "pipeline_par": 1}
    space = make_space("qwen2.5-72B", 8, H100, LENGTHS, fix=fix, add=add)
    ones = [space.deployment(number) for number in range(len(space))]
    assert {one.tensor_par for one in ones if one.draft == "none"} == {1, 2, 4, 8}
    assert {one.tensor_par for one in ones if one.draft != "none"} == {1, 2}
    found = run(space, make_ranking("interactivity", len(space)))
    for number, one in enumerate(found.deployments):
        alone = serve("qwen2.5-72B", one, H100, LENGTHS)
        assert found[number]["interactivity"] == alone["interactivity"]


def test_a_condition_reads_figures_and_fields():
    text = "tensor_par <= 2 and weights_dtype == 'float8' and mem_free > 1 * GiB"
    found = search_deployments(
        *(SMALL, COUNTS, H100, LENGTHS), fix=FIXED | {"weights_dtype": TYPES}, top=100, where=text
    )
    expected = [
        one for one in _every(0)
        if one.feasible and one.fields["tensor_par"] <= 2 and one.fields["weights_dtype"] == "float8"
        and one.served["mem_free"] > 2**30
    ]  # fmt: skip
    assert len(found) == len(expected) > 0
    nothing = search_deployments(SMALL, COUNTS, H100, LENGTHS, fix=FIXED, where="tpot < 0")
    assert len(nothing) == 0
    with pytest.raises(Infeasible, match=r"none of .* feasible deployments meets the condition"):
        _ = nothing.best


@pytest.mark.parametrize(("ttft", "worst"), [(1e-6, "TTFT"), (10.0, "TPOT")])
def test_the_nearest_misses_its_worst_limit_by_the_least(ttft, worst):
    load = LENGTHS | {"tpot_limit": 1e-6, "ttft_limit": ttft}
    ones = every(SMALL, COUNTS, H100, load, budgets=BUDGETS)
    excess = [max(one.found / one.most for one in each.served.limits) for each in ones]
    found = search_deployments(SMALL, COUNTS, H100, load, fix=FIXED)
    assert (len(found), found.counts.feasible) == (0, 0)
    nearest = found.space.deployment(found.nearest)
    assert fields_of(nearest) == ones[excess.index(min(excess))].fields
    with pytest.raises(
        Infeasible,
        match=rf"none of \d+ deployments meets the limits; .* misses (2 limits:\n- )?{worst}: .* times the limit",
    ):
        _ = found.best


def test_without_room_the_memory_is_told():
    with pytest.raises(
        Infeasible, match=r"fits in memory; the nearest, .*: a sequence of 800 tokens does not fit"
    ):
        _ = search_deployments("llama3-70B", 1, H100, LENGTHS).best


def test_processors_that_no_split_divides():
    found = search_deployments(SMALL, 3, H100, LENGTHS, fix={"tensor_par": 2})
    assert len(found) == found.counts.total == 0
    with pytest.raises(Infeasible, match="no split of this number of processors"):
        _ = found.best


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "latency"}, "did you mean 'request_latency'"),
        ({"objective": "tpot:low"}, "max or min after the colon"),
        ({"fix": {"tensor_pa": 2}}, "did you mean 'tensor_par'"),
        ({"fix": {"num_procs": 2}}, "have an argument"),
        ({"add": {"kv_dtype": "int3"}}, "kv_dtype: expected one of"),
        ({"fix": {"tensor_par": 2}, "add": {"tensor_par": 4}}, "fix lists all values"),
        (
            {"fix": {"batching": "static", "draft": "ngram", "draft_tokens": 2, "acceptance": 0.5}},
            "batching",
        ),
        ({"pareto": ["tpot"]}, "two different figures"),
        ({"where": "tpot < x"}, "a serving figure or a field of a deployment"),
        ({"where": "weights_dtype == 'float9'"}, "did you mean 'float8'"),
        ({"top": 0}, "top"),
    ],
)
def test_what_is_wrong_is_told(options, message):
    with pytest.raises(SpecError, match=message):
        search_deployments(SMALL, 2, H100, LENGTHS, **options)


def test_money_of_a_machine_without_a_price():
    with pytest.raises(SpecError, match=r"a100_80g.* states no price"):
        search_deployments(SMALL, 2, "a100_80g", LENGTHS, objective="usd_per_mtoken", fix=FIXED)
    found = search_deployments(
        *(SMALL, 2, "a100_80g", LENGTHS), objective="usd_per_mtoken", fix=FIXED | {"price": 1.5}
    )
    hours = 1e6 / (3600 * found.best["output_rate"])
    assert found.best["usd_per_mtoken"] == pytest.approx(1.5 * 2 * hours, rel=1e-12)
