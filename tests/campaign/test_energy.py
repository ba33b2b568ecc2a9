"""Energy of a run: linear in powers and PUE. Published energy and carbon are in ``validation/footprints.csv``."""

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
    energy,
    power_draw,
    water,
)
from calculon.hardware.extension import Power

DATED = {"source": "a data sheet", "date": "2023"}
SHEET = Power(tdp=700, **DATED)
MEASURED = Power(tdp=700, idle=80, load=680, spin=300, overhead=1500, **DATED)
SHARES = st.floats(0, 1)
AMOUNTS = st.floats(0.1, 1e5)


def by_hand(power, utilization, processors, nodes, busy, waiting, spares, pue):
    """Return the kWh of a run whose powers were all measured."""
    polling = power.spin * (1 - utilization)
    watts = processors * (power.load * utilization + polling) * busy
    watts += processors * power.spin * waiting
    watts += spares * processors / nodes * power.idle * (busy + waiting)
    watts += (nodes + spares) * power.overhead * (busy + waiting)
    return watts / 1e3 * pue


@given(u=SHARES, busy=AMOUNTS, waiting=AMOUNTS, spares=st.integers(0, 9), pue=st.floats(1, 2))
def test_measured_powers(u, busy, waiting, spares, pue):
    found = energy(
        power_draw(MEASURED, u),
        64,
        8,
        busy_hours=busy,
        waiting_hours=waiting,
        spare_nodes=spares,
        pue=pue,
    )
    assert found.total == pytest.approx(by_hand(MEASURED, u, 64, 8, busy, waiting, spares, pue))
    assert found.power_draw.assumed == ()
    assert not found.power_draw.estimate


def test_where_only_the_data_sheet_is_known():
    found = energy(power_draw(SHEET), 16, 2, busy_hours=100.0, waiting_hours=10.0, pue=1.2)
    processors = 16 * 0.7 * (STEPPING_SHARE * 100 + WAITING_SHARE * 10)
    assert found.machines == pytest.approx(processors * (1 + OVERHEAD_SHARE))
    assert found.facility == pytest.approx(0.2 * found.machines)
    assert found.card == pytest.approx(16 * 0.7 * 110)
    assert found.power_draw.estimate
    assert found.power_draw.words.startswith("TDP, a data sheet, 2023; ")
    assert all(
        ASSUMED[one] in found.power_draw.words for one in ("stepping", "waiting", "overhead")
    )


def test_what_is_missing_beside_measurements_is_assumed():
    some = power_draw(Power(tdp=700, idle=80, load=680, **DATED), 0.5)
    assert some.assumed == ("spinning", "overhead")
    assert some.waiting == SPINNING_SHARE * 700
    assert some.stepping == pytest.approx((680 + SPINNING_SHARE * 700) / 2)
    hot = power_draw(Power(tdp=700, idle=80, load=200, **DATED))
    assert hot.waiting == 200  # waiting never takes more than work


def test_a_stated_tdp_counts_instead_of_all_figures():
    assert power_draw(MEASURED, tdp=500) == power_draw(None, tdp=500)
    assert power_draw(None) is None


def test_power_of_a_processor_with_its_share_of_the_node():
    assert power_draw(MEASURED).per_processor(64, 8) == 680 + 1500 / 8
    assert power_draw(SHEET).per_processor(64, 8) == STEPPING_SHARE * 700 * (1 + OVERHEAD_SHARE)


def test_the_rest_of_a_node_of_8_h100_as_measured():
    # Latif et al. 2024, arXiv:2412.08602: 8.4 kW at most; arXiv:2506.14551: 76 % of the rated 10.2 kW
    node = power_draw(SHEET).share * 8 * 700 + 8 * 700
    assert node == pytest.approx(0.76 * 10.2e3, rel=0.02)
    assert node < 8.4e3


def test_a_stated_share_of_the_rest_of_a_node_counts():
    some = power_draw(Power(tdp=1200, overhead_share=0.19, **DATED))
    assert some.per_processor(72, 1) == pytest.approx(STEPPING_SHARE * 1200 * 1.19)
    assert "overhead" not in some.assumed
    found = energy(some, 72, 1, busy_hours=10.0)
    assert found.nodes == pytest.approx(0.19 * found.stepping)
    rack = inputs.system("gb200_nvl72").ext.power
    assert rack.overhead_share < OVERHEAD_SHARE / 2  # cooled by liquid, and a CPU for 2


def test_water():
    assert water(1000.0, 1.8) == 1800
