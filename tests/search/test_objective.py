"""Objectives: their texts, their senses, and bounds that nothing beats."""

import numpy as np
import pytest
from hypothesis import given

import calculon
from calculon.search.objective import Objective, known_statistic
from calculon.search.one import groups, tiles
from calculon.search.tables import SearchTables
from tests.helpers import NAMES
from tests.search.brute import cases


@pytest.mark.parametrize("name", NAMES)
def test_every_statistic_has_a_natural_sense(name):
    larger = name in ("sample_rate", "compute_efficiency", "system_efficiency", "total_efficiency")
    assert Objective.parse(name).sense == ("max" if larger else "min")
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


def test_known_statistic_says_who_asks():
    with pytest.raises(calculon.SpecError, match="^somewhere: "):
        known_statistic("nothing", "somewhere")


@given(case=cases())
def test_scores_turn_back_into_values(case):
    values = case.table["proc_mem_tier2_cap_req"]
    for sense in ("min", "max"):
        objective = Objective.parse(f"total_time:{sense}")
        scores = values if sense == "max" else np.negative(values)
        assert np.array_equal(objective.value(scores), values, equal_nan=True)


def test_only_times_and_rates_are_bounded():
    bounded = {
        f"{name}:{sense}"
        for name in NAMES
        for sense in ("min", "max")
        if Objective.parse(f"{name}:{sense}").bound(lambda: np.ones(1), 8.0) is not None
    }
    assert bounded == {"sample_rate:max", "total_time:min"}


@given(case=cases())
def test_no_execution_beats_its_bound(case):
    space = case.space
    objectives = [Objective.parse(text) for text in ("sample_rate", "total_time")]
    for group in groups(space):
        tables = SearchTables(space, group, calculon.edition("sc23"))
        for tile in tiles(space, tables, group):
            everything = np.indices(tile.shape).reshape(6, -1)
            least = tile.least_time
            assert (least > 0).all()
            assert least.shape == (tile.shape[0], tile.shape[1], tile.shape[5])
            for rows in tile.rows(tuple(everything)):  # those that do not fit as well
                for objective in objectives:
                    bound = objective.bound(lambda: least, tile.unit.batch_size)  # noqa: B023
                    scores = np.broadcast_to(objective.score(rows.batch), rows.numbers.shape)
                    of_row = _of_rows(bound, tile, rows)
                    assert (scores <= of_row).all()


def _of_rows(bound, tile, rows):
    """Look the bound of every row up, by its place in the grid."""
    chunk, shard, *_, node = np.indices(tile.shape).reshape(6, -1)
    whole = bound[chunk, shard, node]
    first = rows.numbers[0, 0, 0, 0]
    return whole[np.isin(_first_numbers(tile), first)]


def _first_numbers(tile):
    return np.concatenate(
        [r.numbers[0, 0, 0, 0] for r in tile.rows(tuple(np.indices(tile.shape).reshape(6, -1)))]
    )
