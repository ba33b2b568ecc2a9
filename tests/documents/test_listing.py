"""The catalog and the validation as data frames."""

import re

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.documents.catalog_tables import TABLES
from tests.cases import for_each
from tests.cli.conftest import catalog_once, run
from tests.helpers import csv_rows

__all__ = ["catalog_once", "run"]

pytestmark = pytest.mark.usefixtures("catalog_once")


def test_the_catalog_is_that_of_the_command(run):
    for kind in TABLES:
        rows = csv_rows(run("catalog", kind, "--format", "csv").out)
        frame = calculon.catalog(kind)
        assert frame["name"].tolist() == [row["name"] for row in rows], kind
        assert frame.columns.tolist() == [*rows[0]]


def test_rows_are_chosen_by_name_family_and_condition():
    whole = calculon.catalog("systems")
    every = calculon.catalog()
    assert every["name"][every["kind"] == "systems"].tolist() == whole["name"].tolist()
    assert set(every["kind"]) == {*TABLES}
    large = calculon.catalog("systems", where="memory >= 141")
    assert large["name"].tolist() == whole[whole["memory"] >= 141]["name"].tolist()
    hopper = calculon.catalog("systems", family="hopper")
    assert set(hopper["name"]) == set(whole[whole["family"].str.contains("Hopper")]["name"])
    both = calculon.catalog("systems", "h100", "h200", where="memory >= 141")["name"]
    assert all("h200" in name for name in both)
    assert len(calculon.catalog("systems", "nothing of this name")) == 0


@for_each(
    ("call", "said"),
    [
        (lambda: calculon.catalog("system"), "did you mean 'systems'"),
        (lambda: calculon.catalog("systems", family="zz"), "family: expected a family"),
        (lambda: calculon.validate("megatron_202"), "did you mean 'megatron_2024'"),
        (lambda: calculon.validate("sc21/table1", edition="sc24"), "sc23, corrected"),
    ],
)
def test_what_is_not_there_says_what_is(call, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        call()


def test_errors_are_those_of_measured_and_estimated_values():
    frame = calculon.validate("megatron_2020")
    known = frame.dropna(subset=["error"])
    assert len(known) > 5
    expected = (known["estimated"] / known["measured"] - 1) * 100
    assert (known["error"] - expected).abs().max() < 1e-9
    assert set(frame["edition"]) == {"corrected"}
