import numpy as np
import pytest

from calculon.layers.optimizer import adam_bytes, adam_flops

WEIGHTS, SHARDS = np.array([120.0, 7.0]), np.array([4.0, 1.0])


def test_a_step_takes_eleven_flops_per_parameter_of_a_shard():
    np.testing.assert_array_equal(adam_flops(WEIGHTS, SHARDS), WEIGHTS / SHARDS * 11)


@pytest.mark.parametrize(("dtype_bytes", "state"), [(1, 8 + 4), (2, 8 + 4), (4, 8)])
def test_two_moments_and_a_master_copy_of_small_weights(dtype_bytes, state):
    found = adam_bytes(WEIGHTS, dtype_bytes, SHARDS)
    np.testing.assert_array_equal(found, state * WEIGHTS / SHARDS)
