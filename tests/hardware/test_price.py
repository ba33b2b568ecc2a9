"""Prices and powers of system files: what they may be, and that no step depends on them."""

import pytest

import calculon
from calculon import inputs
from calculon.apps.cli.main import main
from calculon.hardware.figures import figures_of, with_figures
from tests.helpers import document

POWER = {"tdp": 700, "source": "a data sheet", "date": "2023"}
RENT = {"usd": 2.5, "source": "a list of prices", "date": "2025-06"}
OWN = {
    "node_usd": 250e3,
    "years": 4,
    "utilisation": 0.8,
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
    own = {"node_usd", "years", "utilisation", "opex_share", "network_usd", "usd_per_kw"}
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


@pytest.mark.parametrize(
    ("ext", "message"),
    [
        ({"price": {"on_demand": RENT | {"usd": 0}}}, r"ext\.price\.on_demand\.usd: .*above 0"),
        ({"price": {"on_demand": {"usd": 2}}}, r"ext\.price\.on_demand\.source: .*missing"),
        (
            {"price": {"reserved": RENT | {"source": " "}}},
            r"ext\.price\.reserved\.source: .*who says so",
        ),
        ({"price": {"spot": RENT | {"date": "June"}}}, r"ext\.price\.spot\.date: .*2025-06"),
        ({"price": {"on_demand": RENT | {"date": "2025-13"}}}, r"date: .*2025-06"),
        ({"price": {"rented": RENT}}, r"ext\.price\.rented"),
        ({"price": {"own": OWN | {"utilisation": 80}}}, r"utilisation: .*write 0\.8 for 80 %"),
        ({"power": {"tdp": 700}}, r"ext\.power\.source: .*missing"),
        ({"power": POWER | {"idle": 90}}, r"ext\.power\.load: .*since idle is stated"),
        ({"power": POWER | {"load": 90}}, r"ext\.power\.idle: .*since load is stated"),
        ({"power": POWER | {"idle": 90, "load": 80}}, r"ext\.power\.load: .*at least idle=90 W"),
        (
            {"power": POWER | {"idle": 90, "load": 600, "spin": 610}},
            r"ext\.power\.load: .*at least spin=610 W",
        ),
    ],
)
def test_what_is_wrong_is_named(ext, message):
    with pytest.raises(calculon.SpecError, match=message):
        with_ext(**ext)


def test_they_are_described(capsys):
    assert main(["describe", "system"]) == 0
    page = capsys.readouterr().out
    for path in ("ext.power.tdp", "ext.price.on_demand.usd", "ext.price.own.node_usd"):
        assert path in page
