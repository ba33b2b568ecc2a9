"""The passes over operators beside the roofs of the machine."""

import pytest

from calculon.estimate.operator_passes import (
    ARITHMETIC,
    COLLECTIVE,
    LAUNCH,
    MEMORY,
    operator_passes,
    roofs,
)
from calculon.estimate.operators import WORK_PASSES, block
from tests.helpers import LLAMA_X64

CASES = {
    "plain": ("llama3-8B", {}),
    "full": ("llama3-8B", {"activation_recompute": "full"}),
    "eager": ("llama3-8B", {"attn_impl": "eager", "datatype": "float16"}, "a100_80g"),
    "experts": ("mixtral-8x7B", {"expert_par": 8, "tensor_par": 1, "data_par": 64}),
}


def _block(model, changes, system="h100_80g_sxm"):
    return block(model, LLAMA_X64 | {"tensor_par_overlap": "none"} | changes, system)


@pytest.fixture(scope="module", params=CASES)
def found(request):
    return _block(*CASES[request.param])


def test_they_are_the_times_of_the_block(found):
    passes = operator_passes(found)
    of_block = {
        (row.get("kind", ""), row["name"], work): row["time"][work]
        for row in found.operators
        for work in WORK_PASSES
        if row["time"][work]
    }
    assert {(one.kind, one.operator, one.work): one.time for one in passes} == of_block


def test_no_pass_is_above_the_roofs(found):
    for one in operator_passes(found):
        assert one.achieved <= one.peak * (1 + 1e-9)
        assert one.moved <= one.time * one.bandwidth * (1 + 1e-9)
        assert one.at_roof == pytest.approx(one.time * one.share_of_roof)
        if one.intensity is not None:
            assert one.roof == min(one.peak, one.intensity * one.bandwidth)
            assert one.achieved == pytest.approx(one.roof * one.share_of_roof)


def test_a_product_has_the_arithmetic_of_its_sizes(found):
    products = [one for one in operator_passes(found) if one.kernel in ("product", "router")]
    assert products
    for one in products:
        batch, rows, columns, depth = one.product
        assert one.flops == pytest.approx(2 * batch * rows * columns * depth, rel=1e-3)


def test_times_combine_as_the_system_says(found):
    for one in operator_passes(found):
        longer = max(one.arithmetic, one.memory)
        adds_up = found.system.mode == "no_overlap"
        alone = one.arithmetic + one.memory if adds_up else longer
        assert one.bound in (ARITHMETIC, MEMORY, LAUNCH)
        if one.bound == LAUNCH:
            assert one.time > alone
        else:
            assert one.time == pytest.approx(alone)
            assert longer == (one.arithmetic if one.bound == ARITHMETIC else one.memory)


def test_peaks_are_those_of_the_engines(found):
    machine = found.system
    peaks = roofs(operator_passes(found))
    assert list(peaks.values()) == sorted(peaks.values(), reverse=True)
    for (engine, datatype), peak in peaks.items():
        engines = machine.vector if engine == "vector" else machine.matrix
        assert peak == engines[datatype].peak


def test_a_product_beside_a_collective_takes_longer_than_alone():
    overlapped = _block("llama3-8B", {"tensor_par_overlap": "ring"})
    beside = [one for one in operator_passes(overlapped) if one.bound == COLLECTIVE]
    assert beside
    for one in beside:
        assert one.time > max(one.arithmetic, one.memory)
