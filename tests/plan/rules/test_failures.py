"""All rules that one execution breaks: the first is the one that an estimate raises, and none is left out."""

from itertools import combinations
from random import Random

import pytest

import calculon
from calculon import inputs
from calculon.plan.rules.failures import failures
from tests.draws import SEED, draws
from tests.helpers import document
from tests.plan.rules.test_all_rules import (
    BASE,
    INFEASIBLE,
    MALFORMED,
    MODEL,
    SHAPES,
    SYSTEM,
    SYSTEMS,
)

CASES = {**MALFORMED, **INFEASIBLE}


def _failures(changes, base=BASE):
    return failures(inputs.model(MODEL), inputs.execution(base | changes), SYSTEM)


def test_what_breaks_no_rule_has_none():
    assert _failures({}) == ()


def test_each_of_several_independent_ones_is_named():
    changes = {"num_procs": 48, "tensor_par": 12, "batch_size": 33}
    found = {one.reason: one for one in _failures(changes | {"pipeline_interleaving": 4})}
    assert {"batch_split", "interleaving_split", "attn_heads_split"} <= {*found}
    assert "pipeline_interleaving=4" in found["interleaving_split"].message
    assert found["interleaving_split"].field == ""
    assert found["interleaving_split"].to_dict()["fields"] == ["pipeline_interleaving"]
    assert found["batch_split"].message.endswith("found 33")
    assert "microbatch_split" not in found  # which has no meaning before


def test_what_breaks_a_rule_twice_is_told_twice():
    execution = document("examples", "llama3-8B_h100x64")
    changes = {"pp_schedule": "gpipe", "tensor_par_overlap": "ring", "pp_layout": "balanced"}
    found = _failures(changes, base=execution)
    options = [one.field for one in found if one.reason == "framework_option"]
    limits = [one.field for one in found if one.reason == "framework_limit"]
    assert sorted(options) == ["pp_schedule", "tensor_par_overlap"]
    assert limits == ["pp_layout"]


def test_pairs_of_broken_rules_are_told_without_an_error():
    """What the explanations of later rules take for granted may not hold; the first never is in doubt."""
    plain = sorted({*CASES} - {*SHAPES} - {*SYSTEMS})
    pairs = Random(SEED).sample([*combinations(plain, 2)], draws(40))
    for pair in pairs:
        changes = CASES[pair[0]][0] | CASES[pair[1]][0]
        try:
            execution = inputs.execution(BASE | changes)
        except calculon.SpecError:
            continue
        found = failures(inputs.model(MODEL), execution, SYSTEM)
        with pytest.raises((calculon.SpecError, calculon.Infeasible)) as error:
            calculon.estimate(MODEL, execution, SYSTEM)
        assert str(found[0]) in str(error.value)
        assert len({str(one) for one in found}) == len(found)
