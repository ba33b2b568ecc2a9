"""What would make one execution fit: plans that run, with the fewest changes."""

from itertools import product

import pytest

import calculon
from calculon import inputs
from calculon.errors import Infeasible
from calculon.plan.plan import NAMES
from calculon.planner.neighbours import _more_modules, hint, neighbours
from calculon.planner.variations import varied
from calculon.spec.module_sets import written
from tests.helpers import document

PLAIN = {"datatype": "bfloat16", "preset": "megatron-lm", "pipeline_par": 1}
CASES = {
    "ZeRO on 64": (
        "llama3-70B",
        PLAIN | {"num_procs": 64, "tensor_par": 2, "batch_size": 512, "microbatch_size": 4},
        "h100_80g_sxm",
    ),
    "more processors": (
        "gpt3-175B",
        PLAIN | {"num_procs": 8, "tensor_par": 8, "batch_size": 512, "microbatch_size": 4},
        "h100_80g_sxm",
    ),
    "stages and chunks": (
        "llama3.1-405B",
        PLAIN
        | {"num_procs": 512, "tensor_par": 8, "batch_size": 512, "microbatch_size": 1}
        | {"pipeline_par": 2, "pipeline_interleaving": 21},
        "h100_80g_sxm",
    ),
    "offloading": ("gpt3-13B-hf", "gpt3-13B_a100x2_fsdp", "a100_40g_sxm"),
}


def _read(name):
    model, execution, system = CASES[name]
    return inputs.model(model), inputs.execution(execution), inputs.system(system)


@pytest.mark.parametrize("name", CASES)
def test_proposals_run_and_change_what_they_say(name):
    model, execution, system = _read(name)
    with pytest.raises(Infeasible):
        calculon.estimate(model, execution, system)
    found = neighbours(model, execution, system)
    assert 1 <= len(found) <= 3
    for one in found:
        again = calculon.estimate(model, one.found.execution, system)
        assert again.stats == one.found.stats
        fields = {name: getattr(execution, name) for name in NAMES} | one.changes
        assert {name: getattr(one.found.execution, name) for name in NAMES} == fields
        assert one.changes.get("batch_size", execution.batch_size) == execution.batch_size
    times = [one.found.stats["total_time"] for one in found]
    assert times == sorted(times)


def test_no_fewer_changes_do():
    """None of the single changes that are proposed in pairs fits alone."""
    model, execution, system = _read("ZeRO on 64")
    assert min(len(_asked(one.changes)) for one in neighbours(model, execution, system)) == 2
    single = [
        {"activation_recompute": "full"},
        {"microbatch_size": 1},
        *({"zero_stage": stage} for stage in ("2", "3", "fsdp")),
        *({"tensor_par": 2 * k, "data_par": 32 // k} for k in (2, 4, 8)),
        *({"pipeline_par": k, "data_par": 32 // k} for k in (2, 4, 8)),
        *({name: True} for name in ("optimizer_offload", "activations_offload")),
    ]
    for changes in single:
        with pytest.raises(calculon.CalculonError):
            calculon.estimate(model, varied(execution, changes), system)


def _asked(changes):
    """The changes that others do not follow from."""
    derived = ("data_par", "seq_par_ag_redo", "overlap_param_gather")
    return [name for name in changes if name not in derived]


def test_larger_groups_of_experts_are_proposed_alone():
    execution = {**document("examples", "mixtral-8x7B_h100x64"), "expert_par": 1}
    model, system = inputs.model("mixtral-8x7B"), inputs.system("h100_80g_sxm")
    found = neighbours(model, inputs.execution(execution), system)
    assert dict(found[0].changes) == {"expert_par": 8}


def test_more_of_experts_is_recomputed_where_they_are_spread():
    execution = {**document("examples", "mixtral-8x7B_h100x64"), "expert_par": 2}
    model, system = inputs.model("mixtral-8x7B"), inputs.system("h100_80g_sxm")
    changes = [dict(one.changes) for one in neighbours(model, inputs.execution(execution), system)]
    assert {"recompute_modules": "moe_act"} in changes


@pytest.mark.parametrize(
    ("now", "more"),
    [
        ("none", {"moe_act", "moe"}),
        ("norm+shared_experts", {"norm+moe_act+shared_experts", "norm+moe"}),
        ("norm+moe_act", {"norm+moe"}),
        ("moe", set()),
        ("ops", set()),
        ("norm_activation", set()),
    ],
)
def test_larger_sets_of_modules_of_experts(now, more):
    execution = {**document("examples", "mixtral-8x7B_h100x64"), "recompute_modules": now}
    found = {written(modules) for modules in _more_modules(inputs.execution(execution))}
    assert found == more


def test_fewer_processors_do_not():
    model, execution, system = _read("more processors")
    assert {one.changes["num_procs"] for one in neighbours(model, execution, system)} == {64}
    for times, (tensor, pipeline) in product((2, 4), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1)]):
        if times % (tensor * pipeline):
            continue
        changes = {"num_procs": 8 * times, "tensor_par": 8 * tensor, "pipeline_par": pipeline}
        changes |= {"data_par": times // tensor // pipeline, "activation_recompute": "full"}
        with pytest.raises(calculon.CalculonError):
            calculon.estimate(model, varied(execution, changes | {"microbatch_size": 1}), system)


def test_published_executions_stay_published():
    model = inputs.model("megatron-1T")
    execution = inputs.execution(
        "3072_t4_p64_d12_mbs4_full",
        changes={"activation_recompute": "none", "optimizer_sharding": False},
    )
    for one in neighbours(model, execution, inputs.system("a100_80g")):
        assert one.found.edition == "sc23"
        assert not {*one.found.execution.extensions} - {*execution.extensions}


def test_nothing_is_said_where_nothing_would_do():
    model, system = inputs.model("megatron-1T"), inputs.system("v100_sxm2_32g")
    stated = {"num_procs": 1, "tensor_par": 1, "batch_size": 1, "microbatch_size": 1}
    execution = inputs.execution(PLAIN | stated | {"datatype": "float16"})
    assert neighbours(model, execution, system) == ()
    assert hint(model, execution, system) == ""


@pytest.mark.parametrize("name", CASES)
def test_what_changes_nothing_is_the_same(name):
    _, execution, _ = _read(name)
    assert varied(execution, {}) == {name: getattr(execution, name) for name in NAMES}


def test_what_a_preset_derives_follows():
    _, execution, _ = _read("ZeRO on 64")
    alone = varied(execution, {"tensor_par": 64, "data_par": 1})
    assert alone["optimizer_sharding"] is alone["data_par_overlap"] is False
    assert (alone["zero_stage"], alone["overlap_param_gather"]) == ("0", False)
    full = varied(execution, {"activation_recompute": "full"})
    assert full["seq_par_ag_redo"] is False
    assert varied(execution, {"tensor_par": 1, "data_par": 64})["tensor_par_comm_type"] == "ar"
    split = varied(execution, {"zero_stage": "3"})
    assert (split["optimizer_sharding"], split["overlap_param_gather"]) == (True, False)
