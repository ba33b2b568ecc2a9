"""What modules that predict further tokens add to the last stage: time, memory, traffic, and what is refused."""

from itertools import pairwise

import numpy as np
import pytest

import calculon
from calculon.architecture.parameters import module_count, parameter_count
from calculon.statistics import PARTS_OF_TIME
from tests.cases import for_each
from tests.helpers import document

MODEL = document("models", "llama3-8B")
SYSTEM = document("systems", "a100_80e")  # its tier-1 memory is never full
HIDDEN, VOCAB, SEQUENCE = 4096, 128256, 8192
RAW = document("examples", "3072_t4_p64_d12_mbs4_full") | {
    "edition": "corrected",
    "preset": "published",
    "num_procs": 1,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 1,
    "batch_size": 8,
    "microbatch_size": 1,
    "datatype": "float16",
    "activation_recompute": "none",
    "optimizer_sharding": False,
    "tensor_par_comm_type": "ar",
    "tensor_par_net": 1,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "attn_impl": "flash",
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
        PIPELINE,
        SPLIT,
        SHARDED,
        PIPELINE | {"pp_layout": "balanced"},
        PIPELINE | {"pp_schedule": "gpipe"},
        PIPELINE | {"pipeline_interleaving": 2},
        {"activation_recompute": "full"},
        {"recompute_modules": "norm_activation"},
        {"activation_recompute": "full", "recompute_every": 2},
    ],
    ids=lambda shape: "-".join(map(str, shape.values())) or "one",
)


@shapes
def test_time_and_memory_grow_with_every_module(shape):
    found = [_stats(modules, **shape) for modules in (0, 1, 2, 3)]
    for fewer, more in pairwise(found):
        for name in ("total_time", "proc_mem_tier1_cap_req", "mtp_time"):
            assert more[name] > fewer[name]
        assert more["head_time"] == pytest.approx(fewer["head_time"])
        assert more["parameters"] == fewer["parameters"]
        assert sum(more[name] for name in PARTS_OF_TIME) + more["host_time"] == pytest.approx(
            more["total_time"]
        )
    each = found[1]["mtp_time"]
    assert [one["mtp_time"] / each for one in found] == pytest.approx([0, 1, 2, 3])


def test_a_module_takes_the_time_of_a_lookup_a_block_a_head_and_what_joins():
    plain, found = _stats(), _stats(1)
    block = 8 * (plain["block_fw_time"] + plain["block_agrad_time"] + plain["block_wgrad_time"])
    known = block + plain["head_time"] + plain["embedding_time"]
    joining = found["mtp_time"] - known
    matrix = 3 * 2 * 8 * SEQUENCE * 2 * HIDDEN**2 / plain["model_flops_per_second_per_proc"]
    assert 0 < joining < 2 * matrix * plain["mfu"] + 0.2 * block
    assert found["total_time"] - plain["total_time"] == pytest.approx(
        found["mtp_time"] + found["optim_step_time"] - plain["optim_step_time"]
    )


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


@pytest.mark.parametrize("recompute", [{}, {"activation_recompute": "full"}], ids=["none", "full"])
def test_modules_are_computed_again_as_blocks_are(recompute):
    plain, found = (_stats(modules, **recompute) for modules in (0, 1))
    more = found["recompute_time"] - plain["recompute_time"]
    each = plain["recompute_time"] / MODEL["num_blocks"]
    assert each <= more <= 1.4 * each


def test_other_schedules_hold_what_modules_keep_of_all_microbatches():
    one, other = (_stats(1, **PIPELINE, pp_schedule=name) for name in ("1f1b", "gpipe"))
    plain, of_gpipe = (_stats(0, **PIPELINE, pp_schedule=name) for name in ("1f1b", "gpipe"))
    held = other["act_space"] - of_gpipe["act_space"]
    assert held > 8 * one["block_act_storage_space"]
    assert plain["act_space"] < one["act_space"]


def test_a_search_finds_what_an_estimate_finds():
    model = _model(1)
    fix = {"attn_impl": "flash", "data_par_overlap": True}
    best = calculon.search(model, "a100_80g", 8, 8, "float16", fix=fix, edition="corrected").best
    alone = calculon.estimate(model, best.execution, "a100_80g").stats
    assert best.stats["total_time"] == alone["total_time"]
    assert best.stats["mtp_time"] > 0


def test_rows_of_a_table_equal_their_executions():
    rows = [RAW, RAW | PIPELINE, RAW | SPLIT, RAW | {"activation_recompute": "full"}]
    model = MODEL | {"mtp_layers": 2}
    table = calculon.evaluate(model, SYSTEM, calculon.Plan.from_records(rows))
    for i, row in enumerate(rows):
        alone = calculon.estimate(model, row, SYSTEM).stats
        assert table["total_time"][i] == alone["total_time"]
        assert table["mtp_time"][i] == alone["mtp_time"]
    assert np.all(table["mtp_time"] > 0)


def test_the_published_edition_refuses_modules():
    published = {k: v for k, v in RAW.items() if k not in ("edition", "preset", "attn_impl")}
    shape = {name: MODEL[name] for name in ("hidden", "feedforward", "seq_size", "attn_heads")}
    shape |= {"attn_size": 128, "num_blocks": 32, "vocab": VOCAB, "mtp_layers": 1}
    with pytest.raises(calculon.SpecError, match="edition: expected corrected, which"):
        calculon.estimate(shape, published, SYSTEM)


@for_each("changes", [{}, PIPELINE | {"pp_layout": "balanced"}, SPLIT])
def test_inference_leaves_modules_out(changes):
    asked = {"training": False, **changes}
    assert _stats(2, **asked) == _stats(0, **asked)


def test_a_table_has_training_with_modules_beside_inference_without():
    rows = [RAW | {"training": training} for training in (True, False, True)]
    table = calculon.evaluate(MODEL | {"mtp_layers": 1}, SYSTEM, rows)
    times = table["total_time"]
    assert times[1] == _stats(0, training=False)["total_time"]
    assert times[0] == times[2] == _stats(1)["total_time"]
