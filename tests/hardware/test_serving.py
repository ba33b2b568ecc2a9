"""What serving adds to a system file: floors, decode attention and small reductions."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.base.errors import SpecError
from calculon.hardware.figures import figures_of, with_figures
from calculon.hardware.serving import FASTEST, DecodeAttention, LatencyByRanks, Serving, SmallReduce
from tests.helpers import document

BANDWIDTH = 3e12
KEY = 2 * 128 * 2  # key and value of 128 elements in 2 bytes
STATED = {
    "matrix_floor": 4e-6,
    "attention_floor": 2e-5,
    "vector_floor": 3e-6,
    "routing_floor": 5e-6,
    "decode_attention": {"efficiency": 0.7, "key_tile": 64, "tail": 0.5, "multiprocessors": 108},
    "small_reduce": {"latency": [[2, 3e-6], [8, 6e-6]], "efficiency": 0.6},
    "step_host": 2e-3,
}


def with_serving(serving):
    """Return a system that states this of serving."""
    raw = document("systems", "a100_80g_sxm")
    ext = {key: one for key, one in raw["ext"].items() if key != "serving"}
    return inputs.system(raw | {"ext": ext | ({} if serving is None else {"serving": serving})})


def test_no_training_step_depends_on_serving():
    found = [
        calculon.estimate("gpt2-124M", "gpt2-124M_a100x2_ddp", with_serving(one)).stats
        for one in (None, STATED)
    ]
    assert found[0] == found[1]


def test_its_figures_are_none_of_a_training_step():
    stated, without = with_serving(STATED), with_serving(None)
    assert without.ext.serving == Serving()
    assert figures_of(stated).keys() == figures_of(without).keys()
    beside = figures_of(stated, serving=True).keys() - figures_of(stated).keys()
    floors = {f"{name}_floor" for name in ("matrix", "attention", "vector", "routing")}
    attention = {f"decode_attention.{name}" for name in STATED["decode_attention"]}
    names = floors | attention | {"small_reduce.efficiency", "step_host"}
    assert beside == {f"ext.serving.{name}" for name in names}
    changed = with_figures(stated, {"ext.serving.decode_attention.efficiency": 0.9})
    assert changed.ext.serving.decode_attention.efficiency == 0.9


def test_long_caches_are_read_at_a_share_of_the_bandwidth():
    law = DecodeAttention(efficiency=0.8)
    time = law.reading(64, np.array([4096, 8192]), 8, KEY, 0, BANDWIDTH)
    assert time == pytest.approx(64 * np.array([4096, 8192]) * 8 * KEY / (0.8 * BANDWIDTH))
    beside = law.reading(64, 4096, 8, KEY, 1e6, BANDWIDTH) - time[0]
    assert beside == pytest.approx(1e6 / (0.8 * BANDWIDTH))


def test_a_context_shorter_than_a_tile_takes_as_long_as_a_tile():
    law = DecodeAttention(key_tile=128)
    short, tile, more = law.reading(16, np.array([1, 128, 256]), 4, KEY, 0, BANDWIDTH)
    assert short == tile == more / 2


def test_a_wave_that_is_not_full_costs_at_most_its_tail():
    law = DecodeAttention(tail=0.5, multiprocessors=100)
    even = DecodeAttention(multiprocessors=100)
    sequences = np.array([1, 50, 100, 400, 100_000])
    share = law.reading(sequences, 4096, 1, KEY, 0, BANDWIDTH) / even.reading(
        sequences, 4096, 1, KEY, 0, BANDWIDTH
    )
    assert share == pytest.approx([1.5, 1.5, 1.5, 1 + 0.5 / 4, 1 + 0.5 / 1000])


def test_small_messages_are_reduced_in_one_shot_and_larger_ones_in_two():
    law = SmallReduce(latency=LatencyByRanks((2, 8), (2e-6, 4e-6)), efficiency=0.5)
    size, port = np.array([1e3, 1e7]), 450e9
    wire = size / (0.5 * port)
    found = law.time(size, 8, port)
    assert found == pytest.approx([4e-6 + 7 * wire[0], 8e-6 + 2 * 7 / 8 * wire[1]])


def test_reductions_of_nothing_and_of_one_take_no_time():
    law = SmallReduce()
    assert law.time(np.array([0.0, 1e6]), np.array([8, 1]), 450e9).tolist() == [0, 0]


def test_larger_groups_than_stated_use_the_library():
    law = SmallReduce(latency=LatencyByRanks((2, 8), (2e-6, 4e-6)))
    assert law.time(1e3, np.array([8, 16]), 450e9)[1] == np.inf
    between = law.latency.at(np.array([2, 4, 8]))
    assert between == pytest.approx([2e-6, 3e-6, 4e-6])


def test_latencies_rise_with_the_ranks():
    for latency, place in [
        ([[2, 3e-6], [2, 4e-6]], "[1][0]"),
        ([[2, 3e-6], [4, 2e-6]], "[1][1]"),
        ([[1, 3e-6]], "[0][0]"),
        ([], "latency"),
        ([[2]], "[0]"),
    ]:
        with pytest.raises(SpecError) as caught:
            with_serving({"small_reduce": {"latency": latency}})
        assert [one.field.endswith(place) for one in caught.value.problems] == [True], (
            latency,
            place,
        )


def test_small_messages_are_reduced_over_nvlink_alone():
    size, ranks = 1e4, np.array([1, 2, 8, 16])
    a100, pcie = inputs.system("a100_80g_sxm"), inputs.system("a100_80g_pcie")
    law, port = a100.ext.serving.small_reduce, a100.networks[0].bandwidth
    assert a100.small_reduce(size, ranks)[:3] == pytest.approx(law.time(size, ranks, port)[:3])
    assert a100.small_reduce(size, ranks)[3] == np.inf
    assert pcie.small_reduce(size, ranks).tolist() == [0, np.inf, np.inf, np.inf]


def test_an_engine_has_its_own_kernels_of_experts_as_far_as_it_states_them():
    law = {"max_efficiency": 0.5, "multiprocessors": 100, "tiles": [[64, 128, 0.9]]}
    slow = law | {"max_efficiency": 0.25}
    serving = with_serving(
        {
            "grouped": {"bfloat16": law, "float8": law},
            "expert_kernels": {"vllm": {"grouped": {"float8": slow}}},
        }
    ).ext.serving
    own = serving.with_kernels("vllm").grouped
    assert own["bfloat16"] == serving.grouped["bfloat16"]
    assert own["float8"].max_efficiency == 0.25
    for other in ("sglang", FASTEST):
        assert serving.with_kernels(other) is serving
