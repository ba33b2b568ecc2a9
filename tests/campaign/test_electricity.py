"""Grids by name."""

import csv
import re

import pytest

from calculon.campaign.electricity import carbon_of, grids
from calculon.errors import SpecError
from tests.cases import for_each
from tests.helpers import ROOT

with (ROOT / "systems" / "grids.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))


def test_each_row_is_a_grid_with_source_and_year():
    assert [row["grid"] for row in ROWS] == sorted(grids())
    words = [word for row in ROWS for word in (row["grid"], *row["aliases"].split())]
    assert len(set(words)) == len(words)
    for row in ROWS:
        assert re.fullmatch(r"20\d\d", row["year"])
        assert row["source"]
        assert 0 < float(row["g_co2_per_kwh"]) < 1000


@for_each("text", ["france", "France", " FR "])
def test_names_in_any_spelling(text):
    assert carbon_of(text) == grids()["france"]
    assert carbon_of("united_states") == carbon_of("us") == carbon_of("United  States")


def test_numbers_are_g_per_kwh():
    assert carbon_of("57").g_co2_per_kwh == carbon_of(57.0).g_co2_per_kwh == 57
    assert carbon_of(57).words == ""
    assert carbon_of("virginia").words == "virginia, US EPA eGRID, 2023"


@for_each(
    ("text", "message"),
    [
        ("frnace", "--carbon: .*did you mean 'france'"),
        ("mars", "--carbon: .*known are .*texas.*, and codes of them such as us-va"),
        ("-3", "--carbon: .*of at least 0"),
        ("nan", "--carbon: .*finite"),
    ],
)
def test_what_is_no_grid(text, message):
    with pytest.raises(SpecError, match=message):
        carbon_of(text, "--carbon")
