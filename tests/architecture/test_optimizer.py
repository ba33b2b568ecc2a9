"""What a step of each optimizer keeps, computes and moves, as formulas; weights in elements, sizes in bytes."""

import numpy as np
import pytest

from calculon.architecture.optimizer import (
    OPTIMIZERS,
    Matrices,
    Parameters,
    newton_schulz,
    optimizer_flops,
    state_bytes,
    step_bytes,
    step_kernels,
)
from calculon.declarations import named_values
from tests.helpers import document, step_choice

EXAMPLE = document("examples", "3072_t4_p64_d12_mbs4_full")
ROWS, COLUMNS, BIAS = 8.0, 12.0, 3.0
MATRIX = Parameters(
    np.array([[ROWS * COLUMNS + BIAS]]),
    Matrices(*(np.array([[v]]) for v in (ROWS * COLUMNS, ROWS + COLUMNS, ROWS, 2 * COLUMNS, 0.5))),
)
ONE = np.array([1.0])


def _choice(**changes):
    return step_choice(**EXAMPLE | changes)


def _state(optimizer, datatype="float32", parameters=MATRIX, **changes):
    choice = _choice(optimizer=optimizer, datatype=datatype, **changes)
    return state_bytes(parameters, choice, ONE).item()


def _step(parameters=MATRIX, fused=0.0, width=4, **changes):
    return step_bytes(np.array(fused), parameters, width, _choice(**changes), ONE).item()


def test_every_optimizer_that_an_execution_may_name_is_in_the_table():
    assert tuple(OPTIMIZERS) == named_values.OPTIMIZERS


def test_adafactor_keeps_sums_of_rows_and_columns_and_moments_of_vectors():
    """Source: arXiv 1804.04235, algorithms 4 and 5."""
    assert _state("adafactor") == 4 * (ROWS + COLUMNS) + 4 * BIAS
    flops = optimizer_flops(MATRIX, _choice(optimizer="adafactor"), ONE).item()
    assert flops == 8 * (ROWS * COLUMNS + BIAS)


def test_muon_keeps_one_moment_of_matrices_and_leaves_the_rest_to_adam():
    """Source: Jordan et al. 2024."""
    assert _state("muon") == 4 * ROWS * COLUMNS + (4 + 4) * BIAS
    assert _state("muon", optimizer_state_dtype="bfloat16") == _state("muon") / 2
    flops = optimizer_flops(MATRIX, _choice(optimizer="muon"), ONE).item()
    assert flops == 6 * ROWS * COLUMNS + 11 * BIAS


def test_newton_schulz_takes_three_products_of_the_whole_matrix_in_each_of_five_steps():
    """Source: arXiv 2502.16982, section 2.1; sides of the whole matrix, of which a rank here has a half."""
    wide, square = newton_schulz(MATRIX.matrices)
    n, m = ROWS, 2 * COLUMNS
    assert 5 * (2 * wide + square).item() == 5 * (4 * n**2 * m + 2 * n**3)


def test_a_fused_step_reads_the_gradient_as_often_as_the_optimizer_needs_it():
    matrix = ROWS * COLUMNS
    assert _step(fused=100.0) == 100.0
    again = 2 * matrix + BIAS  # sums of squares and norm of the update; of vectors the norm alone
    assert _step(fused=100.0, optimizer="adafactor") == 100 + 4 * again
    assert _step(fused=100.0, width=2, optimizer="adafactor") == 100 + 2 * again


@pytest.mark.parametrize("width", [2, 4])
def test_clipping_a_fused_step_reads_the_gradient_once_more(width):
    more = _step(width=width, grad_clip=True) - _step(width=width)
    assert more == width * MATRIX.weights.item()


def test_a_main_gradient_is_written_and_read_in_place_of_the_smaller_one():
    weights = MATRIX.weights.item()
    assert _step(width=2, main_grad=True) == (4 + 4) * weights
    clipped = _step(width=2, main_grad=True, grad_clip=True)
    assert clipped == (4 + 4 + 4) * weights  # the norm is that of main gradients


ADAM = 4 * (3 + 2 + 3 + 2 + 2 + 2 + 4)  # lerp, mul, addcmul, sqrt, div, add, addcdiv


def test_bytes_of_operations_one_after_the_other():
    for impl in ["foreach", "loop"]:
        for changes, each in [
            ({}, ADAM),
            ({"optimizer_state_dtype": "bfloat16"}, ADAM - 2 * (2 + 2 + 2 + 1 + 1)),
            ({"optimizer": "adam_8bit"}, ADAM + 2 * 2 * (4 + 1 + 4 / 256)),
            ({"optimizer": "lion"}, 4 * (3 + 2 + 3 + 3)),
            ({"optimizer": "sgd_momentum"}, 4 * (2 + 3 + 3)),
            ({"optimizer": "sgd"}, 4 * 3),
            ({"optimizer": "adafactor"}, 4 * (1 + 1 + 1 + 2 + 3 + 1 + 1 + 3)),
            ({"grad_clip": True}, ADAM + 4 * (1 + 2)),
            ({"datatype": "bfloat16"}, ADAM + 4 + 2),
            ({"datatype": "bfloat16", "width": 2}, ADAM + (4 + 2) + (2 + 4)),
            ({"datatype": "bfloat16", "width": 2, "main_grad": True}, ADAM + (4 + 2) + (2 + 4)),
            ({"width": 2, "grad_clip": True}, ADAM + (2 + 4) + 2 * (1 + 2)),
        ]:
            parameters = Parameters(np.array([[7.0]]))
            fields = {"datatype": "float32"} | changes
            found = _step(parameters, optimizer_impl=impl, **fields)
            assert found == pytest.approx(each * 7.0, rel=1e-15), (impl, changes)


def test_operations_one_after_the_other_never_move_less_than_a_fused_step():
    for optimizer in OPTIMIZERS:
        large = 1e9
        fused = _step(fused=large, optimizer=optimizer, grad_clip=True)
        assert (
            _step(fused=large, optimizer=optimizer, grad_clip=True, optimizer_impl="foreach")
            == fused
        )


def test_a_loop_launches_each_operation_for_each_weight_tensor():
    def kernels(width=4, **changes):
        fields = {"optimizer_impl": "loop", "datatype": "float32"} | changes
        return step_kernels(MATRIX, width, _choice(**fields)).item()

    assert kernels() == 7 + 7  # the matrix and its bias
    assert kernels(optimizer="muon") == (3 + 3 * 5) + 7
    assert kernels(optimizer="adafactor") == 8 + 7
    assert kernels(width=2, datatype="bfloat16", grad_clip=True) == 2 * (7 + 1 + 1 + 2)
    assert kernels(optimizer_impl="foreach") == kernels(optimizer_impl="fused") == 0
