"""The space is that of the nested loops, and every execution has its number."""

import dataclasses

import numpy as np
import pytest

import calculon
from calculon import SpecError, search
from calculon.plan.columns import FIELDS
from calculon.plan.plan import NAMES
from calculon.search.best_first import count_space
from calculon.search.candidates import PARTS
from calculon.search.driver import make_ranking, make_space, run
from calculon.search.space import LOOPS
from tests.helpers import reference_system
from tests.search.brute import Case
from tests.search.pool import LONG, on_pool

SMALL = calculon.Model(
    hidden=768, feedforward=3072, seq_size=512, attn_heads=12, attn_size=64, num_blocks=12
)


FEW = {
    "pipeline_interleaving": (1,),
    "microbatch_size": (1,),
    "tensor_par_comm_type": ("rs_ag",),
    "activation_recompute": ("full",),
}
"""What leaves few executions."""

RECOMPUTED = ("full", "attn_only", "none")


def _case(num_procs=8, batch=8, system="a100_80g", model=SMALL, **options):
    return Case(model, calculon.inputs.system(system), num_procs, batch, "float16", **options)


def _numbers(case):
    """Number every execution of a case from the positions of its values."""
    space = case.space
    numbers = np.zeros(len(case.rows), np.int64)
    for name in set(LOOPS) - {"batch_size"}:
        values = tuple(row[name] for row in case.rows)
        numbers += space.number(name, values)
    position = {(u.tensor_par, u.pipeline_par, u.batch_size): u.batch_position for u in space.units}
    degrees = [(r["tensor_par"], r["pipeline_par"], r["batch_size"]) for r in case.rows]
    batches = np.array([position[key] for key in degrees], np.int64)
    return numbers + batches * space.strides["batch_size"]


@on_pool()
def test_numbers_ascend_with_the_loops_and_lead_back(case, draw):
    numbers = _numbers(case)
    assert (np.diff(numbers) > 0).all()
    assert not len(numbers) or 0 <= numbers[0] <= numbers[-1] < 2**62
    plan = case.space.plan(numbers)
    for field in FIELDS:
        found, wanted = plan.values(field.name), case.plan.values(field.name)
        assert found.dtype.kind == wanted.dtype.kind
        assert (found == wanted).all()
    assert (plan.malformed == -1).all()


@pytest.mark.parametrize(
    ("model", "system", "num_procs", "batch", "options", "total"),
    [
        ("megatron-126M", "a100_80g", 16, 18, {"fused": (False, True)}, 602_528),
        ("megatron-5B", "h100_80g_nvl8", 24, 20, {}, 771_248),
        ("gpt3-13B", "without tier 2", 40, 40, {}, 195_800),
        ("gpt3-175B", "a100_80g", 1024, 1536, {}, 11_698_528),
    ],
)
def test_the_published_spaces_have_their_sizes(model, system, num_procs, batch, options, total):
    if system == "without tier 2":
        system = calculon.inputs.system("a100_80g")
        system = dataclasses.replace(system, mem2=dataclasses.replace(system.mem2, capacity=0.0))
    case = _case(num_procs, batch, system, calculon.inputs.model(model), **options)
    assert count_space(case.space) == total
    assert calculon.search(model, system, num_procs, batch, **options).counts.total == total


def test_loops_are_the_fields_that_nothing_else_decides():
    decided = {"num_procs", "data_par", "datatype", "training", "edition", "preset"}
    assert set(LOOPS) == set(NAMES) - decided


