"""Spreads are read from a calibration; whatever else stands under its key is nobody's business."""

import math
import warnings

import pytest

from calculon import inputs
from calculon.declarations.decode import SpecWarning
from calculon.hardware.residuals import Spread
from tests.helpers import document

SPREAD = {"low": 0.9, "high": 1.2, "level": 0.8}


def system(calibration):
    return inputs.system(document("systems", "a100_80g") | {"calibration": calibration})


def of(*spreads, part="mem1"):
    return {"fits": [{"part": part, "spreads": list(spreads)}]}


def test_spreads_are_read_with_their_sizes():
    large = SPREAD | {"from": 1e6, "below": None, "rows": 3, "of": "measured / predicted"}
    small = SPREAD | {"from": 0, "below": 1e6}
    found = system(of(SPREAD, small, large)).calibration.spreads
    assert found == (
        Spread(part="mem1", low=0.9, high=1.2, level=0.8),
        Spread(part="mem1", low=0.9, high=1.2, level=0.8, end=1e6),
        Spread(part="mem1", low=0.9, high=1.2, level=0.8, start=1e6),
    )
    assert [one.operations for one in found] == ["all", "small", "large"]


def test_foreign_content_is_skipped_silently():
    for calibration in [
        None,
        "by hand",
        3,
        [],
        {},
        {"fits": ["one", 2]},
        {"fits": [{"part": 3, "spreads": [SPREAD]}]},
        {"fits": [{"part": "mem1", "spreads": ["wide"]}]},
        {"fits": {"part": "mem1", "spreads": [SPREAD]}},
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert system(calibration).calibration.spreads == ()


def test_a_malformed_spread_is_worth_a_warning_and_left_out():
    for change, words in [
        ({"low": "0.9"}, "low: expected a number above 0, found '0.9'"),
        ({"low": 0}, "low: expected a number above 0, found 0"),
        ({"high": None}, "high: expected a number above 0, found null"),
        ({"high": math.nan}, "high: expected a number above 0, found nan"),
        ({"high": 0.5}, r"low: expected at most high \(0.5\), found 0.9"),
        ({"level": 1}, "level: expected a number above 0 and below 1, found 1"),
        ({"level": 90}, "level: expected a number above 0 and below 1, found 90"),
        ({"below": [1]}, r"below: expected a number of at least 0, found \[1\]"),
        ({"from": -1}, "from: expected a number of at least 0, found -1"),
    ]:
        place = r"system: calibration.fits\[0\].spreads\[1\]."
        with pytest.warns(SpecWarning, match=f"{place}{words}.*; ignored"):
            found = system(of(SPREAD, SPREAD | change)).calibration
        assert len(found.spreads) == 1, change


def test_the_published_system_keeps_its_calibration():
    raw = document("systems", "h100_80g_sxm") | {"calibration": of(SPREAD)}
    found = inputs.system(raw)
    assert found.published is not found
    assert found.published.calibration == found.calibration
