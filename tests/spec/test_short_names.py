"""Short names mean fields and statistics that there are, and none of them two."""

from calculon.plan.plan import NAMES
from calculon.records import columns
from calculon.spec.axes import AXES
from calculon.spec.short_names import FIELDS, STATISTICS, field_name, field_value, short_of
from calculon.statistics import CorrectedStats

KNOWN = [one.name for one in columns(CorrectedStats)]


def test_all_of_them_mean_what_there_is_and_one_thing():
    assert {*FIELDS.values()} <= {*NAMES}
    assert {*STATISTICS.values()} <= {*KNOWN}
    assert not {*FIELDS} & {*STATISTICS}
    assert not ({*FIELDS} | {*STATISTICS}) & ({*NAMES} | {*KNOWN})


def test_every_axis_has_one():
    assert {axis.name: axis.degree for axis in AXES}.items() <= FIELDS.items()


def test_capitals_do_not_matter_and_the_way_back_leads_to_the_same():
    for short in FIELDS:
        assert field_name(short.upper()) == FIELDS[short]
        assert field_name(short_of(FIELDS[short])) == FIELDS[short]


def test_values_are_translated_behind_their_short_name_alone():
    assert field_value("recompute", "off") == "none"
    assert field_value("activation_recompute", "off") == "off"
