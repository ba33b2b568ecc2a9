"""Ranks with parts of the same sequences: who has how much of attention, and the steps of a ring, key by key."""

import itertools

import numpy as np
import pytest

from calculon.architecture.attention import mean_keys
from calculon.architecture.ring_attention import imbalance, parts_sent, ring_of
from calculon.declarations.model import Model
from calculon.declarations.named_values import CP_BALANCES

LENGTH = 256


def model_with(**fields):
    return Model(
        hidden=8,
        feedforward=8,
        seq_size=LENGTH,
        attn_heads=1,
        attn_size=8,
        num_blocks=2,
        **fields,
    )


MODELS = {
    "causal": model_with(),
    "not causal": model_with(causal=False),
    "window": model_with(sliding_window=100),
    "narrow window": model_with(sliding_window=16),
    "chunks": model_with(sliding_window=64, chunked_window=True),
}


def tokens_of(rank, ranks, balance):
    part = LENGTH // ranks
    if balance == "contiguous":
        return [*range(rank * part, (rank + 1) * part)]
    if balance == "striped":
        return [*range(rank, LENGTH, ranks)]
    half, mirrored = part // 2, 2 * ranks - 1 - rank
    front, back = (
        range(rank * half, rank * half + half),
        range(mirrored * half, (mirrored + 1) * half),
    )
    return [*front, *back]


def keys_of(model, token):
    if not model.causal:
        return range(LENGTH)
    reach = model.sliding_window or LENGTH
    if model.chunked_window:
        return range(token // reach * reach, token + 1)
    return range(max(0, token + 1 - reach), token + 1)


def pairs(model, ranks, balance):
    """Queries and keys of each rank, by the rank that has the keys: shape (ranks, ranks)."""
    owner = {t: r for r in range(ranks) for t in tokens_of(r, ranks, balance)}
    found = np.zeros((ranks, ranks))
    for token, rank in owner.items():
        for key in keys_of(model, token):
            found[rank, owner[key]] += 1
    return found


def column(number):
    return np.array([float(number)])


@pytest.mark.parametrize("balance", CP_BALANCES)
def test_the_busiest_rank_has_the_most_keys(balance):
    for (name, model), ranks in itertools.product(MODELS.items(), (1, 2, 8)):
        work = pairs(model, ranks, balance).sum(axis=1)
        (found,) = imbalance(model, column(LENGTH), column(ranks), balance, mean_keys)
        few = ranks / mean_keys(model, column(LENGTH))[0]  # keys by which ranks with stripes differ
        expected = work.max() / work.mean()
        tolerance = 1e-12 if balance != "striped" else few
        assert found == pytest.approx(expected, rel=tolerance), (name, ranks)


def test_contiguous_parts_of_long_sequences():
    for ranks in (2, 4, 8):
        (found,) = imbalance(
            MODELS["causal"], column(2**20), column(ranks), "contiguous", mean_keys
        )
        assert found == pytest.approx((2 * ranks - 1) / ranks, rel=1e-4)


@pytest.mark.parametrize("name", ["causal", "not causal"])
@pytest.mark.parametrize("balance", CP_BALANCES)
def test_steps_of_the_busiest_rank(name, balance):
    """The own part, and of those of each other rank as much; where a step has nothing to do, others wait for it."""
    model, ranks = MODELS[name], 4
    found = ring_of(model, column(LENGTH), column(ranks), balance, mean_keys, skips=False)
    table = pairs(model, ranks, balance)
    work = table[-1]
    steps = [float(found.first[0]), *[float(found.later[0])] * (ranks - 1)]
    assert found.steps == ranks
    assert sum(steps) == pytest.approx(1, rel=1e-14)
    few = ranks / (LENGTH / ranks / 2)
    tolerance = few if balance == "striped" else 1e-12
    assert steps == pytest.approx([work[-1] / work.sum(), *(work[:-1] / work.sum())], rel=tolerance)
    assert found.halves == (model.causal and balance == "zigzag")
    assert found.masked == (model.causal and balance == "striped")


def test_one_rank_has_one_step():
    for model in MODELS.values():
        found = ring_of(model, column(LENGTH), column(1), "zigzag", mean_keys, skips=True)
        assert (found.steps, found.first, found.later) == (1, 1, 1)


@pytest.mark.parametrize("name", MODELS)
def test_parts_that_some_query_attends_to(name):
    model = MODELS[name]
    for ranks in (2, 4, 8):
        others = parts_sent(model, column(LENGTH), column(ranks), "contiguous", skips=True)
        needed = (pairs(model, ranks, "contiguous") > 0).sum(axis=1).max() - 1
        assert (ranks, others) == (ranks, needed)


def test_zigzag_sends_halves_of_parts():
    """In units of whole parts: each of both pieces needs those before it."""
    for name in ["window", "narrow window", "chunks"]:
        model = MODELS[name]
        for ranks in (2, 4, 8):
            piece, window = LENGTH / ranks / 2, model.sliding_window
            reach = (
                max(np.ceil(window / piece) - 1, 0)
                if model.chunked_window
                else np.ceil((window - 1) / piece)
            )
            found = parts_sent(model, column(LENGTH), column(ranks), "zigzag", skips=True)
            assert (ranks, found) == (ranks, min(2 * reach / 2, ranks - 1)), name


def test_a_ring_that_does_not_skip_sends_all():
    for model in MODELS.values():
        assert parts_sent(model, column(LENGTH), column(8), "zigzag", skips=False) == 7


def test_blocks_with_full_attention_need_all_parts():
    model = model_with(sliding_window=16, full_attention_every=2)
    assert parts_sent(model, column(LENGTH), column(8), "contiguous", skips=True) == (7 + 1) / 2
