"""Executions that one framework runs, for another."""

import pytest

from calculon import inputs
from calculon.base.errors import SpecError
from calculon.launch.megatron.megatron_lm import MEGATRON_LM
from calculon.launch.translation import translated
from tests.advise.by_hand import fields_of

PLAN = {"num_procs": 8, "tensor_par": 2, "pipeline_par": 1, "batch_size": 16}


def _whole(**fields):
    return fields_of(inputs.execution({**PLAN, **fields}))


def test_what_only_the_other_framework_says_is_as_this_one_runs_it():
    whole = _whole(base="common")
    found = translated(whole, "megatron-lm", (), "M")
    usual = _whole(base="megatron-lm")
    assert found.changes["ce_impl"] == (whole["ce_impl"], usual["ce_impl"])
    assert found.fields["fusion"] == usual["fusion"]


def test_what_was_chosen_is_refused_where_no_setting_says_it():
    whole = _whole(base="common", optimizer="lion")
    with pytest.raises(SpecError, match="optimizer: expected adam, as M runs it") as caught:
        translated(whole, "megatron-lm", (), "M")
    assert caught.value.hint == "--set optimizer=adam"
    kept = translated(whole, "megatron-lm", ("optimizer",), "M")
    assert kept.fields["optimizer"] == "lion"


def test_published_executions_are_as_the_framework_runs_them():
    whole = fields_of(inputs.execution("3072_t4_p64_d12_mbs4_full"))
    with pytest.raises(SpecError, match="fused_activation: expected false"):
        translated(whole, "megatron-lm", MEGATRON_LM.fields, "M")
    changed = whole | {"fused_activation": False}
    found = translated(changed, "megatron-lm", MEGATRON_LM.fields, "M")
    assert found.fields["zero_stage"] == "1"
    assert found.fields["mesh_order"] == "tp-dp-pp"


@pytest.mark.parametrize("target", ["megatron-lm", "megatron-lm-ub"])
def test_what_a_preset_changes_of_the_other_is_kept_where_a_setting_says_it(target):
    whole = _whole(base="megatron-bridge", expert_par=2)
    found = translated(whole, target, MEGATRON_LM.fields, "M")
    own = ("grad_dtype", "grad_comm_dtype", "launch_mode")
    assert [found.fields[name] for name in own] == ["bfloat16", "bfloat16", "graph_parts"]
