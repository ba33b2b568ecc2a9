"""Every reference result, one execution at a time and in tables."""

import re
from itertools import groupby

import numpy as np
import pytest

import calculon
from tests.draws import some
from tests.helpers import (
    NAMES,
    bits,
    differences,
    reference_cases,
    reference_system,
    table_bits,
)

REASONS = {
    r"Network tier\d isn't big enough": "network_size",
    r"Network tier\d isn't fully used": "network_filled",
    r"Offloading requires each processor to handle at least 3 blocks": "offload_blocks",
    r"Pipeline interleaving must be less than or equal": "interleaving_size",
    r"Pipeline interleaving must be a factor": "interleaving_split",
    r"Mem tier1 needs": "mem1_capacity",
    r"Mem tier2 needs": "mem2_capacity",
    r"AssertionError: We should split batch_seq=": "tokens_split",
    r"AssertionError: Bad pipeline interleaving": "interleaving_needs_pipeline",
}
"""The reason of ours for each reason of the published tool."""

ALONE = 1
"""Executions of each model on each system that are also estimated one at a time."""
EACH = 12
"""Executions of each kind of failure that are estimated one at a time."""

PREFIXES = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}


def _key(case):
    return case["model"], case["system"]


GROUPS = {key: list(g) for key, g in groupby(sorted(reference_cases("executions"), key=_key), _key)}


@pytest.fixture(params=some(GROUPS, 32), ids=" on ".join)
def group(request):
    """All cases of one model on one system, in the order of the file."""
    return GROUPS[request.param], reference_system(request.param[1])


def _reason(case):
    return next(ours for theirs, ours in REASONS.items() if re.match(theirs, case["reason"]))


def _sizes(text):
    """Read the sizes in a message, in bytes."""
    found = re.findall(r"([\d.]+) ([KMGTPE]?i?)B", text)
    return [float(number) * PREFIXES[prefix if prefix != "i" else ""] for number, prefix in found]


def test_there_are_all_outcomes_of_the_published_tool():
    outcomes = [case["outcome"] for case in reference_cases("executions")]
    counts = {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
    assert counts == {"ok": 2400, "infeasible": 512, "rejected": 88}


def test_rows_of_a_table_meet_the_reference_and_are_what_executions_have_alone(group):
    cases, system = group
    model = calculon.inputs.model(cases[0]["application"])
    table = calculon.evaluate(
        model, system, calculon.Plan.from_records(case["execution"] for case in cases)
    )
    rows = table_bits(table)
    assert table.names == NAMES
    feasible = [i for i, case in enumerate(cases) if case["outcome"] == "ok"]
    for i, case in enumerate(cases):
        values = rows[i].view(float)
        if i not in feasible:
            assert table.reason[i] == _reason(case)
            assert np.isnan(values).all()
            continue
        assert table.reason[i] == ""
        found = [None if value != value else value for value in values.tolist()]  # noqa: PLR0124
        assert differences(dict(zip(NAMES, found, strict=True)), case["stats"]) == []
    for i in some(feasible, ALONE):
        alone = calculon.estimate(model, cases[i]["execution"], system).stats
        assert (rows[i] == bits(alone)).all()


def _failures(outcome):
    cases = [case for case in reference_cases("executions") if case["outcome"] == outcome]
    kinds = {_reason(case) for case in cases}
    return pytest.mark.parametrize(
        "cases",
        [pytest.param([c for c in cases if _reason(c) == kind], id=kind) for kind in sorted(kinds)],
    )


@_failures("infeasible")
def test_what_the_published_tool_cannot_run_is_infeasible_for_the_same_reason(cases):
    for case in some(cases, EACH):
        with pytest.raises(calculon.Infeasible) as error:
            calculon.estimate(
                case["application"], case["execution"], reference_system(case["system"])
            )
        assert error.value.reason == _reason(case)
        if "Mem tier" in case["reason"]:
            needed, there, missing = _sizes(str(error.value))
            assert [needed, there] == pytest.approx(_sizes(case["reason"]), rel=6e-3)
            assert missing == pytest.approx(needed - there, rel=0.02, abs=0.01 * 2**30)


@_failures("rejected")
def test_what_the_published_tool_rejects_is_a_malformed_request(cases):
    for case in some(cases, EACH):
        with pytest.raises(calculon.SpecError) as error:
            calculon.estimate(
                case["application"], case["execution"], reference_system(case["system"])
            )
        field = error.value.field
        assert error.value.found == str(case["execution"][field])
        numbers = re.findall(r"=(\d+)|between (\d+)", case["reason"])
        assert field == (
            "tensor_par" if _reason(case) == "tokens_split" else "pipeline_interleaving"
        )
        if field == "tensor_par":  # both numbers of the published message are in ours
            (tokens, _), (_, degree) = numbers
            assert error.value.found == degree
            assert error.value.expected.endswith(f"= {tokens}")
