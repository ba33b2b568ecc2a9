"""The interval of the iteration time: what each part does alone, joined; nothing where nothing is known."""

import math

import pytest

import calculon
from calculon.documents.estimate_result import result_of
from calculon.documents.page import interval_texts
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import evaluate_rows
from calculon.estimate.interval import Influence, _joined
from calculon.hardware.figures import slowed
from calculon.plan.plan import Plan
from tests.helpers import bits, document

EXAMPLE = ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g")
TODAY = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
MEMORY = {"low": 0.9, "high": 1.2, "level": 0.9}
MATRIX = {"low": 0.95, "high": 1.1, "level": 0.8}
LINK = {"low": 0.8, "high": 1.5, "level": 0.9}


def calibrated(system, **spreads):
    """Return a system file with residuals; names of parts have _ for what a name cannot have."""
    names = {"network": "networks[1]", "half": "matrix.float16", "bf16": "matrix.bfloat16"}
    fits = [
        {"part": names.get(part, part), "spreads": some if isinstance(some, list) else [some]}
        for part, some in spreads.items()
    ]
    return document("systems", system) | {"calibration": {"fits": fits}}


def estimate(case, **spreads):
    return calculon.estimate(*case[:2], calibrated(case[2], **spreads))


def alone(result, spread, factor):
    """Return the iteration time of an estimate with a part that is slower."""
    machine = slowed(result.system, spread, factor)
    plan, edition = Plan.of(result.execution), EDITIONS[result.edition]
    _, stats = next(evaluate_rows(result.model, machine, plan, edition))
    return float(stats.times.total_time[0])


@pytest.mark.parametrize("case", [EXAMPLE, TODAY], ids=["sc23", "corrected"])
def test_nothing_changes_without_residuals(case):
    plain = calculon.estimate(*case)
    assert plain.interval is None
    assert "total_time_interval" not in plain.to_dict()
    assert (bits(estimate(case, mem1=MEMORY).stats) == bits(plain.stats)).all()


def test_one_part_gives_the_times_at_its_ends():
    found = estimate(EXAMPLE, half=MATRIX)
    spread = found.system.calibration.spreads[0]
    low, high = (alone(found, spread, factor) for factor in (0.95, 1.1))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), rel=1e-12)
    assert low < found.stats["total_time"] < high
    assert found.interval.level == 0.8
    assert [one.part for one in found.interval.parts] == ["matrix.float16"]


@pytest.mark.parametrize("edition", ["sc23", "corrected"])
def test_parts_add_in_quadrature_by_side_and_the_least_level_counts(edition):
    system = calibrated("a100_80g", half=MATRIX, mem1=MEMORY, network=LINK, mem2=LINK)
    found = calculon.estimate(*EXAMPLE[:2], system, edition=edition)
    total, interval = found.stats["total_time"], found.interval
    ends = [
        (alone(found, one, one.low), alone(found, one, one.high))
        for one in found.system.calibration.spreads
    ]
    assert interval.low == pytest.approx(total - math.hypot(*(total - low for low, _ in ends)))
    assert interval.high == pytest.approx(total + math.hypot(*(high - total for _, high in ends)))
    assert interval.level == 0.8
    changes = [one.high - one.low for one in interval.parts]
    assert changes == sorted(changes, reverse=True)
    assert {one.part for one in interval.parts} == {"matrix.float16", "mem1", "networks[1]"}


def test_parts_that_the_time_does_not_depend_on_do_not_count():
    useless = {"low": 0.1, "high": 10.0, "level": 0.1}
    with_them = estimate(EXAMPLE, half=MATRIX, mem2=useless, bf16=useless).interval
    assert with_them == estimate(EXAMPLE, half=MATRIX).interval
    assert estimate(EXAMPLE, mem2=useless).interval is None


def test_what_is_not_known_is_said():  # the vector engine is less than 1 % of the time
    assert estimate(EXAMPLE, half=MATRIX).interval.unknown == [
        "mem1",
        "networks[0]",
        "networks[1]",
    ]
    found = estimate(TODAY, **{"ext.gemm.bfloat16": MATRIX, "mem1": MEMORY}).interval
    assert found.unknown == ["networks[0]"]


def test_parts_of_additions_count_where_the_edition_sees_them():
    spreads = {"ext.gemm.float16": MATRIX}
    model, execution, _ = EXAMPLE
    for edition, counts in (("sc23", False), ("corrected", True)):
        system = calibrated("a100_80g_sxm", **spreads)
        found = calculon.estimate(model, execution, system, edition=edition)
        assert (found.interval is not None) == counts


def test_a_bias_to_one_side_keeps_the_estimate_inside():
    found = estimate(EXAMPLE, half={"low": 1.05, "high": 1.1, "level": 0.9})
    assert found.interval.low == found.stats["total_time"] < found.interval.high


def test_no_time_is_below_0_however_fast_several_parts_may_be():
    parts = [Influence("a", "all", 0.1, 1.2), Influence("b", "all", 0.2, 1.3)]
    found = _joined(1.0, 0.9, parts, [], "")
    assert (found.low, found.high) == (0.0, pytest.approx(1 + math.hypot(0.2, 0.3)))


def test_residuals_of_whole_iterations_take_precedence():
    found = estimate(EXAMPLE, half=MATRIX, training=MEMORY)
    total = found.stats["total_time"]
    assert (found.interval.low, found.interval.high) == pytest.approx((0.9 * total, 1.2 * total))
    assert found.interval.level == 0.9
    assert found.interval.unknown == []


def test_it_is_written_beside_the_statistics_and_not_among_them():
    found = estimate(TODAY, mem1=MEMORY)
    assert "total_time_interval" not in found.stats
    again = found.to_dict()["total_time_interval"]
    assert again["low"] == found.interval.low
    assert again["parts"][0] == {
        "part": "mem1",
        "operations": "all",
        "low": found.interval.parts[0].low,
        "high": found.interval.parts[0].high,
    }
    assert " (90%: " in repr(found)


def test_a_page_says_its_level_and_what_it_leaves_out():
    told = interval_texts(result_of(estimate(EXAMPLE, half=MATRIX)).residuals)
    assert told["interval"].startswith("80 %: ")
    assert told["assumed exact"].startswith("mem1, networks[0]")
