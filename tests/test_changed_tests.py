"""Which tests a change selects: those that import what changed, through however many modules."""

import pytest

from scripts.changed_tests import PAGES, selected

CASES = {
    "nothing": (set(), set(), {PAGES}),
    "a page": ({"README.md"}, {PAGES}, {"tests/test_units.py"}),
    "a test": ({"tests/test_units.py"}, {"tests/test_units.py"}, {"tests/test_records.py", PAGES}),
    "helpers of tests": ({"tests/helpers.py"}, {"tests/test_estimate.py"}, {"tests/test_units.py"}),
    "settings of tests": (
        {"tests/apps/cli/conftest.py"},
        {"tests/apps/cli/test_main.py"},
        {"tests/test_units.py"},
    ),
    "a module": (
        {"calculon/hardware/curve.py"},
        {"tests/hardware/test_curve.py", PAGES},
        {"tests/test_units.py"},
    ),
    "a command": (
        {"calculon/apps/cli/commands/version.py"},
        {"tests/apps/cli/test_main.py", "tests/test_architecture.py"},
        {"tests/hardware/test_curve.py"},
    ),
    "a script": ({"scripts/rendering.py"}, {"tests/test_scripts.py"}, {"tests/test_units.py"}),
    "a data file": ({"systems/a100_80g.json"}, {"tests", "calculon"}, set()),
    "a file that is gone": (
        {"calculon/gone.py"},
        {"tests/test_architecture.py"},
        {"calculon/gone.py"},
    ),
}


@pytest.mark.parametrize(("changed", "among", "not_among"), CASES.values(), ids=CASES)
def test_a_change_selects_what_it_can_break(changed, among, not_among):
    found = selected(changed)
    assert among <= found
    assert not not_among & found
