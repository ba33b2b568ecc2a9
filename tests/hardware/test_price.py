"""Prices and powers of system files: what they may be, and that no step depends on them."""

import re

import pytest

import calculon
from calculon import inputs
from calculon.declarations import catalog
from calculon.hardware.figures import figures_of, with_figures
from tests.helpers import document

POWER = {"tdp": 700, "source": "a data sheet", "date": "2023"}
RENT = {"usd": 2.5, "source": "a list of prices", "date": "2025-06"}
OWN = {
    "node_usd": 250e3,
    "years": 4,
    "utilization": 0.8,
    "source": "an offer",
    "date": "2025-06-05",
}
EXECUTION = "gpt2-124M_a100x2_ddp"


def with_ext(**parts):
    """Return a system that states these parts of ``ext`` in place of its own."""
    raw = document("systems", "a100_80g_sxm")
    ext = {key: value for key, value in raw["ext"].items() if key not in ("power", "price")}
    return inputs.system(raw | {"ext": ext | parts})


def test_no_step_depends_on_prices_and_powers():
    found = []
    for changes in ({}, {"power": POWER | {"idle": 80, "load": 650}, "price": {"own": OWN}}):
        system = with_ext(**changes)
        found.append(calculon.estimate("gpt2-124M", EXECUTION, system).stats)
    assert found[0] == found[1]


def test_they_are_no_figures_of_a_step():
    system = with_ext(power=POWER, price={"on_demand": RENT, "own": OWN})
    without = with_ext()
    assert figures_of(system).keys() == figures_of(without).keys()
    beside = figures_of(system, whole_runs=True).keys() - figures_of(without).keys()
    own = {"node_usd", "years", "utilization", "opex_share", "network_usd", "usd_per_kw"}
    wanted = {"ext.power.tdp", "ext.price.on_demand.usd", *(f"ext.price.own.{key}" for key in own)}
    assert beside == wanted
    changed = with_figures(system, {"ext.price.on_demand.usd": 3.0})
    assert changed.ext.price.on_demand.usd == 3.0


def test_ways_to_pay_are_those_stated():
    spot = RENT | {"mtbf_hours": 1000}
    price = with_ext(price={"own": OWN, "spot": spot, "storage": RENT}).ext.price
    assert price.kinds == ("spot", "own")
    assert price.spot.mtbf_hours == 1000
    assert with_ext(price={"on_demand": RENT}).ext.price.kinds == ("on_demand",)


def test_what_is_wrong_is_named():
    for ext, message in [
        ({"price": {"on_demand": RENT | {"usd": 0}}}, r"ext\.price\.on_demand\.usd: .*above 0"),
        ({"price": {"on_demand": {"usd": 2}}}, r"ext\.price\.on_demand\.source: .*missing"),
        (
            {"price": {"reserved": RENT | {"source": " "}}},
            r"ext\.price\.reserved\.source: .*the source of the figure",
        ),
        ({"price": {"spot": RENT | {"date": "June"}}}, r"ext\.price\.spot\.date: .*2025-06"),
        ({"price": {"on_demand": RENT | {"date": "2025-13"}}}, r"date: .*2025-06"),
        ({"price": {"rented": RENT}}, r"ext\.price\.rented"),
        ({"price": {"own": OWN | {"utilization": 80}}}, r"utilization: .*write 0\.8 for 80 %"),
        ({"power": {"tdp": 700}}, r"ext\.power\.source: .*missing"),
        ({"power": POWER | {"idle": 90}}, r"ext\.power\.load: .*since idle is stated"),
        ({"power": POWER | {"load": 90}}, r"ext\.power\.idle: .*since load is stated"),
        ({"power": POWER | {"idle": 90, "load": 80}}, r"ext\.power\.load: .*at least idle=90 W"),
        (
            {"power": POWER | {"idle": 90, "load": 600, "spin": 610}},
            r"ext\.power\.load: .*at least spin=610 W",
        ),
    ]:
        with pytest.raises(calculon.SpecError, match=message):
            with_ext(**ext)


NO_TDP = {
    "a100_80e": "as published, without additions",
    "a100_80g": "as published, without additions",
    "h100_80g_nvl8": "as published, without additions",
    "tpu_v5e": "Google has not published it",
    "tpu_v5p": "Google has not published it",
    "tpu_v6e": "Google has not published it",
    "tpu_v7x": "Google has not published it",
    "trainium2": "AWS has not published it",
    "trainium2_ultra": "AWS has not published it",
    "trainium1": "AWS has not published it",
    "trainium3": "AWS has not published it",
    "mi455x": "AMD had not published it in January 2026",
    "vr200_nvl72": "NVIDIA had not published it in January 2026",
}
"""Systems whose power is not known, and why."""

TOTAL = re.compile(r".*: (?P<instance>\S+), (?P<usd>[\d.]+) USD/h for (?P<processors>\d+)")
"""The source of a price of an instance with several processors."""


def extension(name):
    """Return the additions of a system of the catalog as its file and those that it is based on state them."""
    return catalog.load("system", name)[1].get("ext", {})


def test_the_power_of_every_system_is_known_or_a_reason_why_not():
    without = {name for name in catalog.names("system") if "power" not in extension(name)}
    assert without == set(NO_TDP)


def test_every_price_has_a_source_and_a_date():
    stated = [
        (name, kind, price)
        for name in catalog.names("system")
        for kind, price in extension(name).get("price", {}).items()
    ]
    for name, kind, price in stated:
        assert price["usd"] > 0, (name, kind)
        assert price["source"], (name, kind)
        assert re.match(r"20\d\d", price["date"]), (name, kind)
        if total := TOTAL.fullmatch(price["source"]):
            whole = price["usd"] * int(total["processors"])
            assert whole == pytest.approx(float(total["usd"]), rel=1e-4), (name, kind)


def test_no_price_is_that_of_another_processor():
    for name in catalog.names("system"):
        raw = document("systems", name)
        stated, ext = raw.get("ext", {}), extension(name)
        inherited = "price" in ext and "price" not in stated
        another = "tdp" in (stated.get("power") or {}) or "tflops" in str(raw.get("matrix", ""))
        assert not (inherited and "base" in raw and (another or "cloud" in raw["about"])), name


def test_instances_of_clouds_have_their_own_price_and_that_of_storage_there():
    for name in catalog.names("system"):
        about = document("systems", name).get("about") or {}
        price = extension(name).get("price")
        if price and "cloud" in about:
            sources = [price[kind]["source"] for kind in ("on_demand", "reserved") if kind in price]
            short = about["instance"].removeprefix("Standard_")
            assert [one for one in sources if short not in one] == []
            assert "storage" in price
