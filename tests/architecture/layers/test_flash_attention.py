"""Fused attention, of two sizes at once."""

import numpy as np
import pytest

from calculon.architecture.layers import Flags, When, flash_attention

TOKENS, HEADS, GROUPS, SIZE, KEYS = np.array([40.0, 80.0]), 6.0, 2.0, 5, 7.5
QUERIES, EACH = TOKENS * HEADS * SIZE, TOKENS * GROUPS * SIZE
FLAGS = Flags(recompute=When.RECOMPUTE_ATTENTION)


def _flash(beta=2, keys=KEYS):
    return flash_attention(
        "x",
        TOKENS,
        HEADS,
        GROUPS,
        SIZE,
        keys=keys,
        causal=True,
        dtype_bytes=beta,
        flags=FLAGS,
    )


def test_two_products_forward_and_five_backward():
    forward, backward, weights = _flash().flops
    product = 2 * TOKENS * KEYS * HEADS * SIZE
    np.testing.assert_array_equal(forward, 2 * product)
    np.testing.assert_array_equal(backward, 5 * product)
    assert weights == 0


def test_it_runs_on_the_engine_of_its_own_at_the_rate_for_its_keys():
    layer = _flash()
    assert (layer.engine, layer.keys, layer.flags) == ("attention", KEYS, FLAGS)
    assert layer.collective is None


@pytest.mark.parametrize("beta", [1, 2, 4])
def test_it_saves_queries_keys_values_and_one_statistic_per_head(beta):
    layer = _flash(beta)
    statistic = 4 * TOKENS * HEADS
    np.testing.assert_array_equal(layer.activation, beta * (QUERIES + 2 * EACH) + statistic)
    np.testing.assert_array_equal(layer.activation_grad, beta * QUERIES)
    np.testing.assert_array_equal(layer.output_bytes, beta * QUERIES)
    assert layer.weights == layer.weight_bytes == 0


@pytest.mark.parametrize("beta", [1, 2, 4])
def test_it_reads_its_operands_and_writes_its_results_once(beta):
    statistic, once = 4 * TOKENS * HEADS, beta * (2 * QUERIES + 2 * EACH)
    forward, backward, _ = _flash(beta).accessed
    np.testing.assert_array_equal(forward, once + statistic)
    gradients = once  # of the same tensors
    accumulated = 2 * 4 * QUERIES  # the gradient of queries, in 4 bytes
    np.testing.assert_array_equal(backward, once + gradients + statistic + accumulated)


def test_nothing_grows_with_the_square_of_the_sequence():
    """More keys per query cost arithmetic, not memory."""
    few, many = _flash(), _flash(keys=10 * KEYS)
    np.testing.assert_array_equal(many.flops[0], 10 * few.flops[0])
    for name in ("activation", "activation_grad", "inputs", "outputs"):
        np.testing.assert_array_equal(getattr(many, name), getattr(few, name))
    for more, less in zip(many.accessed[:2], few.accessed[:2], strict=True):
        np.testing.assert_array_equal(more, less)
