"""What modules that predict further tokens add to the last stage: time, memory, traffic, and what is refused."""

from itertools import pairwise

import pytest

import calculon
from calculon.architecture.parameters import module_count, parameter_count
from calculon.declarations.statistics import PARTS_OF_TIME
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN, document

MODEL = document("models", "llama3-8B")
SYSTEM = calculon.inputs.system("a100_80e")  # its tier-1 memory is never full
HIDDEN, VOCAB, SEQUENCE = 4096, 128256, 8192
RAW = CORRECTED_PLAIN | {
    "batch_size": 8,
    "tensor_par_net": 1,
    "attn_impl": "flash",
    "fused_activation": True,
}
PIPELINE = {"num_procs": 4, "pipeline_par": 4}
SPLIT = {"num_procs": 4, "tensor_par": 4, "tensor_par_comm_type": "rs_ag"}
SHARDED = {"num_procs": 4, "data_par": 4, "batch_size": 32, "zero_stage": "fsdp"}
SHARDED |= {"optimizer_sharding": True}


def _stats(modules=0, model=(), **changes):
    found = MODEL | dict(model) | {"mtp_layers": modules}
    return calculon.estimate(found, RAW | changes, SYSTEM).stats


def _model(modules, **changes):
    return calculon.inputs.model(MODEL | changes | {"mtp_layers": modules})


shapes = pytest.mark.parametrize(
    "shape",
    [
        {},
        SPLIT,
        SHARDED,
        PIPELINE | {"pp_layout": "balanced"},
        {"activation_recompute": "full", "recompute_every": 2},
    ],
    ids=lambda shape: "-".join(map(str, shape.values())) or "one",
)


@shapes
def test_time_and_memory_grow_with_every_module(shape):
    found = [_stats(modules, **shape) for modules in (0, 1, 2)]
    for fewer, more in pairwise(found):
        for name in ("total_time", "proc_mem_tier1_cap_req", "mtp_time"):
            assert more[name] > fewer[name]
        assert more["head_time"] == pytest.approx(fewer["head_time"])
        assert more["parameters"] == fewer["parameters"]
        assert sum(more[name] for name in PARTS_OF_TIME) + more["host_time"] == pytest.approx(
            more["total_time"]
        )
    each = found[1]["mtp_time"]
    assert [one["mtp_time"] / each for one in found] == pytest.approx([0, 1, 2])


@for_each("tied", [False, True])
@for_each("modules", [1, 2])
def test_weights_of_a_single_stage_are_those_of_model_and_modules(modules, tied):
    found = _stats(modules, {"tied": tied})
    model = _model(modules, tied=tied)
    assert found["weight_space"] == 2 * (parameter_count(model) + module_count(model))


@pytest.mark.parametrize("tied", [False, True], ids=["apart", "tied"])
def test_the_last_of_several_stages_has_a_copy_of_the_embedding(tied):
    """All state lies there: of weights, gradients and Adam 2 + 4 + 4 + 8 bytes or so each."""
    few = PIPELINE | {"last_stage_blocks": 8, "first_stage_blocks": 8}
    stats = _stats(1, {"tied": tied}, **few)
    model = _model(1, tied=tied)
    block = (parameter_count(model) - parameter_count(_model(0, tied=tied, num_blocks=16))) / 16
    table = VOCAB * HIDDEN
    there = 8 * block + module_count(model) + (table + HIDDEN) + (0 if tied else table)
    assert stats["weight_space"] == pytest.approx(2 * there)


def test_both_copies_of_the_embedding_are_kept_equal():
    plain, found = (_stats(modules, **PIPELINE) for modules in (0, 1))
    tied = _stats(0, {"tied": True}, **PIPELINE)
    more = found["pp_comm_link_time"] - plain["pp_comm_link_time"]
    assert more == pytest.approx(tied["pp_comm_link_time"] - plain["pp_comm_link_time"])
    assert more > 0
    assert _stats(1)["pp_comm_link_time"] == 0


APART = {"num_procs": 4, "pipeline_par": 4, "activation_recompute": "none"}
WITH_LOSS, OWN_STAGE = "11-11-10-0", "11-11-10m-0"


def _stages(modules, layout, **changes):
    model = calculon.inputs.model(MODEL | {"mtp_layers": modules} | changes.pop("model", {}))
    return calculon.estimate(model, RAW | APART | {"stage_blocks": layout} | changes, SYSTEM)


