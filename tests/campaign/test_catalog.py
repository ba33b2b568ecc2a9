"""Campaigns, prices and grids of the catalog."""

import csv
import math
import re
from collections import defaultdict

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.campaign.prices import carbon_of, grids, price_range, processor_of
from calculon.campaign.read import read_campaign
from calculon.campaign.run_segments import run_segments
from calculon.declarations import catalog
from tests.cases import for_each
from tests.helpers import ROOT

NAMES = tuple(catalog.names("campaign"))
SOURCE = re.compile(r"arXiv:\d{4}\.\d{5}|model card|BigScience")


@for_each("name", NAMES)
def test_it_says_what_it_is_and_where_it_is_from(name):
    asked = read_campaign(name)
    assert asked.name == name
    assert asked.document["about"]
    assert SOURCE.search(catalog.names("campaign")[name].read_text(encoding="utf-8"))
    assert name not in catalog.names("model")


@for_each("name", NAMES)
def test_its_parts_have_all_of_its_tokens(name):
    asked = read_campaign(name)
    whole = 0.0 if asked.tokens is None else asked.tokens.of(1e9)
    stated = whole or sum(one.tokens.of(1e9) for one in asked.phases)
    parts = run_segments(asked, whole, 1e9, 2048, 2048)
    assert math.isclose(sum(one.tokens for one in parts), stated)
    assert max(one.tokens for one in parts) > stated / 2


def test_the_range_has_the_price_of_every_system_with_the_processor():
    prices = defaultdict(set)
    for name in catalog.names("system"):
        price = inputs.system(name).ext.price
        if price is not None and price.on_demand is not None:
            prices[processor_of(name)].add(price.on_demand.usd)
    for processor in ("h100_80g_sxm", "b200_sxm", "a100_80g_sxm"):
        found, known = price_range(processor, "on_demand"), prices[processor]
        assert len(known) > 1
        assert (found.low, found.high) == (min(known), max(known)), processor


def test_instances_of_a_cloud_have_the_range_of_their_processor():
    assert price_range("azure_nd_h100_v5", "on_demand") == price_range("h100_80g_sxm", "on_demand")


def test_one_price_is_no_range():
    assert price_range("mi300x", "on_demand") is None
    assert price_range("h100_80g_sxm", "own") is None
    assert price_range("a system of nobody", "on_demand") is None
    assert processor_of("a system of nobody") == "a system of nobody"


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
        ("mars", "--carbon: .*known grids: .*texas.*, and their codes such as us-va"),
        ("-3", "--carbon: .*of at least 0"),
        ("nan", "--carbon: .*finite"),
    ],
)
def test_what_is_no_grid(text, message):
    with pytest.raises(SpecError, match=message):
        carbon_of(text, "--carbon")