@pytest.mark.parametrize(
    ("options", "name", "wanted"),
    [
        ({"fix": {"tensor_par": (4, 2, 5)}}, "tensor_par", [2, 4]),
        ({"fix": {"data_par": (2,)}}, "data_par", [2]),
        ({"add": {"pipeline_par": (8, 5)}}, "pipeline_par", [1, 2, 4, 8]),
        ({"add": {"pipeline_par": (16,)}}, "pipeline_par", [1, 2, 4]),
        ({"add": {"batch_size": (4, 6, 9)}, "fix": {"data_par": (2,)}}, "batch_size", [4, 6, 8]),
        ({"add": {"batch_size": (4,)}, "fix": {"batch_size": (4,)}}, "batch_size", [4]),
        (
            {"add": {"attention_type": ("multiquery",)}},
            "attention_type",
            ["multihead", "multiquery"],
        ),
        ({"fix": {"tensor_par_overlap": ("ring",)}}, "tensor_par", [2, 4]),
        ({"fix": {"optimizer_sharding": (True,)}}, "data_par", [2, 4, 8]),
        ({"fix": {"data_par_overlap": (True,)}}, "data_par", [2, 4, 8]),
        ({"fix": {"tensor_par_net": (1,)}}, "tensor_par", [2, 4]),
        ({"fix": {"data_par_net": (1,), "pipeline_par_net": (1,)}}, "tensor_par", [1, 2]),
        (
            {"fix": {"seq_par_ag_redo": (True,), "activation_recompute": RECOMPUTED}},
            "activation_recompute",
            ["attn_only", "none"],
        ),
        ({"fix": {"microbatch_size": (3,)}}, "tensor_par", []),
        ({"fix": {"tensor_par": (16,)}}, "tensor_par", []),
        ({"fix": {"tensor_par_net": (2,)}}, "tensor_par", []),
        (
            {"fix": {"seq_par_ag_redo": (True,), "activation_recompute": ("full",)}},
            "tensor_par",
            [],
        ),
        ({"tensor_overlap": False}, "tensor_par_overlap", ["none"]),
        ({"tensor_overlap": False, "fix": {"tensor_par_overlap": ("pipe",)}}, "tensor_par", []),
        ({"data_overlap": False}, "data_par_overlap", [False]),
    ],
)
def test_dimensions_are_restricted_and_widened(options, name, wanted):
    system = reference_system("a100_80g_no_tier2")
    case = _case(system=system, **options | {"fix": FEW | options.get("fix", {})})
    found = case.space.plan(_numbers(case)).values(name)
    assert sorted({row[name] for row in case.rows}) == wanted
    assert sorted({value.item() for value in found}) == wanted
    assert count_space(case.space) == len(case.rows)


def test_offloading_cannot_be_fixed_where_there_is_no_second_tier():
    system = reference_system("no_tier2")
    for name in ("weight_offload", "activations_offload", "optimizer_offload"):
        case = _case(4, 4, system, fix={name: (True,)})
        assert (len(case.rows), count_space(case.space)) == (0, 0)
        result = run(case.space, make_ranking())
        assert (result.counts.total, len(result)) == (0, 0)
        with pytest.raises(calculon.SpecError, match="Hint: no_tier2 has no host memory"):
            calculon.search(SMALL, system, 4, 4, fix={name: True})


def test_batches_below_a_data_parallel_degree_leave_it_out():
    case = _case(8, 3, fix=FEW)
    assert {row["data_par"] for row in case.rows} == {1, 2}
    assert {u.data_par for u in case.space.units} == {1, 2}
    prime = calculon.Model(
        hidden=7, feedforward=7, seq_size=7, attn_heads=7, attn_size=1, num_blocks=7
    )
    assert _case(8, 7, model=prime).space.units == ()


def test_an_empty_selection_is_an_empty_table():
    assert len(_case().space.plan(np.zeros(0, np.int64))) == 0
    assert len(_case(fix={"tensor_par": (5,)}).space.plan(np.zeros(0, np.int64))) == 0