@for_each("schedule", ["1f1b", "gpipe", "zb_h1", "zb_h2"])
@for_each("modules", [1, 2])
def test_modules_of_another_stage_do_the_same_work_there(modules, schedule):
    """The last stage keeps the heads: what it has less is on the other stage, with the lookup, and nothing is lost."""
    end, own = (_stages(modules, n, pp_schedule=schedule) for n in (WITH_LOSS, OWN_STAGE))
    for name in ("mtp_time", "head_time", "embedding_time", "parameters", "model_flops_per_token"):
        assert own.stats[name] == pytest.approx(end.stats[name], rel=1e-12)
    executed = [one.stats["hfu"] * one.stats["total_time"] for one in (end, own)]
    assert executed[1] == pytest.approx(executed[0], rel=1e-12)
    useful = [one.stats["total_efficiency"] * one.stats["total_time"] for one in (end, own)]
    assert useful[1] == pytest.approx(useful[0], rel=1e-12)
    before, after = (one.stages for one in (end, own))
    assert [one["blocks"] for one in after] == [one["blocks"] for one in before] == [11, 11, 10, 0]
    assert [one["modules"] for one in after] == [0, 0, modules, 0]
    for name in ("recompute_time", "weight_grad_time"):
        assert sum(one[name] for one in after) == pytest.approx(sum(one[name] for one in before))
    moved = before[3]["forward_time"] - after[3]["forward_time"]
    message = after[2]["forward_time"] - before[2]["forward_time"] - moved
    sent = own.stats["block_fw_pp_size"] / end.stats["block_fw_pp_size"]
    assert sent == 1
    # The modules' hidden states are sent next to those of the model.
    each = end.stats["pp_comm_link_time"] - _shared(end)
    transfer = each / (2 * RAW["batch_size"]) - SYSTEM.networks[RAW["pipeline_par_net"]].latency
    assert message == pytest.approx(modules * transfer, rel=1e-9)


def _shared(found):
    """Return the time of the exchange of the table's gradient: what modules add to the transfers."""
    plain = _stages(0, WITH_LOSS, pp_schedule=found.execution.pp_schedule)
    return found.stats["pp_comm_link_time"] - plain.stats["pp_comm_link_time"]


@for_each("tied", [False, True])
@for_each("modules", [1, 2])
def test_another_stage_has_its_own_copy_of_the_embedding(modules, tied):
    """Norms before the heads of modules are with the loss; a tied head has its own table there."""
    changes = {"model": {"tied": tied}}
    before, after = (
        [one["weight_space"] / 2 for one in _stages(n, OWN_STAGE, **changes).stages]
        if n
        else [one["weight_space"] / 2 for one in _stages(n, WITH_LOSS, **changes).stages]
        for n in (0, modules)
    )
    model = _model(modules, tied=tied)
    norms = modules * HIDDEN
    assert after[:2] == before[:2]
    assert after[2] - before[2] == module_count(model) - norms + VOCAB * HIDDEN
    assert after[3] - before[3] == norms


def test_all_copies_of_the_embedding_are_kept_equal():
    """The table of the first stage, that of the modules and that of a tied head: a ring of two or three."""
    found = {}
    for tied in (False, True):
        plain, own = (
            _stages(n, layout, model={"tied": tied}, pp_schedule="gpipe").stats
            for n, layout in ((0, WITH_LOSS), (1, WITH_LOSS))
        )
        apart = _stages(1, OWN_STAGE, model={"tied": tied}, pp_schedule="gpipe").stats
        sent = plain["pp_comm_link_time"] * (1 - tied)
        found[tied] = [one["pp_comm_link_time"] - sent for one in (own, apart)]
    table, sends_more = found[False]
    assert sends_more > table > 0
    both, all_three = found[True]
    assert all_three > both


def test_modules_of_another_stage_wait_for_their_backward_pass():
    """With 1F1B, stage *i* of *p* holds *p - i* microbatches; the last one holds no module."""
    last, third, second = (
        _stages(1, layout, batch_size=8).stages
        for layout in ("16-8-8-0", "16-8-8m-0", "16-16m-0-0")
    )
    none = _stages(0, "16-16-0-0", batch_size=8).stages
    held = (
        third[2]["act_space"] - last[2]["act_space"],
        second[1]["act_space"] - none[1]["act_space"],
    )
    assert held[1] / held[0] == pytest.approx(3 / 2, rel=0.1)
    assert third[3]["act_space"] < last[3]["act_space"]


def test_modules_may_have_a_chunk_of_their_own():
    """Megatron-Core's example, in small: blocks, then a chunk with the modules, then one with the loss."""
    listed = "2-2-2-2-2-2-0m-0"
    model = {"num_blocks": 12}
    own, end = (
        _stages(1, text, model=model, pipeline_interleaving=2)
        for text in (listed, "2-2-2-2-2-2-0-0")
    )
    letters = _stages(1, "Et*2|(t*2|)*5m|L", model=model, pipeline_interleaving=2)
    assert letters.stats == own.stats
    assert own.stats["total_time"] < end.stats["total_time"]
    assert own.execution.stage_blocks == listed


def test_the_logits_of_all_heads_are_there_at_once():
    """Two more values of 4 bytes beside the logits: the copy and the logarithm of PyTorch's loss."""
    found = [_stats(modules) for modules in (1, 2)]
    more = found[1]["act_space"] - found[0]["act_space"]
    logits = SEQUENCE * VOCAB * (2 + 4 + 4)
    assert logits < more < logits + 2 * found[0]["block_act_storage_space"]


def test_traffic_of_modules_goes_through_a_port_as_fast_as_that_of_blocks():
    found = [calculon.estimate(_model(n), RAW | SPLIT, SYSTEM).groups for n in (0, 2)]
    sent = [one for groups in found for one in groups if one.kind == "tensor"]
    plain, more = (one.bytes[1] / one.link_time for one in sent)
    assert more == pytest.approx(plain, rel=1e-3)


@for_each("changes", [{}, PIPELINE | {"pp_layout": "balanced"}, SPLIT])
def test_inference_leaves_modules_out(changes):
    asked = {"training": False, **changes}
    assert _stats(2, **asked) == _stats(0, **asked)
