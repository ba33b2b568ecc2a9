"""Factors scale the rates of kernels in either spelling."""

import copy

from calculon import inputs
from calculon.calibrate.parts import write_part
from calculon.calibrate.training import FACTORS, factors
from tests.cases import for_each
from tests.helpers import document

TYPE = "bfloat16"
GEMM = {"max_efficiency": 0.8, "multiprocessors": 132}
CURVE = [[1024, 0.6], [0, 0.4]]


def changed(name, value, ext):
    raw = document("systems", "h100_80g_sxm") | {"ext": copy.deepcopy(ext)}
    next(one for one in FACTORS if one.name == name).change(raw, value)
    return raw["ext"]


def products(**rates):
    return {"kernels": {"product": rates}}


def attention(rate):
    return {"kernels": {"attention": {TYPE: rate}}}


TILES = {"law": "tiles", **GEMM}
SLOWER = [[1024, 0.3], [0, 0.2]]
STREAM = {"efficiency": 0.8, "backward": 0.6, "start": 1e-6}
OF_MEMORY = {"efficiency": 0.4, "backward": 0.3, "start": 1e-6}
PASS = {"shares": [[64, 0.4], [128, 0.8]], "lead": 20}


def fused(one):
    kernel = {"forward": {**one}, "backward": {**one}, "start": 1e-6}
    return attention({"law": "fused", "kernels": {"flash2": kernel}})


@for_each(
    ("name", "value", "before", "after"),
    [
        # both spellings of a law
        ("matrix", 0.5, {"gemm": {TYPE: GEMM}}, {"gemm": {TYPE: GEMM | {"max_efficiency": 0.4}}}),
        ("matrix", 0.5, products(**{TYPE: TILES}), products(**{TYPE: TILES | {"max_efficiency": 0.4}})),
        ("attention", 0.5, {"attention": {TYPE: {"efficiency": CURVE}}}, {"attention": {TYPE: {"efficiency": SLOWER}}}),
        ("attention", 0.5, attention({"curve": CURVE, "over": "keys"}), attention({"curve": SLOWER, "over": "keys"})),
        # a table row by row
        ("matrix", 0.5, products(**{TYPE: {"table": [[64, 64, 64, 0.6]], "values": "share"}}),
         products(**{TYPE: {"table": [[64, 64, 64, 0.3]], "values": "share"}})),
        ("matrix", 0.5, products(**{TYPE: {"table": [[64, 64, 64, 1e-3]], "values": "seconds"}}),
         products(**{TYPE: {"table": [[64, 64, 64, 2e-3]], "values": "seconds"}})),
        # all that is a share of the bandwidth
        ("mem1", 0.5, {"traffic": STREAM, "kernels": {"norm": {"any": {"law": "stream", **STREAM}}}},
         {"traffic": OF_MEMORY, "kernels": {"norm": {"any": {"law": "stream", **OF_MEMORY}}}}),
        ("mem1", 0.5, products(**{TYPE: TILES | {"memory_efficiency": 0.9}}),
         products(**{TYPE: TILES | {"memory_efficiency": 0.45}})),
        # not the type of ordinary cores
        ("tensor_cores", 0.5, products(**{TYPE: TILES, "float32": {**TILES}}),
         products(**{TYPE: TILES | {"max_efficiency": 0.4}, "float32": TILES})),
        ("attention", 0.5, fused(PASS), fused(PASS | {"shares": [[64, 0.2], [128, 0.4]]})),
        # launches take the seconds of the factor
        ("launch.kernel", 5e-6, {}, {"launch": {"kernel": 5e-6}}),
        ("launch.step", 0.2, {}, {"launch": {"kernel": 0.0, "step": 0.2}}),
        ("launch.kernel", 5e-6, {"launch": {"kernel": 3e-6, "step": 0.1}}, {"launch": {"kernel": 5e-6, "step": 0.1}}),
        ("launch.step", 0.2, {"launch": {"kernel": 3e-6, "step": 0.1}}, {"launch": {"kernel": 3e-6, "step": 0.2}}),
    ],
)  # fmt: skip
def test_a_factor_scales_the_rates_of_its_kernels(name, value, before, after):
    assert changed(name, value, before) == after


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
