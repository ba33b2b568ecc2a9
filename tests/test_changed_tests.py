"""Which tests a change selects: those that import what changed, through however many modules."""

import pytest

from scripts.changed_tests import (
    PAGES,
    SOURCE_READERS,
    now,
    same_code,
    seconds_of,
    selected,
    within,
)

NETWORK = "tests/hardware/test_network.py"

CASES = {
    "nothing": (set(), set(), {PAGES}),
    "a test": ({"tests/test_units.py"}, {"tests/test_units.py"}, {"tests/test_records.py", PAGES}),
    "settings of tests": (
        {"tests/cli/conftest.py"},
        {"tests/cli/test_main.py"},
        {"tests/test_units.py"},
    ),
    "a module": (
        {"calculon/hardware/network.py"},
        {NETWORK, PAGES},
        {"tests/test_units.py"},
    ),
    "a module behind a public name": (
        {"calculon/advise/why.py"},
        {"tests/advise/test_why.py", "tests/cli/test_why.py"},
        {NETWORK, "tests/search/test_override_checks.py"},
    ),
    "a script": ({"scripts/rendering.py"}, {"tests/test_scripts.py"}, {"tests/test_units.py"}),
    "a system": (
        {"systems/a100_80g.json"},
        {NETWORK, "tests/declarations/test_catalog.py"},
        {"tests", "tests/search/test_driver.py"},
    ),
    "a table next to a module": (
        {"calculon/launch/megatron/megatron_requirements.csv"},
        {"tests/launch/megatron/test_megatron_requirements.py"},
        {"tests", "tests/test_units.py"},
    ),
    "the list of times": ({"tests/times.txt"}, {"tests/test_mutants.py"}, {"tests"}),
    "requirements": ({"pyproject.toml"}, {"tests", "calculon"}, set()),
    "a file that is gone": (
        {"calculon/gone.py"},
        {"tests/test_architecture.py"},
        {"calculon/gone.py"},
    ),
}


@pytest.mark.parametrize(("changed", "among", "not_among"), CASES.values(), ids=CASES)
def test_a_change_selects_what_it_can_break(changed, among, not_among):
    found = selected(changed, before=lambda path: "")
    assert among <= found.keys()
    assert not not_among & found.keys()


def test_a_change_of_wording_selects_only_tests_that_read_the_source():
    path = "calculon/cost/stage.py"
    reworded = '"""Reworded."""\n' + now(path).split("\n", 1)[1] + "\n# A comment.\n"
    assert selected({path}, before=lambda path: reworded).keys() == set(SOURCE_READERS)


def test_of_many_tests_the_nearest_are_chosen_within_the_time():
    found = selected({"calculon/cost/stage.py"}, before=lambda path: "")
    nearest = within(sorted(found, key=found.__getitem__), 60.0)
    assert 5 < len(nearest) < len(found)
    assert sum(map(seconds_of, nearest)) <= 60.0
    assert "tests/cost/test_stage_memory.py" in nearest
    assert within(["tests/search", "tests/test_units.py"], 1.0) == ["tests/search"]


@pytest.mark.parametrize(
    ("new", "same"),
    [
        ('"""Other."""\n\n\ndef f(x):\n    return x + 1  # why\n', True),
        ("def f(x):\n    return x + 2\n", False),
        ("def f(y):\n    return y + 1\n", False),
        ("", False),
    ],
)
def test_comments_and_docstrings_are_not_code(new, same):
    assert same_code('"""Old."""\ndef f(x):\n    """Add."""\n    return x + 1\n', new) is same
