"""The probability that an execution fits: Student t over sources of measured runs, by class."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

import calculon
from calculon.base.units import GIB
from calculon.declarations.named_values import SPLIT_WEIGHTS
from calculon.declarations.statistics import LEVEL
from calculon.documents.confidence import TIGHT, memory_text, remarks
from calculon.estimate.memory_error import MemoryErrors, measured_memory, memory_errors
from calculon.estimate.run_table import MEMORY_GAINS, Runs, runs
from tests.draws import draws

CASE = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
ERRORS = MemoryErrors(mean=0.02, scale=0.05, freedom=2.5, runs=9, sources=4)


def measured(*rows):
    """Runs with a source, measured over predicted memory (None: not measured), and further fields each."""
    return Runs.of(
        [
            dataclasses.replace(
                runs()[0],
                source=source,
                study=source,
                measured_memory=ratio and ratio * GIB,
                predicted_memory=GIB,
                **fields,
            )
            for source, ratio, fields in rows
        ]
    )


def test_the_probability_is_that_of_students_t():
    usable, needed = 80 * GIB, 80 * GIB * np.random.default_rng(0).uniform(0.5, 1.5, draws(50))
    expected = stats.t.cdf((np.log(usable / needed) - 0.02) / 0.05, ERRORS.freedom)
    assert ERRORS.fits(needed, usable) == pytest.approx(expected, abs=5e-5)
    for level in (0.05, 0.5, 0.9, 0.99):
        assert ERRORS.fits(np.array(1.0), ERRORS.capacity_ratio(level)) == pytest.approx(
            level, abs=1e-9
        )


def test_more_memory_never_makes_it_less_likely_to_fit():
    needed = np.linspace(1, 200, 1000) * GIB
    fits = ERRORS.fits(needed, 80 * GIB)
    assert (np.diff(fits) <= 0).all()
    assert 0 < fits[-1] < 0.01
    assert 0.99 < fits[0] < 1
    assert ERRORS.fits(np.array(0.0), GIB) == 1


def test_its_mean_and_variance_are_those_of_weighted_sources():
    ratios, sources = np.array([0.0, 0.1, 0.3]), np.array([0, 0, 1])
    found = memory_errors(ratios, sources, np.array([0.5, 0.5, 1.0]))
    mean = (0.5 * 0.0 + 0.5 * 0.1 + 0.3) / 2
    variance = (0.5 * mean**2 + 0.5 * (0.1 - mean) ** 2 + (0.3 - mean) ** 2) / 2
    assert found.mean == pytest.approx(mean)
    # two sources of equal weight: K = 2
    assert found.scale == pytest.approx(math.sqrt(variance * 2 / (2 - 1) * (1 + 1 / 2)))
    assert (found.freedom, found.runs, found.sources) == (1, 3, 2)
    # one that counts three times as much: K = (3 + 1)^2 / (9 + 1)
    uneven = memory_errors(ratios, sources, np.array([1.5, 1.5, 1.0]))
    assert uneven.freedom == pytest.approx(max(1.0, 16 / 10 - 1))
    assert memory_errors(ratios, np.zeros(3, int), np.ones(3)) is None


def test_runs_of_the_same_class_count_more():
    own = {"preset": "torchtitan", "zero_stage": "fsdp", "experts": 0}
    some = measured(
        ("a", 1.0, own),
        ("b", 1.1, own | {"preset": "deepspeed"}),
        ("c", 1.2, own | {"zero_stage": "1"}),
        ("d", 1.3, own | {"experts": 8}),
        ("e", None, own),
        ("f", 2.0, own | {"preset": "published"}),
    )
    found = some.memory_errors("torchtitan", splits_weights=True, experts=False)
    framework, sharding, experts = MEMORY_GAINS
    everything = 1 + sum(MEMORY_GAINS)
    weights = np.array([everything, *(everything - one for one in (framework, sharding, experts))])
    ratios = np.log([1.0, 1.1, 1.2, 1.3])
    assert found.mean == pytest.approx(weights @ ratios / weights.sum())
    assert (found.runs, found.sources) == (
        4,
        4,
    )  # neither what was not measured, nor what was stated by hand


def test_runs_left_out_in_turn_fit_where_they_are_said_to():
    """Each measured run of a framework, by the runs of all other sources, on a machine with the room of 90 %."""
    everything = runs()
    known = [
        one
        for one in map(everything.__getitem__, range(len(everything)))
        if one.memory_error is not None
    ]
    known = [one for one in known if one.preset != "published"]
    held = []
    for source in {one.source for one in known}:
        others = Runs.of([one for one in known if one.source != source])
        for one in (one for one in known if one.source == source):
            split = one.zero_stage in SPLIT_WEIGHTS
            found = others.memory_errors(one.preset, splits_weights=split, experts=one.experts > 0)
            held.append(one.measured_memory <= one.predicted_memory * found.capacity_ratio(LEVEL))
    assert len(held) > 70
    assert np.mean(held) >= LEVEL


@pytest.mark.parametrize("usable", [9.0, 10.0, 11.0, 12.0, 30.0])
def test_an_execution_that_may_not_fit_is_remarked(usable):
    found = measured_memory(ERRORS, 10 * GIB, usable * GIB)
    assert found.fits == pytest.approx(ERRORS.fits(np.array(10.0), usable))
    assert found.headroom == pytest.approx(usable / 10 - 1)
    assert found.error == pytest.approx(ERRORS.capacity_ratio(LEVEL) - 1)
    assert (
        (found.remark == "")
        == (found.fits >= LEVEL)
        == (usable / 10 >= ERRORS.capacity_ratio(LEVEL))
    )
    if found.remark:
        more = usable < 10
        words = f"it needs {10 - usable:.1f} GiB ({100 * (10 / usable - 1):.1f} %) more than the"
        left = f"{usable - 10:.1f} GiB of {usable:.1f} GiB are left"
        assert found.remark.startswith(words if more else left)


def test_without_measured_memory_there_is_nothing():
    some = measured(("a", None, {}), ("b", None, {}))
    assert some.memory_errors("common", splits_weights=False, experts=False) is None


def test_an_estimate_says_it_on_its_page_and_in_its_document():
    estimate = calculon.estimate(*CASE)
    needed, usable = estimate.stats["proc_mem_tier1_cap_req"], estimate.system.usable[0]
    memory = estimate.belief.memory
    errors = runs().memory_errors("megatron-lm", splits_weights=False, experts=False)
    assert memory == measured_memory(errors, needed, usable)
    document = estimate.to_dict()
    assert document["belief"]["memory"] == dataclasses.asdict(memory)
    assert document["fits"] == memory.fits
    text = memory_text(dataclasses.asdict(memory))
    assert f"by {memory.runs} measured runs of {memory.sources} sources" in text


def test_a_full_memory_is_a_remark_of_a_prediction():
    estimate = calculon.estimate(*CASE)
    belief, memory = estimate.belief, estimate.belief.memory
    tight = dataclasses.replace(memory, remark="0.1 GiB are left")
    document = dataclasses.replace(belief, memory=tight).to_dict()
    assert (TIGHT, "0.1 GiB are left") in list(remarks(document))
    assert TIGHT not in dict(remarks(belief.to_dict()))
