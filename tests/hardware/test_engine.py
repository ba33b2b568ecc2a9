import numpy as np

from calculon import inputs


def test_time_is_flops_over_the_rate_at_their_size():
    engine = inputs.system("a100_80g").matrix["float16"]
    flops = np.array([0, 0.5e9, 1e9, 64e9, 128e9])
    expected = flops / (312e12 * np.array([0.1, 0.1, 0.6, 0.9, 0.95]))
    np.testing.assert_array_equal(engine.time(flops), expected)
