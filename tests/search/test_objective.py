"""Objectives: their texts, their senses, and bounds that nothing beats."""

import numpy as np
import pytest

import calculon
from calculon.base.records import columns
from calculon.declarations.statistics import CorrectedStats
from calculon.search.objective import Objective
from tests.helpers import NAMES


def test_every_statistic_has_a_natural_sense():
    larger = {"sample_rate", "compute_efficiency", "system_efficiency", "total_efficiency"}
    assert {name for name in NAMES if Objective.parse(name).sense == "max"} == larger
    for name in NAMES:
        for sense in ("min", "max"):
            objective = Objective.parse(f"{name}:{sense}")
            assert (objective.statistic.name, objective.sense) == (name, sense)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sampel_rate", "sample_rate"),
        ("total_tim:min", "total_time"),
        ("", "describe stats"),
        (":max", "describe stats"),
        ("tensor_par", ""),
        (" total_time", "total_time"),
    ],
)
def test_an_unknown_statistic_is_refused(text, hint):
    with pytest.raises(calculon.SpecError) as error:
        Objective.parse(text)
    assert error.value.file == "objective"
    assert hint in error.value.hint


@pytest.mark.parametrize("sense", ["", "maximum", "MAX", "max:min"])
def test_an_unknown_sense_is_refused(sense):
    with pytest.raises(calculon.SpecError, match="max or min"):
        Objective.parse(f"total_time:{sense}")


def test_only_times_and_rates_are_bounded():
    bounded = {
        f"{name}:{sense}"
        for name in (column.name for column in columns(CorrectedStats))
        for sense in ("min", "max")
        if Objective.parse(f"{name}:{sense}").bound(lambda: np.ones(1), 8.0, 64.0) is not None
    }
    assert bounded == {"sample_rate:max", "tokens_per_second:max", "total_time:min"}
