"""Limits of a run: what they bound, and by how much it misses them."""

import math

import pytest

from calculon.base.errors import SpecError
from calculon.campaign.limits import LIMITED, limits
from calculon.campaign.read import read_campaign

FIGURES = {"days": 70.0, "usd": 4e6, "mwh": 900.0}


def test_each_limit_bounds_its_figure_in_the_unit_of_its_field():
    asked = read_campaign({"tokens": "1T", "deadline": "60d", "budget_usd": "5M", "budget_mwh": 1})
    found = {one.field: one for one in limits(asked, FIGURES)}
    assert {name: one.figure for name, one in found.items()} == LIMITED
    assert {name: one.unit for name, one in found.items()} == {
        "deadline": "d",
        "budget_usd": "USD",
        "budget_mwh": "MWh",
    }
    assert math.isclose(found["deadline"].over, 10.0)
    assert {name: one.met for name, one in found.items()} == {
        "deadline": False,
        "budget_usd": True,
        "budget_mwh": False,
    }


def test_without_limits_there_is_nothing_to_miss():
    assert limits(read_campaign({"tokens": "1T"}), FIGURES) == ()


@pytest.mark.parametrize(
    ("field", "hint"), [("budget_usd", "--price"), ("budget_mwh", "fleet.tdp")]
)
def test_a_limit_of_what_is_not_known_is_refused(field, hint):
    asked = read_campaign({"tokens": "1T", field: 5})
    with pytest.raises(SpecError) as caught:
        limits(asked, FIGURES | {LIMITED[field]: None})
    assert caught.value.field == field
    assert hint in str(caught.value)
