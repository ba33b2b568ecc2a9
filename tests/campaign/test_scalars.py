"""The numbers of a campaign by path, and campaigns with other values of them."""

import pytest

from calculon.campaign.read import read_campaign
from calculon.campaign.scalars import scalars_of, with_scalars

STATED = {
    "tokens": "1T",
    "evaluate_time": 30,
    "spikes": 0.5,
    "deadline": "60d",
    "budget_usd": "5M",
    "reliability": {"mtbf_processor": "20000h", "spares": 2, "silent": 1e-7, "elastic": True},
    "checkpoints": {"interval": "30min", "bandwidth": 50, "levels": 2},
    "fleet": {"price": 2.5, "pue": 1.2, "g_co2_per_kwh": "france", "price_kind": "spot"},
}
"""Fields of every kind, those that are no scalars, too."""


def test_values_are_those_of_the_file():
    found = scalars_of(read_campaign(STATED))
    values = {path: one.value for path, one in found.items()}
    assert values["reliability.mtbf_processor"] == 20_000
    assert values["checkpoints.bandwidth"] == pytest.approx(50)
    assert values["checkpoints.interval"] == 30 * 60
    assert values["fleet.price"] == 2.5
    assert values["spikes"] == 0.5
    assert (found["reliability.spares"].kind, values["reliability.spares"]) == (int, 2)
    assert found["reliability.mtbf_processor"].unit == "h"


def test_what_has_no_effect_is_none():
    """Neither limits, nor switches, nor what another field replaces, nor a time that never comes."""
    found = scalars_of(read_campaign(STATED))
    left_out = ("deadline", "budget_usd", "reliability.elastic", "checkpoints.bandwidth_per_node")
    assert not found.keys() & {*left_out, "tokens"}
    never = {"tokens": "1T", "reliability": {"mtbf_processor": "never"}}
    assert "reliability.mtbf_processor" not in scalars_of(read_campaign(never))
    assert "reliability.silent_detect" not in scalars_of(read_campaign(never))


def test_a_changed_campaign_is_that_of_a_changed_file():
    asked = read_campaign(STATED)
    for path, one in scalars_of(asked).items():
        value = one.value + 1 if one.kind is int else 1.5 * one.value
        if one.problem(value) is None:
            assert with_scalars(asked, {path: value}) == read_campaign(STATED, {path: value}), path
    both = {"reliability.restart": 100.0, "reliability.detect": 10.0, "spikes": 1.0}
    assert with_scalars(asked, both) == read_campaign(STATED, both)
