"""Energy and carbon of a run: linear in powers and PUE, and those of published cards."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calculon import inputs
from calculon.campaign.energy import (
    ASSUMED,
    OVERHEAD_SHARE,
    SPINNING_SHARE,
    STEPPING_SHARE,
    WAITING_SHARE,
    carbon,
    card_energy,
    draw,
    energy,
    water,
)
from calculon.hardware.power import Power
from tests.cases import for_each

DATED = {"source": "a data sheet", "date": "2023"}
SHEET = Power(tdp=700, **DATED)
MEASURED = Power(tdp=700, idle=80, load=680, spin=300, overhead=1500, **DATED)
A100 = 400.0  # W
ENOUGH = 5e-3
SHARES = st.floats(0, 1)
AMOUNTS = st.floats(0.1, 1e5)


def test_bloom():
    # arXiv:2211.02001, section 4.2: 1,082,990 hours of A100 at their TDP, 57 g/kWh.
    kwh = card_energy(1_082_990, A100)
    assert kwh == pytest.approx(433_196, rel=ENOUGH)
    assert carbon(433_196, 57) == pytest.approx(24.69, rel=ENOUGH)


@for_each(
    ("hours", "mwh", "tonnes"),
    [(82_432, 36, 14), (135_168, 59, 23), (530_432, 233, 90), (1_022_362, 449, 173)],
)
def test_llama_1(hours, mwh, tonnes):
    # arXiv:2302.13971, table 15: 400 W, PUE of 1.1, 0.385 kg/kWh; printed without decimals.
    kwh = card_energy(hours, A100, 1.1)
    rounding = 0.51 if mwh < 400 else 0.0
    assert kwh / 1e3 == pytest.approx(mwh, rel=ENOUGH, abs=rounding)
    assert carbon(kwh, 385) == pytest.approx(tonnes, rel=ENOUGH, abs=rounding)


@for_each(
    ("hours", "watts", "tonnes"),
    [
        (184_320, 400, 31.22),
        (368_640, 400, 62.44),
        (1_038_336, 350, 153.90),
        (1_720_320, 400, 291.42),
    ],
)
def test_llama_2(hours, watts, tonnes):
    # arXiv:2307.09288, table 2, without PUE: 0.4235 kg/kWh in each row.
    assert carbon(card_energy(hours, watts), 423.5) == pytest.approx(tonnes, rel=ENOUGH)


def test_gpt_3():
    # Patterson et al., arXiv:2104.10350, table 4: 3.14e23 FLOP at 24.6 TFLOP/s, 330 W a processor, PUE 1.10.
    hours = 3.14e23 / 24.6e12 / 3600
    assert hours / 10_000 / 24 == pytest.approx(14.8, rel=0.02)
    assert card_energy(hours, 330, 1.1) / 1e3 == pytest.approx(1287, rel=0.02)
    assert carbon(1287e3, 429) == pytest.approx(552, rel=0.02)


def by_hand(power, utilisation, processors, nodes, busy, waiting, spares, pue):
    """Return the kWh of a run whose powers were all measured."""
    polling = power.spin * (1 - utilisation)
    watts = processors * (power.load * utilisation + polling) * busy
    watts += processors * power.spin * waiting
    watts += spares * processors / nodes * power.idle * (busy + waiting)
    watts += (nodes + spares) * power.overhead * (busy + waiting)
    return watts / 1e3 * pue


@given(u=SHARES, busy=AMOUNTS, waiting=AMOUNTS, spares=st.integers(0, 9), pue=st.floats(1, 2))
def test_measured_powers(u, busy, waiting, spares, pue):
    found = energy(
        draw(MEASURED, u),
        64,
        8,
        busy_hours=busy,
        waiting_hours=waiting,
        spare_nodes=spares,
        pue=pue,
    )
    assert found.total == pytest.approx(by_hand(MEASURED, u, 64, 8, busy, waiting, spares, pue))
    assert found.draw.assumed == ()
    assert not found.draw.estimate


def test_where_only_the_data_sheet_is_known():
    found = energy(draw(SHEET), 16, 2, busy_hours=100.0, waiting_hours=10.0, pue=1.2)
    processors = 16 * 0.7 * (STEPPING_SHARE * 100 + WAITING_SHARE * 10)
    assert found.machines == pytest.approx(processors * (1 + OVERHEAD_SHARE))
    assert found.facility == pytest.approx(0.2 * found.machines)
    assert found.card == pytest.approx(16 * 0.7 * 110)
    assert found.draw.estimate
    assert found.draw.words.startswith("TDP, a data sheet, 2023; ")
    assert all(ASSUMED[one] in found.draw.words for one in ("stepping", "waiting", "overhead"))


def test_what_is_missing_beside_measurements_is_assumed():
    some = draw(Power(tdp=700, idle=80, load=680, **DATED), 0.5)
    assert some.assumed == ("spinning", "overhead")
    assert some.waiting == SPINNING_SHARE * 700
    assert some.stepping == pytest.approx((680 + SPINNING_SHARE * 700) / 2)
    hot = draw(Power(tdp=700, idle=80, load=200, **DATED))
    assert hot.waiting == 200  # waiting never takes more than work


def test_a_stated_tdp_counts_instead_of_all_figures():
    assert draw(MEASURED, tdp=500) == draw(None, tdp=500)
    assert draw(None) is None


def test_power_of_a_processor_with_its_share_of_the_node():
    assert draw(MEASURED).per_processor(64, 8) == 680 + 1500 / 8
    assert draw(SHEET).per_processor(64, 8) == STEPPING_SHARE * 700 * (1 + OVERHEAD_SHARE)


def test_the_rest_of_a_node_of_8_h100_as_measured():
    # Latif et al. 2024, arXiv:2412.08602: 8.4 kW at most; arXiv:2506.14551: 76 % of the rated 10.2 kW
    node = draw(SHEET).share * 8 * 700 + 8 * 700
    assert node == pytest.approx(0.76 * 10.2e3, rel=0.02)
    assert node < 8.4e3


def test_a_stated_share_of_the_rest_of_a_node_counts():
    some = draw(Power(tdp=1200, overhead_share=0.19, **DATED))
    assert some.per_processor(72, 1) == pytest.approx(STEPPING_SHARE * 1200 * 1.19)
    assert "overhead" not in some.assumed
    found = energy(some, 72, 1, busy_hours=10.0)
    assert found.nodes == pytest.approx(0.19 * found.stepping)
    rack = inputs.system("gb200_nvl72").ext.power
    assert rack.overhead_share < OVERHEAD_SHARE / 2  # cooled by liquid, and a CPU for 2


def test_water():
    assert water(1000.0, 1.8) == 1800
