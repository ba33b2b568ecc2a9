"""The page of a whole run says what its plain data say, within the width that it has."""

import re

import pytest

import calculon
from calculon.base.records import columns
from calculon.declarations.run_figures import DaysByUse
from calculon.documents.campaign_page import campaign_page
from calculon.documents.campaign_sections import USES
from calculon.documents.campaign_words import span
from calculon.render.document import Document
from calculon.render.texts import percent
from tests.documents.drawing import drawn, flat
from tests.store import cache_by_repr

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")
RAMP = [{"from": 0, "batch": 64}, {"from": "400G", "batch": 512}]


@cache_by_repr
def run(**options):
    return calculon.campaign(*LLAMA, {"tokens": "1T"}, **options)


def page(**options) -> Document:
    return campaign_page(run(**options))


def test_no_line_is_wider_than_the_page():
    stated = {"fleet__g_co2_per_kwh": "france", "fleet__pue": 1.2, "fleet__storage": 20.0}
    shown = page(**stated, batch_ramp=RAMP)
    for width in (80, 100, 160):
        text = drawn(shown, width=width)
        assert max(map(len, text.splitlines())) <= width
        assert not any(words in text for words in ("Not known", "no PUE", "not counted"))
        assert "t CO2" in text


def test_every_use_of_days_has_words():
    assert [f"{name}_days" for name in USES] == [one.name for one in columns(DaysByUse)]


def test_days_by_use_are_told_with_their_shares():
    figures = run().figures
    text = flat(drawn(page()))
    for name, (words, _) in USES.items():
        days = figures[f"{name}_days"]
        row = f"{words} {span(days, figures['days'])} {percent(days / figures['days'])}"
        assert (row in text) is (days > 0)


def test_a_ramp_is_told_against_its_share_of_the_tokens():
    one, other = run(batch_ramp=RAMP).parts
    more = one.days - one.segment.tokens * other.days / other.segment.tokens
    assert more > 0
    text = flat(drawn(page(batch_ramp=RAMP)))
    days = one.days + other.days
    assert (
        f"{percent(one.days / days)} of the time: {span(more, days)} more than at the rate of the longest"
        in text
    )


def test_parts_are_told_together_where_there_are_many():
    ramp = [{"from": 1e9 * i, "batch": 64 * min(8, 1 + i)} for i in range(9)]
    parts = run(batch_ramp=ramp).parts
    assert len(parts) == 9
    text = flat(drawn(page(batch_ramp=ramp)))
    steps = sum(one.steps for one in parts[:-1])
    assert f"64 to 512 8,192 {steps:,.0f} " in text


def test_limits_inside_of_the_interval_say_so():
    low, high = run().days_between
    assert low < 20 < high
    days = run().figures["days"]

    def said(deadline):
        return flat(drawn(page(deadline=f"{deadline}d")))

    missed = said(high - 2)
    assert "The slow end of the interval misses it by 2 d." in missed
    assert "not for the failure rate" in missed
    assert "The fast end of the interval meets it" in said((days + low) / 2)
    assert "end of the interval" not in said(2 * high)


def test_short_runs_are_told_in_hours():
    text = drawn(page(tokens="1G"))
    assert re.search(r"^  hours +\d", text, re.MULTILINE)
    assert not re.search(r"^  days ", text, re.MULTILINE)


SAVED_BY_OTHERS = "of an asynchronous save"


@pytest.mark.parametrize(
    ("checkpoints", "said"),
    [
        ({}, "gives the shortest run"),
        ({"checkpoints__interval": "1h"}, "as stated"),
        ({"checkpoints__bandwidth": 0.01}, "storage of 0.01 GB/s limits it"),
        ({"checkpoints__levels": 2}, "to the memory of another node every"),
        ({"tokens": "1G"}, "the run ends before another"),
        ({"checkpoints__mode": "sync"}, SAVED_BY_OTHERS),
        ({"checkpoints__mode": "sync", "checkpoints__pause": 5.0}, "GB/s in total"),
    ],
)
def test_checkpoints_say_why_they_are_so_far_apart_and_what_a_wait_for_one_has_in_it(
    checkpoints, said
):
    text = flat(drawn(page(**checkpoints), width=140))
    assert said in text
    assert (SAVED_BY_OTHERS in text) is (said == SAVED_BY_OTHERS)


def test_defaults_are_told_with_their_sources_unless_they_are_stated():
    document = run().to_dict()
    text = flat(drawn(page(), width=160))
    for one in document["assumed"]:
        assert (one["field"] in text) is one["counts"]
        if one["counts"]:
            assert one["source"] in text
    stated = flat(drawn(page(reliability__mtbf_processor="50000h"), width=160))
    assert "reliability.mtbf_processor" not in stated
    assert stated.count("419 interruptions") == 0
