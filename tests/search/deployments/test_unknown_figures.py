"""Figures that only some deployments have: a question about them where none has says what they need."""

import pytest

import calculon
from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.search.deployments.deployment_vocabulary import HINTS, may_be_unknown

PLAIN = {"prompt": 1000, "output": 200, "fix": {"tensor_par": 1, "token_budget": 2048}}


def search(system="mi355x", **options):
    return calculon.search_deployments("llama3-8B", 2, system, **PLAIN | options)


def test_every_figure_that_may_be_unknown_says_what_it_needs():
    assert {name for name in SERVING_FIGURES if may_be_unknown(name)} == set(HINTS)
    assert not may_be_unknown("weights_dtype")


@pytest.mark.parametrize("name", ["usd_per_mtoken", "prefill_busy", "hit_time", "spec_speedup"])
def test_a_figure_that_none_has_is_told_of_rankings_and_conditions(name):
    hint = HINTS[name].format(system="mi355x")
    for asked, options in {
        "objective": {"objective": name},
        "where": {"where": f"{name} < 1"},
    }.items():
        with pytest.raises(SpecError) as caught:
            search(**options)
        assert str(caught.value).startswith(
            f"{asked}: expected a figure that is known, found {name}"
        )
        assert str(caught.value).endswith(hint)
    with pytest.raises(SpecError, match="objective: expected a figure that is known"):
        search(pareto=(name, "interactivity"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("usd_per_mtoken", {"fix": PLAIN["fix"] | {"price": 2.5}}),
        ("prefill_busy", {"apart": True}),
        ("waiting_prefixes", {"turns": 5, "think": 30}),
        ("kept_prefixes", {"prefix_hit": 0.5}),
        (
            "hit_time",
            {
                "prefix_hit": 0.5,
                "fix": PLAIN["fix"] | {"cache_offload": "host"},
                "system": "h100_80g_sxm",
            },
        ),
        (
            "spec_speedup",
            {"fix": PLAIN["fix"] | {"draft": "ngram", "draft_tokens": 2, "acceptance": 0.5}},
        ),
    ],
)
def test_what_the_hint_says_makes_it_known(name, options):
    found = search(**options, objective=name)
    assert found.best[name] > 0
    with pytest.raises(Infeasible, match="meets the condition"):
        search(**options, where=f"{name} < 0").best  # noqa: B018


def test_a_condition_that_also_holds_without_the_figure_is_met():
    assert len(search(where="usd_per_mtoken < 1 or tensor_par == 1"))
