"""What readers of all dialects share: values that are open, and values in messages."""

import pytest

from calculon.base.errors import SpecError
from calculon.launch.dialect import Parsed, Reading, Setting, Unresolved, plain
from calculon.launch.dialects import FORMATS
from calculon.launch.rows import no_settings
from calculon.launch.texts.name_patterns import names_in


def test_a_switch_before_what_is_open_is_on_and_told():
    reading = Reading(Parsed("x", {"clip": Setting("clip", Unresolved("$MORE", "MORE"))}))
    assert reading.switch("clip") is True
    assert reading.notes == ["$MORE may hold further settings"]
    conditional = Unresolved("where $A", "A", conditional=True)
    with pytest.raises(SpecError, match="where"):
        Reading(Parsed("x", {"clip": Setting("clip", conditional)})).switch("clip")


def test_values_are_shown_as_a_message_has_them():
    rows = [(3, "3"), (True, "true"), ("a b", "a b"), ([1, "x"], "1 x"), (Unresolved("$A"), "$A")]
    assert [plain(value) for value, _ in rows] == [text for _, text in rows]


def test_every_row_that_reads_settings_into_fields_writes_them():
    read_only = [
        f"{name}: {' '.join(row.fields)}"
        for name, dialect in FORMATS.items()
        for row in dialect.rows
        if row.subject == dialect.subject
        and row.fields
        and row.settings
        and row.write is no_settings
    ]
    assert read_only == []


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"megatron-bridge", "nemo"}))
def test_no_setting_that_a_row_reads_is_also_listed_as_ignored(name):
    """Megatron-Bridge and NeMo share patterns; rows of one of them read some of these."""
    dialect = FORMATS[name]
    listed = {*names_in(" ".join((dialect.no_effect, *dialect.not_modelled.values())))}
    assert listed & {setting for row in dialect.rows for setting in row.settings} == set()