def test_so_many_values_that_their_combinations_take_minutes_are_refused():
    """Before any of them is looked at: 2 to the power of 12 times 7 values of sizes."""
    switches = ["main_grad", "grad_clip", "latency_per_step", "tp_async", "bias_after_reduce"]
    switches += ["overlap_param_gather", "p2p_overlap"]
    add = dict.fromkeys(switches, True) | {"no_sync": False, "reshard_after_forward": False}
    add |= {"attn_impl": "flash", "ce_impl": "fused", "grad_buffer": "full"}
    add |= {"mem_reserved_mib": list(range(1, 100)), "ddp_bucket_mib": list(range(1, 100))}
    with pytest.raises(SpecError, match="at most 20,000,000 combinations, found") as error:
        search("llama3-8B", "h100_80g_sxm", 8, 8, "bfloat16", add=add, edition="corrected")
    assert error.value.field == "add"


def test_uneven_stages_may_be_held_to_a_layout():
    asked = ("gpt3-175B", "a100_80g_sxm", 1280, 1280, "bfloat16")
    held = make_space(*asked, preset="megatron-lm", fix={"pp_layout": "uniform"})
    assert 10 not in {unit.pipeline_par for unit in held.units}
    added = make_space(*asked, preset="megatron-lm", add={"pp_layout": "balanced"})
    assert "balanced" in added.layouts(8)


@pytest.mark.parametrize(
    ("length", "parts"),
    [(8192, (1,)), (12288, (1, 2)), (32768, (1, 2, 4, 8)), (131072, (1, 2, 4, 8, 16, 32))],
)
def test_frameworks_split_sequences_of_more_than_8_ki_tokens_over_ranks_with_4_ki_at_least(
    length, parts
):
    asked = dataclasses.replace(LONG, seq_size=length), "h100_80g_sxm", 64, 64, "bfloat16"
    space = make_space(*asked, preset="megatron-lm")
    assert space.switches["context_par"] == parts
    assert space.switches["cp_comm"] == (("p2p", "a2a") if len(parts) > 1 else ("p2p",))
    wider = make_space(*asked, preset="megatron-lm", add={"context_par": 64})
    assert wider.switches["context_par"] == (*parts, 64)


@pytest.mark.parametrize(
    ("model", "most"), [("llama3-70B", 2), ("gpt3-175B", 1), ("mixtral-8x7B", 1)]
)
def test_8_ki_tokens_of_dense_models_are_split_if_there_are_over_two_processors_per_sequence(
    model, most
):
    for batch, parts in [(256, (1,)), (255, tuple(range(1, most + 1)))]:
        space = make_space(model, "h100_80g_sxm", 512, batch, "bfloat16", preset="megatron-lm")
        assert space.switches["context_par"] == parts, batch


@pytest.mark.parametrize(
    ("model", "system", "tried"),
    [
        ("qwen3-30B-a3B", "gb200_nvl72", ("auto", "graph_parts")),
        ("qwen3-30B-a3B", "h100_80g_sxm", ("auto",)),
        ("llama3-8B", "gb200_nvl72", ("auto",)),
    ],
)
def test_graphs_of_parts_are_tried_for_experts_on_hosts_with_slow_launches(model, system, tried):
    space = make_space(model, system, 8, 8, "bfloat16", preset="megatron-lm")
    assert space.switches["launch_mode"] == tried
    old = make_space(model, system, 8, 8, "bfloat16", preset="megatron-lm@2025-04")
    assert old.switches["launch_mode"] == ("auto",)


def test_launches_of_single_kernels_are_left_out_where_graphs_of_parts_are_possible():
    """Megatron-LM refuses graphs with full recomputation; the fastest plan is that of a search of both."""
    fix = {"expert_par": 8, "recompute_modules": "none", "ep_overlap": "none"}
    asked = ("qwen3-30B-a3B", 8, "gb200_nvl72", 8, "bfloat16")
    table = next(iter(calculon.executions(*asked, preset="megatron-lm", fix=fix)))
    columns = [table.column(name) for name in ("launch_mode", "activation_recompute")]
    modes = {*zip(*columns, strict=True)}
    assert modes == {("auto", "full"), ("graph_parts", "none")}
    both = search(*asked, preset="megatron-lm", fix={**fix, "launch_mode": ("auto", PARTS)})
    assert search(*asked, preset="megatron-lm", fix=fix).scores == both.scores
