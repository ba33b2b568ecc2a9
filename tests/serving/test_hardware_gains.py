"""What better parts of a machine are worth."""

import pytest

from calculon.serving.hardware_gains import PARTS, hardware_gains
from calculon.serving.serve import serve
from tests.serving.given import H100, LLAMA_70B, LOAD


def test_a_power_has_its_exponent_as_elasticity():
    found = hardware_gains(
        H100, lambda system: system.mem1.bandwidth**0.25 * system.mem1.capacity**2
    )
    worth = {one.part: one.elasticity for one in found}
    assert [one.part for one in found[:2]] == ["capacity of memory", "bandwidth of memory"]
    assert worth.pop("capacity of memory") == pytest.approx(2)
    assert worth.pop("bandwidth of memory") == pytest.approx(0.25)
    assert set(worth.values()) == {0.0}


def test_parts_of_a_wide_exchange_are_worth_theirs():
    """Between nodes: bandwidth of their network, and latency of the exchange.

    Times are homogeneous: of all rates and times as good, a user's tokens come as much sooner.
    """
    split = {"num_procs": 32, "tensor_par": 32, "attn_data_par": 32, "expert_par": 32}
    narrow = {"weights_dtype": "float8_block", "max_batch": 64, "balanced_prompts": True}
    served = serve("deepseek-v3", {**split, **narrow}, "h800_80g_sxm", LOAD, users=64)
    worth = {one.part: one.elasticity for one in served.helps}
    assert set(worth) == set(PARTS)
    assert served.worth == "interactivity"
    assert all(one >= -1e-9 for one in worth.values())
    assert 0.95 < sum(worth.values()) < 1
    assert worth["latency of small messages"] > 0.1


def test_room_is_worth_something_where_memory_bounds():
    full = serve(LLAMA_70B, 4, H100, {"prompt": 8000, "output": 2000})
    worth = {one.part: one.elasticity for one in full.helps}
    assert full.cut == "memory"
    assert worth["capacity of memory"] > 0.1
