"""All rules that one execution breaks: the first is the one that an estimate raises, and none is left out."""

from itertools import combinations
from random import Random

import pytest

import calculon
from calculon import inputs
from calculon.plan.rules.failures import failures
from tests.cases import for_each
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


def _failures(changes, base=BASE, reason=""):
    """Return the failures on the model and the system of a case."""
    model = inputs.model(SHAPES.get(reason, MODEL))
    system = inputs.system(SYSTEMS[reason]) if reason in SYSTEMS else SYSTEM
    return failures(model, inputs.execution(base | changes), system)


_FURTHER = {
    *("feedforward_split", "kv_heads_split", "experts_split_sequences"),
    *("schedule_has_pairs", "cp_a2a_inner", "cp_fused_attention"),
}
"""Rules whose case breaks them at the default of the named field, too."""


@pytest.mark.quick
@for_each("reason", CASES)
def test_a_broken_rule_names_a_field_without_which_it_holds(reason):
    changes, words, *_ = CASES[reason]
    first = _failures(changes, reason=reason)[0]
    field = words.partition(":")[0] if reason in MALFORMED else ""
    assert (first.reason, first.field, first.malformed) == (reason, field, reason in MALFORMED)
    assert words.removeprefix(f"{field}: ") in first.message
    assert "{" not in first.hint
    if field in changes and reason not in _FURTHER:
        others = {name: value for name, value in changes.items() if name != field}
        assert reason not in {one.reason for one in _failures(others, reason=reason)}


@for_each(
    ("changes", "hint"),
    [
        ({"num_procs": 17}, "set num_procs to 16"),  # 4 x 2 x 2
        ({"batch_size": 35}, "34 is one"),
        ({"batch_size": 1}, "2 is one"),
        ({"batch_size": 2 * 14, "microbatch_size": 6}, "2 is one"),  # 14 = 2 x 7
    ],
)
def test_hints_name_a_near_value_that_goes(changes, hint):
    assert hint in _failures(changes)[0].hint


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


def test_stages_that_do_not_divide_the_blocks_hint_a_balanced_layout():
    execution = document("examples", "llama3-8B_h100x64")
    changes = {"num_procs": 60, "tensor_par": 1, "pipeline_par": 5, "batch_size": 60}
    changes |= {"data_par": 12, "pipeline_interleaving": 1}
    found = {one.reason: one for one in _failures(changes, base=execution)}
    limit = found["framework_limit"]
    assert limit.message.endswith("found pp_layout=uniform, num_blocks=12, pipeline_par=5")
    assert "pp_layout=balanced" in limit.hint
    changes["pp_layout"] = "balanced"
    balanced = {one.reason for one in _failures(changes, base=execution)}
    assert "framework_limit" not in balanced


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
