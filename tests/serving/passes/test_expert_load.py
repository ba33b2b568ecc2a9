"""How unevenly tokens choose experts: shares, the fullest rank, experts that are touched."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.serving.passes.exchange import (
    EVEN,
    LARGEST,
    ROUTINGS,
    activated_experts,
    busiest,
    imbalance,
    shares,
)
from tests.cases import for_each
from tests.serving.given import SMALL, rows_of

DEEPSEEK = inputs.model("deepseek-v3")
UNEVEN = [name for name, exponent in ROUTINGS.items() if exponent]


def of_experts(experts, each):
    """Return a model with so many experts, some of which each token passes."""
    return replace(SMALL, num_experts=experts, experts_per_token=each, name="experts")


@for_each("routing", ROUTINGS)
def test_shares_sum_up_and_rise(routing):
    found = shares(routing, 128)
    assert found.sum() == pytest.approx(1)
    assert np.all(np.diff(found) >= 0)
    assert found[-1] / found[0] <= LARGEST


def test_a_fifth_of_the_experts_has_two_thirds_of_the_tokens():
    """As the documentation of the law says of the exponent 1.2: 60 to 70 %."""
    found = shares("power_law:1.2", 1280)
    assert found[-256:].sum() == pytest.approx(0.67, abs=0.01)


def test_balanced_routing_and_one_group_have_no_fullest_rank():
    groups = np.array([1.0, 2, 8, 64])
    assert imbalance("balanced", 64, groups, 0 * groups).tolist() == [1, 1, 1, 1]
    for routing in UNEVEN:
        assert imbalance(routing, 64, np.ones(1), np.zeros(1)).tolist() == [1]


@pytest.mark.parametrize("routing", UNEVEN)
def test_fewer_experts_of_a_rank_even_out_less(routing):
    groups = np.array([1.0, 2, 4, 8, 16, 32, 64])
    found = imbalance(routing, 64, groups, 0 * groups)
    assert np.all(np.diff(found) > 0)
    assert found[-1] == pytest.approx(64 * shares(routing, 64)[-1])


@pytest.mark.parametrize("routing", UNEVEN)
def test_copies_even_out(routing):
    groups, copies = np.full(4, 32.0), np.array([0.0, 32, 64, 128])
    found = imbalance(routing, 256, groups, copies)
    assert np.all(found >= 1)
    assert np.all(found[1:] < 1 + (found[0] - 1) / 10)


def test_an_only_expert_is_always_touched():
    tokens = np.array([1.0, 5, 100])
    for experts in (1, 64):
        model = of_experts(experts, experts)
        assert activated_experts(model, 1, 0, tokens).tolist() == [experts] * 3


@for_each("routing", ROUTINGS)
def test_copies_are_touched_by_tokens_of_their_own(routing):
    """One token passes `k` experts, whatever copies there are; many tokens pass all of them and their copies."""
    model, groups = of_experts(64, 4), np.full(2, 16.0)
    copies = np.array([0.0, 16])
    one = activated_experts(model, np.ones(2), copies, np.ones(2), routing)
    assert one == pytest.approx(4)
    many = activated_experts(model, groups, copies, np.full(2, 1e6), routing)
    assert many == pytest.approx([64 / 16, 80 / 16])


@for_each("tokens", [4, 32, 256])
@for_each("groups", [2, 8, 32])
def test_the_busiest_rank_is_that_of_random_passes(tokens, groups):
    """Mean of the largest over passes in which each token selects experts at random: within 9 %, or half a row."""
    experts, each, passes = 64, 4, 200
    model, draw = of_experts(experts, each), np.random.default_rng(5)
    chosen = np.argsort(draw.random((passes, tokens, experts)), axis=2)[:, :, :each]
    rows = np.apply_along_axis(np.bincount, 1, chosen.reshape(passes, -1), minlength=experts)
    of_ranks = rows.reshape(passes, groups, -1)
    most_rows = of_ranks.sum(axis=2).max(axis=1).mean()
    most_touched = (of_ranks > 0).sum(axis=2).max(axis=1).mean()
    split = (np.full(1, float(groups)), np.zeros(1), np.full(1, float(tokens)))
    found = busiest(model, *split, "balanced") * tokens * each / groups
    assert found[0] == pytest.approx(most_rows, rel=0.09, abs=0.5)
    touched = activated_experts(model, *split)
    assert touched[0] == pytest.approx(most_touched, rel=0.09, abs=0.5)


@for_each("tokens", [4, 32])
@for_each("groups", [2, 4, 8])
def test_tokens_limited_to_groups_of_experts_reach_fewer_ranks_with_more_rows(tokens, groups):
    """DeepSeek-V3: 4 of 8 groups, and 8 of the 128 experts in these, at random: within 9 %, or half a row."""
    draw, passes = np.random.default_rng(6), 100
    limited = np.argsort(draw.random((passes, tokens, 8)), axis=2)[:, :, :4]
    open_groups = np.zeros((passes, tokens, 8))
    np.put_along_axis(open_groups, limited, 1.0, axis=2)
    scores = draw.random((passes, tokens, 256)) * np.repeat(open_groups, 32, axis=2)
    chosen = np.argsort(-scores, axis=2)[:, :, :8].reshape(passes, -1)
    rows = np.apply_along_axis(np.bincount, 1, chosen, minlength=256).reshape(passes, groups, -1)
    split = (np.full(1, float(groups)), np.zeros(1), np.full(1, float(tokens)))
    found = busiest(DEEPSEEK, *split, "balanced") * tokens * 8 / groups
    assert found[0] == pytest.approx(rows.sum(axis=2).max(axis=1).mean(), rel=0.09, abs=0.5)
    touched = activated_experts(DEEPSEEK, *split)
    expected = (rows > 0).sum(axis=2).max(axis=1).mean()
    assert touched[0] == pytest.approx(expected, rel=0.09, abs=0.5)


@for_each("routing", ROUTINGS)
def test_more_tokens_never_leave_the_busiest_rank_less_to_do(routing):
    tokens = np.concatenate([np.arange(1.0, 300), [1e4, 1e9]])
    for groups in (1, 4, 64):
        split = (np.full(tokens.shape, float(groups)), np.zeros(tokens.shape), tokens)
        model = of_experts(64, 4)
        rows = busiest(model, *split, routing) * tokens
        touched = activated_experts(model, *split, routing)
        assert np.all(np.diff(rows) > 0)
        assert np.all(np.diff(touched) >= 0)
        assert np.all(touched <= np.minimum(64 / groups, tokens * 4))


def test_even_routing_leaves_nothing_to_chance():
    split = (np.full(2, 8.0), np.zeros(2), np.array([2.0, 1000]))
    model = of_experts(64, 4)
    assert busiest(model, *split, EVEN).tolist() == [1, 1]
    assert activated_experts(model, *split, EVEN).tolist() == [1, 8]


def test_touched_experts_of_deepseek_v3():
    tokens = np.array([16.0, 128])
    touched = activated_experts(DEEPSEEK, np.ones(2), np.zeros(2), tokens, "balanced")
    assert np.round(touched).tolist() == [102, 252]
    rows = rows_of(DEEPSEEK, decoded=tokens, context=10)
    each = 3 * 7168 * 2048 * 2
    read = sum(row.times * row.weights for row in rows if row.name == "experts" and row.times == 58)
    expected = 58 * each * 256 * (1 - (1 - 8 / 256) ** tokens)
    np.testing.assert_allclose(read, expected, rtol=1e-12)
