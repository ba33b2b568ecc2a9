"""Rows of several editions, put together."""

import pytest

from calculon.validate import error_summary as summary

ROWS = [
    {"edition": "old", "study": "a", "quantity": "time", "n": 2, "mean": 5.0},
    {"edition": "old", "study": "a", "quantity": "memory", "n": 2, "mean": 7.0},
    {"edition": "new", "study": "a", "quantity": "time", "n": 2, "mean": 4.0},
    {"edition": "new", "study": "a", "quantity": "fresh", "n": 2, "mean": 1.0},
]
NAMES = ("study", "quantity")


def test_rows_beside_each_other_have_the_figures_of_every_edition():
    found = summary.side_by_side(ROWS, ("old", "new"), NAMES, ("mean",))
    picked = [(row["quantity"], row["old mean"], row["new mean"], row["n"]) for row in found]
    assert picked == [("time", 5.0, 4.0, 2), ("memory", 7.0, None, 2), ("fresh", None, 1.0, 2)]


def test_rows_together_keep_their_order_otherwise():
    found = [(row["quantity"], row["edition"]) for row in summary.together(ROWS, NAMES)]
    assert found == [("time", "old"), ("time", "new"), ("memory", "old"), ("fresh", "new")]


def test_totals_are_those_of_each_edition(result, content):
    results = [result(content, edition=edition) for edition in ("sc23", "corrected")]
    found = {row["edition"]: row for row in summary.totals(results)}
    assert summary.editions(results) == ("sc23", "corrected") == tuple(found)
    for one in results:
        score = one.own.comparisons[0].score
        assert found[one.edition]["mean"] == pytest.approx(score.mean)
        assert found[one.edition]["n"] == score.n


def test_what_does_not_depend_on_the_edition_is_said_once(result, content):
    content["choices"] = {"mode": "full"}
    content["quantities"][0]["cause"] = "the weather"
    results = [result(content, edition=edition) for edition in ("sc23", "corrected")]
    for some in (results, results[:1]):
        assert [row["choice"] for row in summary.choices(some)] == ["full"]
        assert [row["cause"] for row in summary.causes(some)] == ["the weather"]
        assert [row["rows"] for row in summary.about(some)] == [2]
