"""A product alone is a layer of a model; a copy beside it shares nothing but tier-1 bandwidth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.base.units import GIB
from calculon.estimate.operators import block
from calculon.estimate.product import copy_time, datatype_of, matrix_product, with_concurrent_copy
from tests.helpers import document

SYSTEMS = ("h100_80g_sxm", "a100_80g_sxm", "v100_sxm2_32g", "a100_80g_pcie")
SIZES = st.integers(1, 20_000)


@pytest.fixture(params=SYSTEMS)
def system(request):
    return inputs.system(request.param)


def test_a_product_moves_both_operands_and_its_result_once(system):
    one = matrix_product(system, 512, 768, 1024, datatype_of(system))
    assert one.flops == 2 * 512 * 768 * 1024
    assert one.accessed == 2 * (512 * 1024 + 1024 * 768 + 512 * 768)
    combined = system.combine(np.array(one.arithmetic), np.array(one.memory))
    assert one.time == max(float(combined), system.ext.launch.kernel)
    assert 0 < one.share_of_peak < 1


def test_a_product_takes_what_a_linear_layer_takes():
    name = "a100_80g_sxm"
    operators = block("mlp-4x1024", "mlp-4x1024_x1", name).operators
    found = next(one for one in operators if one["engine"] == "matrix")
    alone = matrix_product(inputs.system(name), 128, 1024, 1024, "float32")
    assert found["flops"]["forward"] == alone.flops
    assert found["time"]["forward"] == alone.time


def test_tf32_reads_four_bytes_at_its_own_rate():
    system = inputs.system("a100_80g_sxm")
    narrow, plain = (matrix_product(system, 8192, 8192, 8192, t) for t in ("tfloat32", "float32"))
    assert narrow.accessed == plain.accessed == 3 * 4 * 8192**2
    assert narrow.arithmetic < plain.arithmetic / 4


def test_a_system_says_its_types():
    assert datatype_of(inputs.system("h100_80g_sxm")) == "bfloat16"
    assert datatype_of(inputs.system("v100_sxm2_32g")) == "float16"
    with pytest.raises(SpecError, match="found 'float8'"):
        datatype_of(inputs.system("v100_sxm2_32g"), "float8")


def test_the_lecture_hides_the_shorter_of_product_and_copy(system):
    product = matrix_product(system, 16384, 16384, 16384, datatype_of(system))
    both = with_concurrent_copy(product, GIB)
    assert both.copy == copy_time(system, GIB)
    link = system.mem2.bandwidth * system.mem2.efficiency.efficiencies.max()
    assert both.copy == pytest.approx(GIB / link, rel=1e-12)
    assert both.together == max(both.product, both.copy)
    assert both.hidden == pytest.approx(min(product.time, both.copy), rel=2e-3)
    if (
        system.processing_mode == "roofline"
    ):  # limited by arithmetic, so that traffic has time to spare
        assert both.together == max(product.time, both.copy)


def test_a_product_limited_by_memory_gives_the_copy_its_bandwidth():
    raw = document("systems", "h100_80g_sxm") | {"processing_mode": "roofline", "ext": {}}
    system = inputs.system(raw)
    product = matrix_product(system, 1, 65536, 65536, "bfloat16")
    assert product.time == product.memory
    size = 2.0**20
    both = with_concurrent_copy(product, size)
    copied = both.share * both.copy  # seconds of tier-1 memory that the copy takes
    assert both.copy < product.time
    assert both.product == pytest.approx(product.time + copied, rel=1e-12)
    assert both.hidden == pytest.approx(both.copy - copied, rel=1e-9)


@given(st.sampled_from(SYSTEMS), SIZES, SIZES, SIZES, st.integers(1, 2**34))
def test_together_is_no_shorter_than_each_and_no_longer_than_one_after_the_other(
    name, m, n, k, size
):
    system = inputs.system(name)
    product = matrix_product(system, m, n, k, datatype_of(system))
    both = with_concurrent_copy(product, size)
    longer = max(product.time, both.copy)
    assert longer <= both.together * (1 + 1e-12)
    assert both.together <= (product.time + both.copy) * (1 + 1e-12)
    assert both.product >= product.time * (1 - 1e-12)
    assert 0 < both.share <= 1


def test_a_copy_faster_than_memory_stops_the_product_until_it_ends():
    system = inputs.system({"base": "h100_80g_sxm", "mem2.GBps": 33_500})  # mem1: 3,350
    product = matrix_product(system, 1, 8192, 8192, "bfloat16")
    both = with_concurrent_copy(product, GIB)
    assert both.share == 1
    assert both.product == pytest.approx(both.copy + product.time, rel=1e-12)
