"""Factors scale the rates of kernels in either spelling."""

import copy

import pytest

from calculon import inputs
from calculon.calibrate.factors import FACTORS, factors
from calculon.calibrate.parts import write_part
from tests.helpers import document

TYPE = "bfloat16"
GEMM = {"max_efficiency": 0.8, "multiprocessors": 132}
CURVE = [[1024, 0.6], [0, 0.4]]


def changed(name, value, ext):
    raw = document("systems", "h100_80g_sxm") | {"ext": copy.deepcopy(ext)}
    next(one for one in FACTORS if one.name == name).change(raw, value)
    return raw["ext"]


def test_both_spellings_of_a_law_are_scaled_alike():
    former = changed("matrix", 0.5, {"gemm": {TYPE: GEMM}})
    new = changed("matrix", 0.5, {"kernels": {"product": {TYPE: {"law": "tiles", **GEMM}}}})
    assert new["kernels"]["product"][TYPE] == {"law": "tiles", **former["gemm"][TYPE]}
    assert former["gemm"][TYPE]["max_efficiency"] == pytest.approx(0.4)


def test_both_spellings_of_attention_are_scaled_alike():
    former = changed("attention", 0.5, {"attention": {TYPE: {"efficiency": CURVE}}})
    rate = {"curve": CURVE, "over": "keys"}
    new = changed("attention", 0.5, {"kernels": {"attention": {TYPE: rate}}})
    assert new["kernels"]["attention"][TYPE]["curve"] == former["attention"][TYPE]["efficiency"]
    assert former["attention"][TYPE]["efficiency"] == [[1024, 0.3], [0, 0.2]]


@pytest.mark.parametrize(
    ("values", "before", "after"), [("share", 0.6, 0.3), ("seconds", 1e-3, 2e-3)]
)
def test_a_table_is_scaled_row_by_row(values, before, after):
    rate = {"table": [[64, 64, 64, before]], "values": values}
    new = changed("matrix", 0.5, {"kernels": {"product": {TYPE: rate}}})
    assert new["kernels"]["product"][TYPE]["table"] == [[64, 64, 64, pytest.approx(after)]]


def test_all_that_is_a_share_of_the_bandwidth_follows_the_memory():
    stream, own = {"efficiency": 0.8, "backward": 0.6, "start": 1e-6}, {"memory_efficiency": 0.9}
    kernels = {
        "norm": {"any": {"law": "stream", **stream}},
        "product": {TYPE: {"law": "tiles", **GEMM, **own}},
    }
    new = changed("mem1", 0.5, {"traffic": stream, "kernels": kernels})
    slower = {"efficiency": 0.4, "backward": 0.3, "start": 1e-6}
    assert new["traffic"] == slower
    assert new["kernels"]["norm"]["any"] == {"law": "stream", **slower}
    assert new["kernels"]["product"][TYPE] == {"law": "tiles", **GEMM, "memory_efficiency": 0.45}


def test_the_type_of_ordinary_cores_is_left_out_of_tensor_cores():
    rates = {name: {"law": "tiles", **GEMM} for name in (TYPE, "float32")}
    new = changed("tensor_cores", 0.5, {"kernels": {"product": rates}})["kernels"]["product"]
    assert (new[TYPE]["max_efficiency"], new["float32"]["max_efficiency"]) == (0.4, 0.8)


def test_all_kernels_of_the_law_of_fused_attention_are_scaled():
    one = {"shares": [[64, 0.4], [128, 0.8]], "lead": 20}
    law = {
        "law": "fused",
        "kernels": {"flash2": {"forward": one, "backward": {**one}, "start": 1e-6}},
    }
    kernel = changed("attention", 0.5, {"kernels": {"attention": {TYPE: law}}})["kernels"][
        "attention"
    ][TYPE]
    scaled = one | {"shares": [[64, 0.2], [128, 0.4]]}
    assert kernel["kernels"]["flash2"] == {"forward": scaled, "backward": scaled, "start": 1e-6}


def test_launches_take_the_seconds_of_the_factor():
    stated = {"launch": {"kernel": 3e-6, "step": 0.1}}
    assert changed("launch.kernel", 5e-6, {}) == {"launch": {"kernel": 5e-6}}
    assert changed("launch.step", 0.2, {}) == {"launch": {"kernel": 0.0, "step": 0.2}}
    assert changed("launch.kernel", 5e-6, stated) == {"launch": {"kernel": 5e-6, "step": 0.1}}
    assert changed("launch.step", 0.2, stated) == {"launch": {"kernel": 3e-6, "step": 0.2}}


def test_attention_is_a_factor_in_either_spelling():
    for ext in (
        {"attention": {TYPE: {"efficiency": CURVE}}},
        {"kernels": {"attention": {TYPE: {"curve": CURVE, "over": "keys"}}}},
    ):
        system = inputs.system(document("systems", "h100_80g_sxm") | {"ext": ext})
        assert "attention" in {one.name for one in factors(system)}
    system = inputs.system(document("systems", "h100_80g_sxm") | {"ext": {}})
    assert "attention" not in {one.name for one in factors(system)}


def test_a_fitted_law_takes_the_place_of_what_kernels_state():
    rate = {"curve": [[0, 0.5]], "over": "flops"}
    raw = document("systems", "h100_80g_sxm") | {"ext": {"kernels": {"product": {TYPE: rate}}}}
    write_part(raw, f"ext.gemm.{TYPE}", GEMM)
    assert raw["ext"] == {"kernels": {"product": {TYPE: {"law": "tiles", **GEMM}}}}
    assert inputs.system(raw).gemm(TYPE).max_efficiency == 0.8
