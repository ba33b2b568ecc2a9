import pytest

import calculon
from tests.helpers import document

RAW = document("examples", "3072_t4_p64_d12_mbs4_full")


def test_efficiency_compares_useful_arithmetic_at_peak_rate_with_time():
    s = calculon.estimate("megatron-1T", RAW, "a100_80g").stats
    blocks, microbatches = 128 / 64, RAW["batch_size"] / RAW["data_par"] / RAW["microbatch_size"]
    perfect = blocks * microbatches * s["useful_flops"] / 312e12
    busy = s["fw_time"] + s["bw_time"] + s["optim_step_time"]
    assert s["compute_efficiency"] == pytest.approx(perfect / busy, rel=1e-13)
    assert s["system_efficiency"] == pytest.approx(busy / s["total_time"], rel=1e-13)
    assert s["total_efficiency"] == pytest.approx(perfect / s["total_time"], rel=1e-13)
    assert s["sample_rate"] == RAW["batch_size"] / s["total_time"]
