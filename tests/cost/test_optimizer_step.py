"""The optimizer step of a block, as a sum over its layers."""

from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.architecture.optimizer import Matrices, Parameters
from calculon.cost.optimizer_step import optimizer_cost, optimizer_layers
from calculon.editions import CORRECTED, SC23
from calculon.hardware.kernels.kernel import Launch
from tests.cases import for_each
from tests.helpers import document, step_choice

EXAMPLE = document("examples", "3072_t4_p64_d12_mbs4_full")
SYSTEM = inputs.system(
    document("systems", "a100_80e")
    | {
        engine: dict.fromkeys(
            ("float8", "float16", "bfloat16", "float32"),
            document("systems", "a100_80e")[engine]["float16"],
        )
        for engine in ("matrix", "vector")
    }
)
WEIGHTS = np.array([[6e6, 1e3], [0.0, 0.0], [2e6, 5e5]])  # layers, steps
SHARDS = np.array([1.0, 4.0])
TOTAL = WEIGHTS.sum(axis=0)


def _choice(**changes):
    return step_choice(**EXAMPLE | changes)


def _cost(edition=CORRECTED, **changes):
    return optimizer_cost(Parameters(WEIGHTS), SHARDS, SYSTEM, _choice(**changes), edition)


@for_each(
    ("datatype", "state", "gradients", "traffic"),
    [
        ("float8", 12, (4, 1), (24 + 4 + 1, 24 + 1 + 1)),
        ("bfloat16", 12, (4, 2), (24 + 4 + 2, 24 + 2 + 2)),
        ("float32", 8, (4, 4), (16 + 4 + 8, 16 + 4 + 8)),
    ],
)
def test_bytes_per_parameter_whole_and_sharded(datatype, state, gradients, traffic):
    """Source: Rajbhandari et al., arXiv 1910.02054, section 3.1; 4-byte gradients while they are whole."""
    found = _cost(datatype=datatype)
    np.testing.assert_allclose(found.state, state * TOTAL / SHARDS, rtol=1e-14)
    np.testing.assert_allclose(found.weight_grad, gradients * TOTAL / SHARDS, rtol=1e-14)
    np.testing.assert_allclose(found.step.mem_accessed, traffic * TOTAL / SHARDS, rtol=1e-14)


def test_a_step_is_the_sum_of_the_steps_of_its_layers():
    choice = _choice()
    layers = optimizer_layers(Parameters(WEIGHTS), SHARDS, SYSTEM, choice, CORRECTED)
    step = _cost().step
    for name in ("flops", "flops_time", "mem_accessed", "mem_time", "time"):
        expected = getattr(layers.step, name).sum(axis=0)
        np.testing.assert_allclose(getattr(step, name), expected, rtol=1e-14)
    np.testing.assert_allclose(step.flops, 11 * TOTAL / SHARDS, rtol=1e-14)
    combined = SYSTEM.combine(layers.step.flops_time, layers.step.mem_time)
    np.testing.assert_array_equal(layers.step.time, combined)


@pytest.mark.parametrize("edition", [SC23, CORRECTED], ids=lambda edition: edition.name)
def test_inference_has_no_optimizer(edition):
    found = _cost(edition, training=False)
    for array in (found.state, found.weight_grad, found.step.time, found.step.mem_accessed):
        np.testing.assert_array_equal(array, [0, 0])


def test_a_loop_takes_at_least_the_time_of_its_launches():
    one = 1e-3
    system = replace(SYSTEM, ext=replace(SYSTEM.ext, launch=Launch(kernel=one)))
    rows = np.array([[3e3, 1.0], [0.0, 0.0], [2e3, 5e2]])
    columns = np.array([[2e3, 0.0], [0.0, 0.0], [1e3, 1e3]])
    matrices = Matrices(rows * columns, rows + columns, rows, columns, np.ones_like(rows))
    args = (Parameters(WEIGHTS, matrices), SHARDS, system)
    each = 7 + 1 + np.array([0, 1])  # the copy of weights, and of gradients that are sharded
    tensors = np.array([[1, 1], [0, 0], [1, 1]])
    loop = optimizer_layers(*args, _choice(optimizer_impl="loop"), CORRECTED).step
    foreach = optimizer_layers(*args, _choice(optimizer_impl="foreach"), CORRECTED).step
    np.testing.assert_array_equal(loop.mem_accessed, foreach.mem_accessed)
    np.testing.assert_array_equal(loop.time, np.maximum(foreach.time, tensors * each * one))
    assert (loop.time > foreach.time).any()


def test_a_system_that_states_no_launch_time_has_no_floor():
    loop, foreach = (_cost(optimizer_impl=impl).step for impl in ("loop", "foreach"))
    np.testing.assert_array_equal(loop.time, foreach.time)
