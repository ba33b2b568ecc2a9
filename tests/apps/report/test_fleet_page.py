"""The page of fleets: it says what is best, what misses the limits, and where every figure is from."""

import io
from functools import cache

import pytest
from rich.console import Console

import calculon
from calculon.apps.report.fleet_page import FRONT, FleetPage, amount
from calculon.apps.report.run_defaults import defaults_line, price_words, value_of
from calculon.campaign.assumed import told_defaults
from calculon.campaign.read import read_campaign


@cache
def fleets(deadline="60d"):
    """Return an answer about two counts of two machines, of which one has no price."""
    run = {"tokens": "1T", "deadline": deadline}
    machines = ["h100_80g_sxm", "gaudi3"]
    return calculon.plan(
        "llama3-70B", "8,128", machines, batch=128, campaign=run, objective="usd", seq=4096
    )


@cache
def drawn(width, deadline="60d"):
    stream, answer = io.StringIO(), fleets(deadline)
    page = FleetPage(answer.to_dict(), answer.preset.usual, answer.frameworks)
    Console(file=stream, width=width, highlight=False).print(page)
    return stream.getvalue()


def folded(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("deadline", ["2000d", "1d"])
def test_no_line_is_wider_than_the_page(width, deadline):
    assert max(map(len, drawn(width, deadline).splitlines())) <= width


def test_the_page_has_its_parts_in_order():
    text = drawn(80, "2000d")
    parts = ("Fleets for", "Cheapest: 128 x h100", "Days and money", "Prices and power", "Assumed")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    missed = drawn(80, "1d")
    parts = ("Nothing meets the limits", "Nearest: ", "Deadline missed by", "Days and money")
    places = [missed.index(part) for part in parts]
    assert places == sorted(places)


def test_every_point_has_a_line():
    answer, text = fleets("2000d"), drawn(160, "2000d")
    lines = text[text.index("Days and money") : text.index("Prices and power")].splitlines()
    for one in answer.points:
        start = f"{one.system.name} {one.num_procs:,} "
        (line,) = (line for line in map(folded, lines) if start in f"{line} ")
        assert (FRONT in line.split()) == (one in answer.frontier)
        assert ("none fits" in line) == (one.plan is None)
    assert "No price is known of gaudi3" in text


def test_every_default_price_and_power_has_its_source():
    answer, text = fleets("2000d"), folded(drawn(160, "2000d"))
    for one in told_defaults(answer.campaign):
        assert (one["field"] in text) == one["counts"]
        if one["counts"]:
            assert folded(one["source"]) in text
    for one in answer.to_dict()["prices"]:
        if one["usd"] is not None:
            assert f"{one['usd']:.2f} USD/h" in text
            assert folded(price_words(one)) in text
        assert f"{one['power']['watts']:,.0f} W" in text
    assert "PUE 1" in text


def test_a_line_has_all_defaults_that_nobody_stated():
    stated = read_campaign({"tokens": "1T", "reliability": {"restart": "10min"}})
    price = {"usd": 2.5, "kind": "on_demand", "source": "a list", "date": "2025-10"}
    text = defaults_line(told_defaults(stated), [price]).plain
    assert "restart" not in text
    assert "detect 60 s (assumption" in text
    assert "price 2.50 USD/h (on demand, 2025-10, a list)" in text
    given = price | {"kind": "given", "source": "", "date": ""}
    assert "price" not in defaults_line(told_defaults(stated), [given]).plain
    assert value_of({"value": "async", "unit": ""}) == "async"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.01, "d", "<0.1 d"),
        (0.0, "d", "0.0 d"),
        (1e6, "USD", "1.00 M USD"),
        (12.34, "d", "12.3 d"),
    ],
)
def test_what_is_missed_is_an_amount(value, unit, text):
    assert amount(value, unit) == text
