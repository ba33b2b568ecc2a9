import numpy as np
import pytest

from calculon.architecture.layers import cross_entropy, lookup, positions
from calculon.architecture.layers.vocabulary import LOSSES

TOKENS, HIDDEN, ROWS = np.array([30.0, 60.0]), 4, np.array([100.0, 50.0])
ELEMENTS, TABLE = TOKENS * HIDDEN, ROWS * HIDDEN
bytes_each = pytest.mark.parametrize("beta", [1, 2, 4])


@bytes_each
def test_a_lookup_moves_one_row_per_token_and_a_gradient_as_large_as_the_table(beta):
    layer = lookup("x", TOKENS, HIDDEN, ROWS, dtype_bytes=beta)
    np.testing.assert_array_equal(layer.accessed[0], 2 * beta * ELEMENTS)
    assert layer.accessed[1] == layer.flops[0] == layer.flops[1] == 0  # tokens have no gradient
    np.testing.assert_array_equal(layer.accessed[2], beta * ELEMENTS + 4 * TABLE)
    np.testing.assert_array_equal(layer.flops[2], ELEMENTS)
    np.testing.assert_array_equal(layer.weights, TABLE)
    np.testing.assert_array_equal(layer.weight_bytes, beta * TABLE)
    assert layer.activation == 0


@bytes_each
def test_positions_add_a_row_to_each_token(beta):
    layer = positions("x", ELEMENTS, 7, HIDDEN, dtype_bytes=beta)
    np.testing.assert_array_equal(layer.flops[0], ELEMENTS)
    np.testing.assert_array_equal(layer.flops[2], ELEMENTS)
    np.testing.assert_array_equal(layer.accessed[0], beta * (2 * ELEMENTS + 7 * HIDDEN))
    np.testing.assert_array_equal(layer.accessed[2], beta * ELEMENTS + 4 * 7 * HIDDEN)
    assert layer.weights == 7 * HIDDEN


LOGITS = TOKENS * ROWS


@bytes_each
def test_eager_cross_entropy_holds_logits_their_copy_its_logarithm_and_its_gradient(beta):
    """Source: Hugging Face transformers, ``logits.float()``; PyTorch's log-softmax reads rows three times."""
    layer = cross_entropy("x", LOGITS, impl="eager", dtype_bytes=beta)
    copy, cast = (4, beta + 4) if beta < 4 else (0, 0)
    held = layer.activation + layer.activation_grad
    np.testing.assert_array_equal(held, LOGITS * (beta + copy + 4 + 4))
    forward, backward, _ = layer.accessed
    np.testing.assert_array_equal(forward, LOGITS * (cast + 12 + 4))
    np.testing.assert_array_equal(backward, LOGITS * (4 + 4 + 12 + cast))
    assert layer.launches == ((3, 3, 0) if cast else (2, 2, 0))


def test_megatron_works_in_the_copy():
    layer = cross_entropy("x", LOGITS, impl="megatron", dtype_bytes=2)
    np.testing.assert_array_equal(layer.activation + layer.activation_grad, LOGITS * (2 + 4))
    forward, backward, _ = layer.accessed
    np.testing.assert_array_equal(forward, LOGITS * (6 + 4 + 8 + 8 + 4 + 8))
    np.testing.assert_array_equal(backward, LOGITS * (8 + 6))


@bytes_each
def test_fused_cross_entropy_works_in_the_logits(beta):
    layer = cross_entropy("x", LOGITS, impl="fused", dtype_bytes=beta)
    np.testing.assert_array_equal(layer.activation + layer.activation_grad, LOGITS * beta)
    forward, backward, _ = layer.accessed
    np.testing.assert_array_equal(forward + backward, LOGITS * 4 * beta)


@pytest.mark.parametrize("impl", LOSSES)
def test_cross_entropy_is_a_softmax(impl):
    layer = cross_entropy("x", LOGITS, impl=impl, dtype_bytes=2)
    np.testing.assert_array_equal(layer.flops[0], 5 * LOGITS)
    np.testing.assert_array_equal(layer.flops[1], 8 * LOGITS)
    assert layer.weights == 0
    assert layer.engine == "vector"
