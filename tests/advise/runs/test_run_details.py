"""Money and energy of a run as plain data: their parts add up to its figures."""

import math

import calculon
from calculon.campaign.money import HOURS_PER_YEAR

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
PARTS = ("stepping", "waiting", "spares", "nodes", "facility")


def told(**options):
    run = calculon.campaign(*LLAMA, tokens="1T", **options)
    return run.to_dict(), run.figures


def test_money_adds_up_and_names_its_price():
    options = {"fleet__price": 2.0, "fleet__storage": 20.0, "experiments": 0.5}
    document, figures = told(**options)
    money = document["money"]
    assert math.isclose(money["run"], money["processors"] + money["storage"])
    assert math.isclose(money["run"], figures["usd"])
    assert math.isclose(money["processors"], 2.0 * figures["processor_hours"])
    assert math.isclose(money["experiments"], 0.5 * money["processors"])
    assert math.isclose(money["total"], money["run"] + money["experiments"])
    assert money["price"] == {"usd": 2.0, "kind": "given", "source": "", "date": ""}
    assert money["storage"] > 0


def test_a_contract_pays_from_a_share_of_the_year_that_is_the_ratio_of_the_prices():
    cloud = calculon.campaign(*LLAMA[:2], "azure_nd_h100_v5", tokens="1T")
    price, hours = cloud.system.ext.price, cloud.to_dict()["money"]["reserved_from_hours"]
    assert math.isclose(hours, HOURS_PER_YEAR * price.reserved.usd / price.on_demand.usd)
    assert told()[0]["money"]["reserved_from_hours"] is None  # no price of a contract is known


def test_energy_adds_up_with_the_convention_of_model_cards_beside():
    document, figures = told(fleet__pue=1.25, fleet__tdp=700, fleet__wue=2.0)
    energy = document["energy"]
    assert math.isclose(energy["total"], sum(energy[name] for name in PARTS))
    assert math.isclose(energy["total"], figures["mwh"])
    assert math.isclose(energy["facility"], 0.25 * (energy["total"] - energy["facility"]))
    assert math.isclose(energy["model_card"], 0.7 * figures["processor_hours"] / 1000)
    assert math.isclose(energy["water_litres"], 2000 * energy["total"] / 1.25)


def test_carbon_is_told_with_its_grid():
    document, figures = told(fleet__g_co2_per_kwh="france", fleet__g_co2_per_kwh_market=10)
    carbon = document["energy"]["carbon"]
    assert carbon["name"] == "france"
    assert carbon["source"]
    assert math.isclose(figures["t_co2"], figures["mwh"] * carbon["g_co2_per_kwh"] / 1000)
    assert math.isclose(document["energy"]["t_co2_market"], figures["mwh"] * 10 / 1000)
    assert told()[0]["energy"]["carbon"] is None


def test_spares_are_beside_the_nodes_of_the_job():
    document, figures = told(reliability__spares=3)
    nodes = document["nodes"]
    assert (nodes["job"] * nodes["processors"], nodes["spares"]) == (64, 3)
    assert nodes["spares_stated"]
    paid = (64 + 3 * nodes["processors"]) * figures["days"] * 24
    assert math.isclose(figures["processor_hours"], paid)
