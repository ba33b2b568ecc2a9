"""Money of a run: linear in prices, and the published costs of trainings."""

from math import inf

import numpy as np
import pytest

from calculon.base.errors import SpecError
from calculon.campaign.money import (
    GIVEN,
    HOURS_PER_YEAR,
    Quote,
    break_even_hours,
    contract_year,
    money,
    own_price,
    own_year,
    quote,
    storage,
    storage_quote,
)
from calculon.hardware.extension import Own, Price, Rent, Spot, Storage

DATED = {"source": "an offer", "date": "2025"}
OWN = Own(
    node_usd=250e3,
    network_usd=50e3,
    years=4,
    utilization=0.8,
    opex_share=0.1,
    usd_per_kw=1500,
    **DATED,
)


def test_deepseek_v3():
    # arXiv:2412.19437, table 1: 2,664 K hours of pre-training, 119 K of extension, 5 K after it, at 2 USD.
    hours = np.array([2664e3, 119e3, 5e3])
    h800 = Rent(usd=2.0, source="DeepSeek-V3, arXiv:2412.19437, section 1", date="2024-12")
    found = money(hours, quote(Price(on_demand=h800)))
    assert found.total.sum() == pytest.approx(5.576e6, rel=5e-3)
    assert found.quote.words == "on demand, DeepSeek-V3, arXiv:2412.19437, section 1, 2024-12, old"


def test_storage_is_paid_by_the_month():
    month = HOURS_PER_YEAR / 24 / 12
    assert storage(2.3e12, 3, month, 20.0) == pytest.approx(2.3 * 3 * 20)
    assert storage(2.3e12, 3, 2 * month, 20.0) == pytest.approx(2 * 2.3 * 3 * 20)


def test_the_price_of_storage_goes_with_the_money():
    shelf = Storage(usd=23.0, **DATED)
    found = storage_quote(Price(storage=shelf))
    assert (found.usd, found.words) == (23.0, "storage, an offer, 2025, old")
    assert storage_quote(Price(storage=shelf), given=10.0) == Quote(usd=10.0, kind=GIVEN)
    assert storage_quote(None) is storage_quote(Price()) is None
    price = Quote(usd=2.0, kind=GIVEN)
    assert money(1.0, price, stored=5.0, storage_quote=found).storage_quote is found


def test_what_one_owns_costs_its_life_over_its_hours():
    price = own_price(OWN, 8, power_kw=1.0, usd_per_kwh=0.1, pue=1.2, provisioned_kw=1.3)
    used = 8 * OWN.years * HOURS_PER_YEAR * OWN.utilization
    whole_life = {
        "capital": 300e3,
        "upkeep": 0.1 * 300e3 * OWN.years,
        "facility": 1500 * 1.3 * 8 * OWN.years,
        "electricity": 1.0 * 1.2 * 0.1 * used,
    }
    assert {part: getattr(price, part) * used for part in whole_life} == pytest.approx(whole_life)
    assert price.total * used == pytest.approx(sum(whole_life.values()))


def test_processors_of_a_node_that_is_stated_count():
    parts = {"node_usd": 3e6, "years": 5, "utilization": 1, **DATED}
    assert own_price(Own(**parts, processors=72), 8).total == own_price(Own(**parts), 72).total


def test_break_even_of_a_contract_and_of_a_purchase():
    assert break_even_hours(4.0, contract_year(2.0)) == HOURS_PER_YEAR / 2
    price = own_price(OWN, 8, power_kw=1.0, usd_per_kwh=0.1)
    hours = break_even_hours(4.0, own_year(OWN, price), price.electricity)
    fixed = (300e3 / OWN.years + 0.1 * 300e3) / 8 + 1500
    assert 4.0 * hours == pytest.approx(fixed + price.electricity * hours)
    assert break_even_hours(0.05, 1.0, 0.1) == inf
    np.testing.assert_array_equal(break_even_hours(np.array([0.1, 0.6]), 1.0, 0.1), [inf, 1 / 0.5])


def test_the_price_that_counts():
    rent_, spot = Rent(usd=3.0, **DATED), Spot(usd=1.0, mtbf_hours=500, **DATED)
    price = Price(on_demand=rent_, spot=spot, own=OWN)
    assert quote(price).usd == 3.0
    assert (quote(price, "spot").kind, quote(price, "spot").mtbf_hours) == ("spot", 500)
    assert quote(price, given=2.5) == Quote(usd=2.5, kind="given")
    assert quote(None) is None
    assert quote(Price(own=OWN)) is None
    owned = own_price(OWN, 8)
    assert (
        quote(Price(own=OWN), owned=owned).usd
        == quote(price, "own", owned=owned).usd
        == owned.total
    )
    with pytest.raises(
        SpecError, match="reserved: expected a price of this kind, found on_demand, spot, own"
    ):
        quote(price, "reserved")
    with pytest.raises(SpecError, match="found no price"):
        quote(None, "spot")
    with pytest.raises(SpecError, match=r"fleet\.usd_per_kwh: expected the price of electricity"):
        quote(price, "own")


def test_a_spot_price_needs_the_time_that_one_has_it():
    with pytest.raises(SpecError, match=r"spot\.mtbf_hours: expected the mean hours"):
        quote(Price(spot=Spot(usd=1.0, **DATED)))
