"""Prices of the same processor across the catalog."""

from collections import defaultdict

from calculon import inputs
from calculon.campaign.catalog_prices import price_range, processor_of
from calculon.spec import catalog


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
