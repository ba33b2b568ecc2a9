"""Published figures beside those of a run: the difference in words, and each source once."""

import pytest

from calculon.documents.published_runs_section import published_section
from calculon.render.digits import Digits
from tests.documents.drawing import drawn, flat

HOURS = {
    "run": "A run",
    "num_procs": 256,
    "processor": "H100",
    "own_processor": "H100",
    "figure": "processor_hours",
    "per": 1e12,
    "published": 3e5,
    "published_is": "",
    "ours": 1e5,
    "configuration": "known",
    "source": "its card",
    "evidence": "",
    "assumed_from": False,
}
GOODPUT = HOURS | {"figure": "goodput", "per": None, "published": 0.9, "ours": 0.95}
ONE = ({"days": 10.0, "tokens": 1e12},)
RAMP = ({"days": 8.0, "tokens": 2e11}, {"days": 12.0, "tokens": 8e11})


def told(*rows, parts=ONE, width=80):
    text = drawn(published_section(rows, parts, Digits(0.1)), width=width)
    assert max(map(len, text.splitlines())) <= width
    return flat(text)


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "the published run takes 3 times the hours of ours", "not published"),
        ({"published": 5e4}, "ours takes 2 times the hours of the published run", ""),
        ({"published": 1.02e5}, "", "times"),
        ({"configuration": "unknown"}, "not published", "partly"),
        ({"configuration": "partly"}, "partly", "not published"),
    ],
)
def test_hours_are_told_as_a_ratio_with_what_their_source_leaves_open(changes, said, unsaid):
    text = told(HOURS | changes)
    assert said in text
    assert not unsaid or unsaid not in text


def test_hours_above_those_of_the_source_are_explained_by_a_ramp():
    row = HOURS | {"published": 6e4}
    # a fifth of the tokens takes 8 of 20 days: at the rate of the other part all take 15
    assert "ours would take 75,000 hours" in told(row, parts=RAMP)
    assert "would be" not in told(row)
    assert "would be" not in told(HOURS, parts=RAMP)


def test_each_source_is_told_once():
    assert told(HOURS, GOODPUT).count("its card") == 1
    assert "its card, recalled" in told(HOURS, GOODPUT | {"evidence": "recalled"})
