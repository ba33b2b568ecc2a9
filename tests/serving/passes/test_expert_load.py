"""How unevenly tokens choose experts: shares, the fullest rank, experts that are touched."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.serving.passes.exchange import (
    LARGEST,
    ROUTINGS,
    activated_experts,
    imbalance,
    shares,
)
from tests.cases import for_each
from tests.serving.given import SMALL, rows_of

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
    few = activated_experts(of_experts(64, 1), np.full(1, 8.0), np.zeros(1), np.ones(1))
    assert few[0] == pytest.approx(8 / 64)


@for_each("routing", ROUTINGS)
def test_copies_are_touched_by_tokens_of_their_own(routing):
    """One token passes `k` of all ranks' experts, whatever copies there are; many tokens pass all of them."""
    model, groups = of_experts(64, 4), np.full(2, 16.0)
    copies = np.array([0.0, 16])
    one = activated_experts(model, groups, copies, np.ones(2), routing)
    assert one == pytest.approx(4 / 16)
    many = activated_experts(model, groups, copies, np.full(2, 1e6), routing)
    assert many == pytest.approx([64 / 16, 80 / 16])


DEEPSEEK = inputs.model("deepseek-v3")


def test_touched_experts_of_deepseek_v3():
    tokens = np.array([16.0, 128])
    touched = activated_experts(DEEPSEEK, np.ones(2), np.zeros(2), tokens, "balanced")
    assert np.round(touched).tolist() == [102, 252]
    rows = rows_of(DEEPSEEK, decoded=tokens, context=10)
    each = 3 * 7168 * 2048 * 2
    read = sum(row.times * row.weights for row in rows if row.name == "experts" and row.times == 58)
    expected = 58 * each * 256 * (1 - (1 - 8 / 256) ** tokens)
    np.testing.assert_allclose(read, expected, rtol=1e-12)
