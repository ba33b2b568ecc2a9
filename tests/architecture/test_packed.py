"""Attention over packed sequences, by lengths of documents."""

from dataclasses import replace

import numpy as np
import pytest

from calculon.architecture.attention import attention_layers, mean_keys
from calculon.architecture.parameters import model_flops_per_token
from calculon.architecture.shape import document_lengths
from calculon.declarations.model import Model
from tests.architecture.layers_by_name import layers_of
from tests.helpers import sizes

S = 240
MODEL = Model(
    hidden=48, feedforward=96, seq_size=S, attn_heads=4, attn_size=12, num_blocks=6, vocab=100
)
DOCUMENTS = ([S], [120, 120], [1] * S, [239, 1], [7, 100, 3, 90, 40], [24] * 10)


def _share(documents):
    """Return the sum of squared lengths over that of one document, in percent."""
    return 100 * sum(length**2 for length in documents) / (sum(documents) * S)


def _attended(model, documents):
    """Return the mean keys of a query of a causal or full block, counted in the mask."""
    document = np.repeat(np.arange(len(documents)), documents)
    query, key = np.ogrid[:S, :S]
    seen = document[:, None] == document
    if model.causal:
        seen &= key <= query
        if model.sliding_window:
            seen &= key > query - model.sliding_window
    return seen.sum(axis=1).mean()


def _keys(model, percent):
    return mean_keys(model, document_lengths(model.seq_size, np.array([float(percent)])))[0]


def test_keys_are_those_of_the_own_document():
    for documents in DOCUMENTS:
        for causal in [True, False]:
            model = replace(MODEL, causal=causal)
            found = _keys(model, _share(documents))
            seen = _attended(model, documents)
            assert found == pytest.approx(seen, rel=1e-13), (documents, causal)


def test_with_windows_equal_documents_are_exact_and_others_see_at_most_as_much():
    for window in [1, 10, 24, 100, 300]:
        model = replace(MODEL, sliding_window=window)
        for documents in DOCUMENTS:
            found, seen = _keys(model, _share(documents)), _attended(model, documents)
            if len(set(documents)) == 1:
                assert found == pytest.approx(seen, rel=1e-13), window
            assert seen <= found * (1 + 1e-13), window


def test_a_window_that_no_document_leaves_is_none():
    for percent, window in ((100, S), (40, 96), (10, 24)):
        for chunked in (False, True):
            model = replace(MODEL, sliding_window=window, chunked_window=chunked)
            assert _keys(model, percent) == _keys(MODEL, percent)


@pytest.mark.parametrize("causal", [True, False])
def test_keys_are_on_a_line_over_the_share_but_for_the_query_itself(causal):
    percent = np.arange(1.0, 101)
    keys = mean_keys(replace(MODEL, causal=causal), document_lengths(S, percent))
    expected = (percent / 100 * S + 1) / 2 if causal else percent / 100 * S
    np.testing.assert_allclose(keys, expected, rtol=1e-14)


def test_a_document_has_a_token():
    short = replace(MODEL, seq_size=8)
    assert _keys(short, 1) == _keys(short, 12.5) == 1


@pytest.mark.parametrize("window", [0, 10, 100])
def test_one_document_is_the_plain_sequence_to_the_bit(window):
    model = replace(MODEL, sliding_window=window, full_attention_every=3 * bool(window))
    lengths = np.arange(1.0, 5000)
    np.testing.assert_array_equal(document_lengths(lengths, 100), lengths)
    assert _keys(model, 100) == mean_keys(model)


def test_model_flop_have_the_keys_of_documents():
    """Source: Megatron-LM, ``training.py``: attention of packed sequences counts squared lengths."""
    blocks, width = MODEL.num_blocks, MODEL.attn_heads * MODEL.attn_size
    whole = model_flops_per_token(MODEL, training=True)
    for percent in (100, 40, 5):
        keys = percent / 100 * S
        full = model_flops_per_token(MODEL, training=True, packed_percent=percent)
        causal = model_flops_per_token(MODEL, training=True, causal=True, packed_percent=percent)
        assert whole - full == pytest.approx(12 * blocks * width * (S - keys), abs=1e-6)
        assert full - causal == pytest.approx(12 * blocks * width * (keys - 1) / 2)


def _flash(percent, imbalance=100):
    columns = sizes(
        packed_percent=np.array([float(percent)]),
        pack_imbalance_percent=np.array([float(imbalance)]),
    )
    return layers_of(MODEL, attention_layers, columns, attn_impl="flash")


def test_only_the_products_of_scores_depend_on_documents():
    whole, packed = _flash(100), _flash(40)
    for name, layer in packed.items():
        if name != "AttnBlock_Flash":
            assert layer == whole[name]
    one, other = whole["AttnBlock_Flash"], packed["AttnBlock_Flash"]
    ratio = (0.4 * S + 1) / (S + 1)
    for phase in (0, 1):
        np.testing.assert_allclose(other.flops[phase], one.flops[phase] * ratio, rtol=1e-14)
    assert other.accessed == one.accessed
    assert other.activation == one.activation


def test_flop_are_those_of_the_mean_rank():
    even, uneven = (_flash(40, imbalance)["AttnBlock_Flash"] for imbalance in (100, 250))
    assert uneven._replace(slowest=even.slowest) == even
    assert (even.slowest, uneven.slowest) == (1.0, 2.5)
