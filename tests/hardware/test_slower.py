"""What a spread is about takes so many times as long, and nothing else does."""

import math
from dataclasses import replace

import numpy as np
import pytest

from calculon import inputs
from calculon.hardware.collectives.algorithm_times import AUTO, group_time
from calculon.hardware.collectives.placement import place
from calculon.hardware.figures import slowed, with_slower_lists
from calculon.hardware.residuals import Spread
from tests.hardware.kernels.layers import attention_time, layer, product
from tests.hardware.kernels.layers import times as kernel_times
from tests.helpers import document

SIZES = np.geomspace(1.0, 1e13, 40)
BOUND = 1e8
OPERATIONS = ("p2p", "all_reduce", "reduce_scatter", "all_gather")


def spread(part, start=0.0, end=math.inf):
    return Spread(part=part, low=1.0, high=1.0, level=0.9, start=start, end=end)


@pytest.fixture(scope="module")
def system():
    """A system with additions: fused attention, and latencies of steps; products have no rate of their own."""
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["kernels"] = {"attention": raw["ext"]["kernels"]["attention"]}
    return inputs.system(raw)


def times(system, part):
    """Return the times of many operations on a part."""
    if part.startswith("networks"):
        number, size = np.array(int(part[9])), SIZES[:, None] * np.ones(2)
        ways = [(one, step) for one in OPERATIONS for step in (False, True)]
        return np.stack(
            [
                system.fabric.time(number, one, size, np.array([2.0, 8.0]), per_step=step)
                for one, step in ways
            ]
        )
    if part == "attention":
        return np.array([attention_time(system, SIZES, keys, "bfloat16") for keys in (64, 4096.5)])
    kind, _, datatype = part.partition(".")
    found = getattr(system, kind)
    return (found[datatype] if datatype else found).time(SIZES)


PARTS = (
    "mem1",
    "mem2",
    "matrix.bfloat16",
    "matrix.float16",
    "vector.bfloat16",
    "networks[0]",
    "networks[1]",
    "attention",
)


def test_a_part_takes_so_many_times_as_long_and_no_other_changes(system):
    for factor in [0.8, 1.25]:
        for part in PARTS[:-1]:
            changed = slowed(system, spread(part), factor)
            with_it = {part, "attention"} if part == "matrix.bfloat16" else {part}
            for one in PARTS:
                expected = times(system, one) * (factor if one in with_it else 1)
                exact = one not in with_it
                np.testing.assert_allclose(
                    times(changed, one),
                    expected,
                    rtol=0 if exact else 1e-14,
                    err_msg=str((factor, part)),
                )
            assert changed.published is not changed, (factor, part)
            assert changed.published.ext != changed.ext, (factor, part)


@pytest.mark.parametrize("part", ["mem1", "matrix.bfloat16"])
def test_a_spread_holds_for_its_sizes(system, part):
    small, large = spread(part, end=BOUND), spread(part, start=BOUND)
    below = SIZES < BOUND
    np.testing.assert_allclose(
        times(slowed(system, small, 2.0), part), times(system, part) * np.where(below, 2, 1)
    )
    np.testing.assert_allclose(
        times(slowed(system, large, 2.0), part), times(system, part) * np.where(below, 1, 2)
    )
    attention = times(system, "attention")
    assert (times(slowed(system, small, 2.0), "attention") == attention).all()


def test_a_network_with_a_ramp_takes_so_many_times_as_long(system):
    links = tuple(replace(link, ramp=2e-5) for link in system.ext.networks)
    ramped = replace(system, ext=replace(system.ext, networks=links))
    changed = slowed(ramped, spread("networks[0]"), 1.25)
    np.testing.assert_allclose(
        times(changed, "networks[0]"), 1.25 * times(ramped, "networks[0]"), rtol=1e-14
    )


@pytest.mark.parametrize(("end", "large"), [(math.inf, 1.25), (BOUND, 1.0)])
def test_measured_collectives_take_so_many_times_as_long(system, end, large):
    changed = slowed(system, spread("networks[0]", end=end), 1.25)
    for operation in ("all_reduce", "all_gather", "p2p"):
        before, after = (
            group_time(one, operation, np.array([1.0, 1e14]), place(one, 2), AUTO)
            for one in (system, changed)
        )
        np.testing.assert_allclose(after / before, [1.25, large], rtol=1e-3)


def test_small_messages_pay_latency_and_large_ones_all_of_it(system):
    few, many = np.array(1.0), np.array(1e12)
    for size, ratio in ((few, 2.0), (many, 1.0)):
        args = (np.array(0), "all_reduce", size, np.array(8.0))
        small = slowed(system, spread("networks[0]", end=BOUND), 2.0)
        large = slowed(system, spread("networks[0]", start=BOUND), 2.0)
        before = system.fabric.time(*args)
        assert small.fabric.time(*args) / before == pytest.approx(ratio, rel=1e-3)
        assert large.fabric.time(*args) / before == pytest.approx(2.0)


