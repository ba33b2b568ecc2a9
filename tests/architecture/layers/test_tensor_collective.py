import numpy as np
import pytest

from calculon.architecture.layer import COLUMN_INPUT, ROW_OUTPUT
from calculon.architecture.layers import Flags, tensor_collective

E, T, BETA = np.array([24.0, 24.0, 30.0]), np.array([2.0, 3.0, 5.0]), 2
OPERATORS = {"gather": COLUMN_INPUT, "reduce": ROW_OUTPUT}


def _layer(side, sequence_parallel, tensor_par=T):
    return tensor_collective(
        "x",
        OPERATORS[side],
        E,
        tensor_par,
        sequence_parallel=sequence_parallel,
        dtype_bytes=BETA,
        flags=Flags(),
    )


sides = pytest.mark.parametrize("side", OPERATORS)
modes = pytest.mark.parametrize("sequence_parallel", [False, True], ids=["ar", "rs_ag"])


@sides
@modes
def test_one_addition_per_element_and_other_peer_where_it_reduces(side, sequence_parallel):
    layer = _layer(side, sequence_parallel)
    reducing = ("reduce", "gather").index(side)  # forward, or backward
    additions = [np.zeros(3), np.zeros(3), np.zeros(3)]
    additions[reducing] = E * (T - 1) / T
    for found, expected in zip(layer.flops, additions, strict=True):
        np.testing.assert_array_equal(np.broadcast_to(found, 3), expected)


@sides
@modes
def test_reads_and_writes_its_tensor_once_where_it_communicates(side, sequence_parallel):
    layer = _layer(side, sequence_parallel)
    both = 2 * BETA * E
    forward = both if sequence_parallel or side == "reduce" else 0 * E
    backward = both if sequence_parallel or side == "gather" else 0 * E
    for found, expected in zip(layer.accessed, (forward, backward, 0 * E), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(found, 3), expected)


@sides
@modes
def test_keeps_a_part_with_sequence_parallelism_and_one_whole_side_without(side, sequence_parallel):
    layer = _layer(side, sequence_parallel)
    whole = BETA * E
    if sequence_parallel:
        saved, gradient = whole / T, whole / T
    else:
        saved, gradient = (0 * E, whole) if side == "gather" else (whole, 0 * E)
    np.testing.assert_array_equal(np.broadcast_to(layer.activation, 3), saved)
    np.testing.assert_array_equal(np.broadcast_to(layer.activation_grad, 3), gradient)
    np.testing.assert_array_equal(layer.collective.message, whole)
    operations = layer.collective.operations, layer.collective.split_operations
    assert (operations, layer.collective.overlapped) == (OPERATORS[side], False)


@sides
@modes
def test_is_nothing_without_tensor_parallelism(side, sequence_parallel):
    layer = _layer(side, sequence_parallel, np.ones(3))
    for value in (
        *layer.flops,
        *layer.accessed,
        layer.inputs,
        layer.outputs,
        layer.activation,
        layer.activation_grad,
        layer.output_bytes,
        layer.collective.message,
    ):
        assert not np.any(value)
