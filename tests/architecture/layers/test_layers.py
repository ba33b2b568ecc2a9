"""What each layer needs: FLOP, bytes and stored tensors, as formulas of its sizes."""

import numpy as np
import pytest

from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT, Widths
from calculon.architecture.layers import (
    Flags,
    When,
    batched_matmul,
    dropout,
    fork,
    gate,
    linear,
    overlapped_linear,
    residual_sum,
    rotary,
    softmax,
)
from calculon.editions.edition import OverlappedSpace

M, N, K, R, E, H = (np.array([v, 2.0 * v]) for v in (6.0, 10.0, 14.0, 3.0, 30.0, 5.0))
FLAGS = Flags(recompute=When.ALWAYS)


def _overlapped(operator, beta):
    """Return a product that overlaps its collective."""
    space = OverlappedSpace(saved=E, grad=H, backward=E + H, shard=0.0)
    widths = Widths(beta, beta, beta)
    return overlapped_linear(
        "x", operator, M, N, K, outer=False, space=space, widths=widths, flags=FLAGS
    )


def _layers(beta):
    """Return each layer with its FLOP, elements (in, out, weights), saved bytes and gradient bytes."""
    common = {"dtype_bytes": beta, "flags": FLAGS}
    widths = Widths(beta, beta, beta)
    product, batched = 2 * M * N * K, 2 * R * M * N * K
    operands = R * (M * N + N * K)
    return {
        "linear": (
            linear("x", M, N, K, widths=widths, flags=FLAGS),
            (product, product, product),
            (M * N, M * K, N * K),
            (beta * M * N, beta * M * K),
        ),
        "batched product": (
            batched_matmul("x", R, M, N, K, shared=R, **common),
            (batched, 2 * batched, 0),
            (operands, R * M * K, 0),
            (beta * operands, beta * R * M * K),
        ),
        "dropout": (
            dropout("x", E, grad_bytes=1, **common),
            (E, E, 0),
            (E, E, 0),
            (E, E),
        ),
        "dropout with gradients of the datatype": (
            dropout("x", E, grad_bytes=beta, **common),
            (E, E, 0),
            (E, E, 0),
            (E, beta * E),
        ),
        "rotary": (  # of each pair four products and two sums
            rotary("x", E, **common),
            (2 * (4 + 2) * E / 2, 2 * (4 + 2) * E / 2, 0),
            (E, E, 0),
            (0, beta * E),
        ),
        "softmax": (
            softmax("x", E, **common),
            (5 * E, 8 * E, 0),
            (E, E, 0),
            (beta * E, beta * E),
        ),
        "residual sum": (
            residual_sum("x", E, **common),
            (E, 2 * E, 0),
            (2 * E, E, 0),
            (2 * beta * E, beta * E),
        ),
        "fork to three": (fork("x", E, 3, **common), (0, 3 * E, 0), (E, 0, 0), (beta * E, 0)),
        "overlapped linear": (
            _overlapped(COLUMN_INPUT, beta),
            (product, product, product),
            (M * N, M * K, N * K),
            (beta * E, beta * H),
        ),
    }


NAMES = list(_layers(1))
SAME_BOTH_WAYS = {
    "dropout",
    "dropout with gradients of the datatype",
    "rotary",
    "softmax",
}
BYTES = (1, 2, 4)
"""Of an element."""


@pytest.mark.parametrize("name", NAMES)
def test_flops_and_elements_of(name):
    layer, flops, (inputs, outputs, weights), _ = _layers(2)[name]
    for found, expected in zip(layer.flops, flops, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(found, 2), np.broadcast_to(expected, 2))
    np.testing.assert_array_equal(layer.inputs, inputs)
    np.testing.assert_array_equal(layer.outputs, outputs)
    np.testing.assert_array_equal(layer.weights, weights)
    assert layer.flags is FLAGS


@pytest.mark.parametrize("name", NAMES)
def test_stored_bytes_of(name):
    for beta in BYTES:
        layer, _, (_, outputs, weights), (saved, gradient) = _layers(beta)[name]
        np.testing.assert_array_equal(layer.weight_bytes, beta * weights)
        np.testing.assert_array_equal(layer.output_bytes, beta * outputs)
        np.testing.assert_array_equal(layer.activation, saved)
        np.testing.assert_array_equal(layer.activation_grad, gradient)


@pytest.mark.parametrize("name", NAMES)
def test_memory_traffic_of(name):
    for beta in BYTES:
        layer, _, (inputs, outputs, weights), (saved, gradient) = _layers(beta)[name]
        forward = beta * (inputs + outputs + weights)
        if name in SAME_BOTH_WAYS:
            forward = forward + (E if name.startswith("dropout") else 0)
            expected = (forward, forward, 0)
        elif name == "fork to three":
            expected = (0, beta * E * (3 + 1), 0)
        else:
            backward = beta * weights + saved + gradient
            expected = (forward, backward, backward * (np.asarray(weights) > 0))
        for found, wanted in zip(layer.accessed, expected, strict=True):
            np.testing.assert_array_equal(np.broadcast_to(found, 2), np.broadcast_to(wanted, 2))


def test_a_gate_saves_and_reads_both_factors_and_writes_both_gradients():
    layer = gate("x", E, dtype_bytes=2, flags=FLAGS)
    sigmoid, product = 4, 1  # negation, exponential, sum, quotient
    np.testing.assert_array_equal(layer.flops[0], (sigmoid + product) * E)
    np.testing.assert_array_equal(layer.flops[1], (sigmoid + 1 + 3 * product) * E)
    np.testing.assert_array_equal(layer.accessed[0], 2 * (2 * E + E))
    np.testing.assert_array_equal(layer.accessed[1], 2 * (3 * E + 2 * E))
    np.testing.assert_array_equal(layer.activation, 2 * 2 * E)
    assert layer.engine == "vector"
    assert layer.weights == 0


def test_products_run_on_the_matrix_engine_and_nothing_else_does():
    products = [name for name, (layer, *_) in _layers(2).items() if layer.engine == "matrix"]
    assert products == ["linear", "batched product", "overlapped linear"]
    assert {layer.engine for layer, *_ in _layers(2).values()} == {"matrix", "vector"}


@pytest.mark.parametrize(("operator", "message"), [(COLUMN_INPUT, M * N), (ROW_OUTPUT, M * K)])
def test_an_overlapped_linear_moves_its_gathered_input_or_its_reduced_output(operator, message):
    layer = _overlapped(operator, 2)
    operations = layer.collective.operations, layer.collective.split_operations
    assert (operations, layer.collective.overlapped) == (operator, True)
    np.testing.assert_array_equal(layer.collective.message, 2 * message)