def test_products_by_shape_are_slowed_by_the_peak_where_the_edition_sees_them():
    system = inputs.system("a100_80g_sxm")
    peak = system.matrix["bfloat16"].peak
    for name in ("ext.gemm.bfloat16", "matrix.bfloat16"):
        assert slowed(system, spread(name), 2.0).matrix["bfloat16"].peak == peak / 2
    part = spread("ext.gemm.bfloat16")
    assert slowed(system.published, part, 2.0) is system.published


CURVE = [[2e7, 0.8], [0, 0.3]]
STATED = {
    "norm": {"curve": CURVE, "over": "bytes"},
    "softmax": {"table": [[1e6, 2e-6], [1e8, 5e-5]], "values": "seconds"},
    "attention": {"table": [[1024, 128, 0.5], [8192, 128, 0.6]], "values": "share"},
}


def of_kernels(system):
    """Return the times of one layer of each kind."""
    one = {"flops": (4e9, 1e10, 0.0), "accessed": (1e7, 3e7, 0.0)}
    one |= {"keys": 1024.0, "head_width": 128}
    found = {
        kind: kernel_times(system, layer(kind, **one), "bfloat16") for kind in (*STATED, "sum")
    }
    products = kernel_times(system, product(4096, 8192, 1024), "bfloat16")
    return {
        kind: arithmetic if memory is None else memory
        for kind, (arithmetic, memory) in (found | {"product": products}).items()
    }


def stating(**kernels):
    """Return a system that states rates of kernels and nothing else."""
    raw = document("systems", "h100_80g_sxm")
    stated = {name: {"bfloat16": rate} for name, rate in kernels.items()}
    return inputs.system(raw | {"ext": {"kernels": stated}})


def test_a_stated_kernel_takes_so_many_times_as_long_and_no_other_changes():
    system = stating(**STATED)
    before = of_kernels(system)
    for kind in STATED:
        after = of_kernels(slowed(system, spread(f"ext.kernels.{kind}.bfloat16"), 1.25))
        for name, times in after.items():
            factor = 1.25 if name == kind else 1.0
            np.testing.assert_allclose(times, before[name] * factor, rtol=1e-14, err_msg=kind)


def test_a_spread_of_a_stated_curve_holds_for_its_sizes():
    system = stating(norm=STATED["norm"])
    small = slowed(system, spread("ext.kernels.norm.bfloat16", end=2e7), 2.0)
    np.testing.assert_allclose(of_kernels(small)["norm"], of_kernels(system)["norm"] * [2, 1, 1])


LAW = {"law": "tiles", "max_efficiency": 0.8, "multiprocessors": 132}
PRODUCTS = {
    "law": LAW,
    "kernel": LAW | {"start": 2e-6, "memory_efficiency": 0.8},
    "curve": {"curve": [[0, 0.5]], "over": "flops"},
    "table": {"table": [[64, 64, 64, 0.1], [4096, 4096, 4096, 0.7]], "values": "share"},
    "seconds": {"table": [[64, 64, 64, 1e-6], [4096, 4096, 4096, 1e-3]], "values": "seconds"},
}


def test_stated_products_are_slowed_with_their_engine():
    for form, rate in PRODUCTS.items():
        system = stating(product=rate)
        before = of_kernels(system)["product"]
        for part in ("ext.kernels.product.bfloat16", "ext.gemm.bfloat16", "matrix.bfloat16"):
            after = of_kernels(slowed(system, spread(part), 2.0))["product"]
            np.testing.assert_allclose(after, before * 2, rtol=1e-14, err_msg=f"{form}")
        small = spread("ext.kernels.product.bfloat16", end=BOUND)
        assert slowed(system, small, 2.0) is system, form


def test_a_part_that_is_not_there_changes_nothing(system):
    for part in (
        *("networks[7]", "ext.kernels.norm.float32", "ext.kernels.x.y", "ext.gemm.x"),
        *("matrix.float64", "mem3", "", "x.y"),
    ):
        assert slowed(system, spread(part), 2.0) is system


def test_times_in_lists_are_slower_and_nothing_else():
    raw = document("systems", "h100_80g_sxm")
    table = {"table": [[64, 64, 64, 1e-5], [128, 128, 128, 2e-5]], "values": "seconds"}
    shares = {"table": [[64, 64, 64, 0.5]], "values": "share"}
    raw["ext"]["kernels"]["product"] |= {"float16": table, "float32": shares}
    before = inputs.system(raw)
    after = with_slower_lists(before, 2.0)
    for name, law in before.ext.networks[0].operations.items():
        slower = after.ext.networks[0].operations[name]
        assert slower.rates.ramps == tuple(2.0 * ramp for ramp in law.rates.ramps)
        assert (slower.latency, slower.rates.shares) == (law.latency, law.rates.shares)
    seconds, unchanged = (after.rate("product", name) for name in ("float16", "float32"))
    assert seconds.table.values.tolist() == [2e-5, 4e-5]
    assert unchanged.table.values.tolist() == [0.5]
    assert after.networks == before.networks
    assert with_slower_lists(before, 1.0).rate("product", "bfloat16") == before.rate(
        "product", "bfloat16"
    )
