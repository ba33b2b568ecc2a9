"""Uncertainty of predictions of measured rows, and the reasons why rows are not compared."""

import itertools

import pytest

from calculon.declarations.execution import Execution
from calculon.estimate.validated_runs import belief
from calculon.validate import error_summary as summary
from calculon.validate.row_bounds import bound_records
from tests.shipped_studies import compared

STUDIES = ("dgxc/llama4_maverick", "mlperf/llama31_8b", "pythia", "simumax", "xtuner")


@pytest.mark.parametrize("name", STUDIES)
def test_bounds_are_those_of_an_estimate_in_the_unit_of_the_value(name):
    result = compared(name, "corrected")
    found = result.own.prediction
    place = {row.number: i for i, row in enumerate(result.rows)}
    for one in result.own.comparisons:
        records = bound_records(result, one)
        for row, bounds, estimated in zip(one.rows, records, one.estimated.tolist(), strict=True):
            here = place[row.number]
            case = found.cases[here]
            execution = Execution(**case.execution | {"edition": "corrected"})
            stats = {key: values[here] for key, values in found.values.items()}
            wanted = belief(case.model, case.system, execution, stats)
            if one.quantity.is_step:
                scale = estimated / stats["total_time"]
                ends = [bounds["low"], bounds["high"]]
                assert ends == pytest.approx([wanted.low * scale, wanted.high * scale])
            else:
                assert (bounds["low"], bounds["high"]) == (None, None)
            assert bounds["fits"] == pytest.approx(wanted.memory.fits)


@pytest.mark.parametrize(
    ("name", "edition"), [("seqsel/tab5", "sc23"), ("serving/nim", "corrected")]
)
def test_the_published_edition_and_deployments_have_no_bounds(name, edition):
    found = compared(name, edition)
    for one in found.own.comparisons:
        records = bound_records(found, one)
        assert len(records) == len(one.rows)
        assert set(itertools.chain(*map(dict.values, records))) == {None}


@pytest.mark.parametrize("name", ["dgxc/llama31_8b", "mlperf/llama31_8b", "mosaic", "torchtitan"])
@pytest.mark.parametrize("edition", ["sc23", "corrected"])
def test_every_row_is_compared_or_skipped_with_a_reason(name, edition):
    result = compared(name, edition)
    held = {row.number for one in result.own.comparisons for row in one.rows}
    skipped = {row.number: reason for row, reason in result.skipped}
    assert all(skipped.values())
    assert not held & set(skipped)
    numbers = [row.number for row in result.rows] + [row.number for row, _ in result.left_out]
    assert held | set(skipped) == set(numbers)
    assert list(skipped) == sorted(skipped)


def test_json_says_why_a_row_is_skipped(result, content):
    content["exclude"] = [{"when": "batch == 8", "reason": "not known"}]
    table = "id,gpus,tp,batch,mode,seconds\na,8,8,4,full,1.42\nb,8,8,8,none,1.9\nc,8,8,4,none,\n"
    (study,) = summary.document([result(content, table)])["studies"]
    expected = [("b", "not known"), ("c", "no measured value")]
    assert [(one["row"], one["reason"]) for one in study["skipped"]] == expected
