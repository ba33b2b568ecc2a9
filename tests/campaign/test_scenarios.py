"""Failure scenarios: published rates in order, stated fields that count, and the rows of the overhead."""

import csv
import re

import pytest

from calculon.base.errors import SpecError
from calculon.campaign.assumed import assumed_defaults
from calculon.campaign.read import read_campaign
from calculon.campaign.scenarios import PUBLISHED_OVERHEADS, SCENARIOS, VALUES
from calculon.declarations.fields import spec_fields
from tests.helpers import ROOT

HOUR = 3600


def read_as(name, **fields):
    return read_campaign({"tokens": "1T", "reliability": {"scenario": name, **fields}})


def test_rates_are_those_of_published_runs():
    with (ROOT / "validation" / "failures.csv").open() as file:
        rows = {one["run"]: one for one in csv.DictReader(file)}
    hours = {n: read_as(n).reliability.mtbf_processor / HOUR for n in SCENARIOS}
    for name, run, further in (
        ("good", "RSC-2", 0),
        ("typical", "Llama 3 405B", 0),
        ("new", "OPT-175B", 70),
    ):
        row = rows[run]
        busy = int(row["num_procs"]) * float(row["hours"])
        expected = busy / (float(row["failures"]) + further)
        assert hours[name] == pytest.approx(expected, rel=1e-4)
    assert hours["good"] > hours["typical"] > hours["new"]


def test_the_default_is_the_typical_scenario():
    assert read_as("typical").reliability == read_campaign({"tokens": "1T"}).reliability


def test_stated_fields_count_and_the_rest_is_assumed_with_its_source():
    found = read_as("new", restart=30)
    assert (found.reliability.restart, found.reliability.detect) == (30, 600)
    sources = {one["field"]: one for one in assumed_defaults(found, ["h100_80g_sxm"])}
    assert "reliability.restart" not in sources
    assert sources["reliability.detect"]["value"] == 600
    assert "NCCL's default" in sources["reliability.detect"]["source"]
    assert "OPT-175B" in sources["reliability.mtbf_processor"]["source"]


def test_scenarios_set_fields_that_exist():
    kind = type(read_campaign({"tokens": "1T"}).reliability)
    known = {one.key for one in spec_fields(kind)}
    assert all(set(fields) <= known for fields in VALUES.values())
    assert VALUES.keys() == SCENARIOS.keys()


def test_changes_of_a_record_keep_its_scenario():
    found = read_campaign(read_as("good"), {"reliability.spares": 2})
    assert found.reliability == read_as("good", spares=2).reliability


def test_an_unknown_scenario():
    for name in ("bad", 3, None, ["new"]):
        with pytest.raises(SpecError, match=r"reliability\.scenario"):
            read_as(name)


def test_published_overheads_are_those_of_the_page():
    """The rest of runs with known settings; a tenth is the error of a predicted step."""
    text = (ROOT / "validation" / "whole_runs.md").read_text()
    rows = re.findall(r"^\| (.+?) \|(?:[^|]*\|){8}([^|]*)\| known \| run \|", text, re.MULTILINE)
    found = {name: float(rest) for name, rest in rows}
    assert found.keys() == PUBLISHED_OVERHEADS.keys()
    assert list(PUBLISHED_OVERHEADS.values()) == sorted(PUBLISHED_OVERHEADS.values())
    for name, value in PUBLISHED_OVERHEADS.items():
        assert value == pytest.approx(found[name], rel=0.1)
