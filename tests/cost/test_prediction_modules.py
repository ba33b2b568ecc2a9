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
