"""What holds for every execution in the corrected edition, and which special cases are the plain model."""

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import calculon
from calculon.hardware.collectives.algorithms import BY_LIBRARY
from calculon.plan.plan import PUBLISHED_NAMES
from calculon.records import columns
from calculon.spec.execution import Execution
from calculon.spec.fields import spec_fields
from calculon.spec.model import Model
from calculon.statistics import PARTS_OF_TIME, CorrectedStats
from tests.declared import fitting, others
from tests.draws import draws
from tests.helpers import NAMES, document
from tests.properties.test_monotone import BETTER
from tests.strategies import (
    CORRECTED,
    SWITCHES,
    corrected_tables,
    measured_collectives,
    models,
    systems,
)

SLACK = 1 + 1e-12
STATS = tuple(column.name for column in columns(CorrectedStats))
NULLABLE = {column.name for column in columns(CorrectedStats) if column.nullable}
SPACES = ("weight", "act", "act_grad", "weight_grad", "optimizer")
BUFFERS = ("gathered", "comm_buffer", "fragment", "reserved")
RAW = document("examples", "3072_t4_p64_d12_mbs4_full")
ALONE = RAW | {
    "num_procs": 1,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 1,
    "batch_size": 8,
    "microbatch_size": 2,
    "fused_activation": False,
    "activation_recompute": "none",
    "optimizer_sharding": False,
    "tensor_par_comm_type": "ar",
}


def _evaluate(model, system, rows):
    return calculon.evaluate(model, system, calculon.Plan.from_records(rows))


def _rows(table, **changes):
    """Evaluate a table with some fields changed; one column per row that can run."""
    model, system, rows = table
    found = _evaluate(model, system, [row | changes for row in rows])
    return found.take(found.feasible)


def _assert_below(low, high, what):
    """Compare columns up to rounding."""
    wrong = ~(low <= high * SLACK)
    assert not wrong.any(), f"{what}: {low[wrong]} above {high[wrong]}"


def _counts_what_is_executed(table):
    """Say whether MFU counts products: of Mamba-2 it counts ``7 i N``, a scan, however short chunks are."""
    return table[0].get("linear_attention") != "mamba2"


# -- every execution --------------------------------------------------------------------------------------------------


@settings(max_examples=draws(10))
@given(table=corrected_tables())
def test_times_and_memory_are_sound(table):
    found = _rows(table)
    for name in STATS:
        values = found[name][~np.isnan(found[name])]
        assert name in NULLABLE or len(values) == len(found), name
        assert ((values >= 0) & (values < np.inf)).all(), name
    for name in ("tp_comm", "pp_comm", "dp_comm"):
        _assert_below(found[f"{name}_exposed_time"], found[f"{name}_link_time"], name)
    total = sum(found[name] for name in PARTS_OF_TIME)
    np.testing.assert_allclose(total, found["total_time"], rtol=1e-12)


@settings(max_examples=draws(10))
@given(table=corrected_tables(6), overlap=st.sampled_from(("none", "ring", "pipe")))
def test_no_repeated_collective_is_exposed_for_longer_than_it_takes(table, overlap):
    full = {"training": True, "activation_recompute": "full", "seq_par_ag_redo": False}
    for changes in ({}, full | {"tensor_par_overlap": overlap}):
        found = _rows(table, **changes)
        link = found["recomm_link_time"]
        _assert_below(found["recomm_exposed_time"], link, "repeated collectives")


@settings(max_examples=draws(9))
@given(table=corrected_tables(6))
def test_without_offloading_the_kinds_of_tensors_fill_the_first_tier(table):
    found = _rows(table, **dict.fromkeys(SWITCHES, False))
    spaces = sum(found[f"{name}_space"] for name in SPACES) + found["act_checkpoint_size"]
    spaces += sum(found[f"{name}_space"] for name in BUFFERS)
    np.testing.assert_allclose(spaces, found["proc_mem_tier1_cap_req"], rtol=1e-12)
    assert not found["proc_mem_tier2_cap_req"].any()


@settings(max_examples=draws(10))
@given(table=corrected_tables(4))
def test_offloading_never_needs_more_of_the_first_tier(table):
    for name in SWITCHES:
        moved, kept = _rows(table), _rows(table, **{name: False})
        _assert_below(moved["proc_mem_tier1_cap_req"], kept["proc_mem_tier1_cap_req"], name)


@settings(max_examples=draws(10))
@given(table=corrected_tables(6))
def test_no_less_is_executed_than_the_model_asks_for(table):
    """HFU is at least the MFU of the same convention: causal where the kernel skips masked keys."""
    assume(_counts_what_is_executed(table))
    for attention, name in (("flash", "mfu_causal"), ("eager", "mfu")):
        found = _rows(table, attn_impl=attention, matmul_impl="gemm")
        _assert_below(found[name], found["hfu"], name)


@settings(max_examples=draws(10))
@given(table=corrected_tables(4))
def test_a_vocabulary_never_needs_less_time_or_memory(table):
    model, system, rows = table
    model["mtp_layers"] = 0  # its modules need one
    found, without = (_rows((model | {"vocab": size}, system, rows)) for size in (1000, 0))
    for name in ("total_time", "proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req"):
        _assert_below(without[name], found[name], name)


@settings(max_examples=draws(9))
@given(table=corrected_tables(6))
def test_the_machine_executes_what_the_model_needs(table):
    """A multiquery execution has fewer projections than its model: see the test of its own."""
    assume(_counts_what_is_executed(table))
    found = _rows(table, attention_type="multihead")
    _assert_below(found["mfu_causal"], found["hfu"], "utilisation")


@settings(max_examples=draws(9))
@given(table=corrected_tables(6))
def test_flash_attention_has_no_more_arithmetic_than_eager_attention(table):
    flash, eager = (_rows(table, attn_impl=name) for name in ("flash", "eager"))
    _assert_below(flash["block_fw_flops"], eager["block_fw_flops"], "forward FLOP")


def _one_network(system, factor):
    system["networks"][0]["bandwidth"] *= factor


def _step_latency(system, factor):
    for link in system.get("ext", {}).get("networks", ()):
        link["step_latency"] /= factor


def _ramp(system, factor):
    for link in system.get("ext", {}).get("networks", ()):
        link["ramp"] /= factor


IMPROVEMENTS = BETTER | {
    "a higher bandwidth of one network": _one_network,
    "a lower latency of a step": _step_latency,
    "a shorter ramp": _ramp,
}


@settings(max_examples=draws(12))
@given(
    table=corrected_tables(6),
    names=st.sets(st.sampled_from(sorted(IMPROVEMENTS)), min_size=3, max_size=3),
    factor=st.sampled_from((1.001, 2, 16)),
)
def test_a_better_machine_is_never_slower_overlap_or_not(table, names, factor):
    model, system, rows = table
    before = _evaluate(model, system, rows)
    for name in sorted(names):
        improved = copy.deepcopy(system)
        IMPROVEMENTS[name](improved, factor)
        after = _evaluate(model, improved, rows)
        assert (after.feasible == before.feasible).all()
        run = before.feasible & ~_stalled_and_uneven(model, rows)
        _assert_below(after["total_time"][run], before["total_time"][run], name)


@settings(max_examples=draws(12))
@given(
    table=corrected_tables(6),
    operations=measured_collectives(),
    algorithm=st.sampled_from(BY_LIBRARY["all_reduce"][:-1]),  # the torus is not an option
)
def test_the_choice_of_a_library_is_never_slower_than_an_algorithm_that_it_has(
    table, operations, algorithm
):
    model, system, rows = table
    link = {"kind": "nvlink", "in_network_reduction": True, "operations": operations}
    system = system | {"ext": {"networks": [link for _ in system["networks"]]}}
    chosen, asked = (
        _evaluate(
            model, system, [row | {"coll_algo": name, "latency_per_step": False} for row in rows]
        )
        for name in ("auto", algorithm)
    )
    assert (chosen.feasible == asked.feasible).all()
    run = chosen.feasible & ~_stalled_and_uneven(model, rows)
    _assert_below(chosen["total_time"][run], asked["total_time"][run], algorithm)


def _stated_stages(row):
    """Whether the ends of a pipeline have fewer or more blocks than other stages, as an execution states."""
    return any(row.get(name, 0) for name in ("first_stage_blocks", "last_stage_blocks"))


def _stalled_and_uneven(model, rows):
    """Whether the law is known not to hold.

    Blocks that stages lack shorten a bubble by their offload traffic only. They should shorten it by the stalls for
    split weights, too, which grow where offload traffic shrinks. Of stages that are stated, chunks are stalled as the
    stage that is stalled longest; and where gradients of weights fill the bubble, less of them leave more of it to the
    stalls, which gradients of inputs wait for.
    """
    return np.array(
        [
            row.get("zero_stage", "auto") in ("3", "fsdp", "owner")
            and (
                model["num_blocks"] % row["pipeline_par"] > 0
                or (_stated_stages(row) and not _exact(row))
            )
            for row in rows
        ]
    )


def _exact(row):
    """Whether stages pass each microbatch at once, and do gradients of weights with those of inputs."""
    plain = row.get("pp_schedule", "1f1b") in ("1f1b", "gpipe")
    return plain and row["pipeline_interleaving"] == 1


@settings(max_examples=draws(15))
@given(table=corrected_tables(), tier=st.sampled_from((1, 2)))
def test_more_memory_is_never_infeasible_and_changes_no_time(table, tier):
    model, system, rows = table
    whole = _evaluate(model, system, rows)
    needs = whole[f"proc_mem_tier{tier}_cap_req"]
    capacity = float(np.nanmedian(needs)) / 2**30 if whole.feasible.any() else 1.0
    system[f"mem{tier}"]["GiB"] = capacity
    found = _evaluate(model, system, rows)
    fits = whole.feasible & (needs <= capacity * 2**30)
    assert (found.feasible == fits).all()
    np.testing.assert_array_equal(found["total_time"][fits], whole["total_time"][fits])


# -- special cases ----------------------------------------------------------------------------------------------------

COUNTED = {"parameters", "padded_parameters"}
"""Counted as published for a model of the published fields alone."""

QUOTED = {"model_flops_per_token", "model_flops_per_second_per_proc", "mfu", "mfu_causal"}
"""Figures that follow from the arithmetic of the model."""


def _assert_same(one, other, *, rtol=0.0, without=COUNTED):
    for name in set(STATS) - without:
        np.testing.assert_allclose(one[name], other[name], rtol=rtol, err_msg=name)


@st.composite
def plain_tables(draw):
    """Tables whose model has the published fields."""
    _, system, _ = table = draw(corrected_tables(6))
    model = {name: table[0][name] for name in document("models", "megatron-22B")}
    return model, system, table[2]


@settings(max_examples=draws(9))
@given(table=plain_tables())
def test_model_fields_that_mean_the_plain_model(table):
    model, system, rows = table
    plain = _rows(table)
    length, heads = model["seq_size"], model["attn_heads"]
    for fields in (
        {"kv_heads": heads},
        {"sliding_window": length},
        {"sliding_window": length + 1, "full_attention_every": 3},
        {"full_attention_every": 2},
        {"tied": True, "positions": 7, "embedding_norm": True, "head_bias": True},
    ):
        _assert_same(_rows((model | fields, system, rows)), plain)
    full = {"sliding_window": max(1, length // 2), "full_attention_every": 1}
    _assert_same(_rows((model | full, system, rows)), plain, rtol=1e-12)


@settings(max_examples=draws(9))
@given(table=corrected_tables(6))
def test_execution_fields_that_mean_the_plain_execution(table):
    model, system, rows = table
    stated = [row | {"grad_comm_dtype": row["datatype"]} for row in rows]
    same = _rows(table, grad_comm_dtype="same")
    _assert_same(_rows((model, system, stated)), same, without=set())
    whole = {"optimizer_sharding": False}
    auto = (model, system, [row for row in rows if row.get("zero_stage", "auto") == "auto"])
    if auto[2]:
        _assert_same(
            _rows(auto, **whole, grad_buffer="full"),
            _rows(auto, **whole, grad_buffer="sharded"),
            without=set(),
        )
    headless = (model | {"vocab": 0, "mtp_layers": 0}, system, rows)
    _assert_same(_rows(headless, ce_impl="fused"), _rows(headless, ce_impl="eager"), without=set())


@settings(max_examples=draws(10))
@given(model=models(), system=systems())
def test_a_ring_of_two_has_one_step(model, system):
    model |= {"hidden": 2 * model["hidden"], "feedforward": 2 * model["feedforward"]}
    model["attn_heads"] *= 2
    system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
    shape = {
        "num_procs": 4,
        "tensor_par": 2,
        "data_par": 2,
        "datatype": next(iter(system["matrix"])),
    }
    shape |= {"optimizer_sharding": True, "tensor_par_comm_type": "rs_ag"}
    shape |= dict.fromkeys(("tensor_par_net", "pipeline_par_net", "data_par_net"), 0)
    table = model, system, [ALONE | CORRECTED | shape | {"batch_size": 8}]
    once, per_step = (_rows(table, latency_per_step=each) for each in (False, True))
    _assert_same(per_step, once)


@settings(max_examples=draws(10))
@given(table=plain_tables())
def test_multiquery_attention_is_a_single_group(table):
    model, system, rows = table
    rows = [row | {"tensor_par_overlap": "none"} for row in rows]
    multiquery = _rows((model, system, rows), attention_type="multiquery")
    single = _rows((model | {"kv_heads": 1}, system, rows), attention_type="multihead")
    _assert_same(multiquery, single, without=COUNTED | QUOTED)


def _megatron(**changes):
    """Estimate on four processors with and without multiquery attention: as a knob, and as a model."""
    model = document("models", "megatron-22B")
    execution = ALONE | CORRECTED | {"num_procs": 4, "tensor_par": 4} | changes
    return (
        calculon.estimate(model | heads, execution | {"attention_type": name}, "a100_80e").stats
        for heads, name in (({}, "multiquery"), ({"kv_heads": 1}, "multihead"))
    )


def test_multiquery_attention_needs_the_arithmetic_of_a_single_group():
    multiquery, single = _megatron()
    assert {name: multiquery[name] for name in QUOTED} == {name: single[name] for name in QUOTED}
    assert multiquery["mfu_causal"] <= multiquery["hfu"]


@pytest.mark.parametrize("comm_type", ["ar", "rs_ag"])
def test_overlapped_multiquery_attention_stores_its_input_once(comm_type):
    multiquery, single = _megatron(tensor_par_overlap="ring", tensor_par_comm_type=comm_type)
    for name in ("block_act_storage_space", "block_act_working_space"):
        assert multiquery[name] == single[name]


# -- published formulas -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("microbatch_size", [1, 4])
def test_a_block_of_llama_with_flash_attention_keeps_34_bytes_per_element(microbatch_size):
    """``4h + (2a + 2g)d + 3f`` elements in 16 bit, and the 4-byte statistic of each head."""
    model = calculon.inputs.model("llama3-8B")
    changes = {"attn_impl": "flash", "microbatch_size": microbatch_size}
    stats = calculon.estimate(model, ALONE | CORRECTED | changes, "a100_80e").stats
    h, a, g, d = model.hidden, model.attn_heads, model.kv_heads, model.attn_size
    expected = 2 * (4 * h + (2 * a + 2 * g) * d + 3 * model.feedforward) + 4 * a
    assert stats["block_act_bytes_per_token"] == expected == 34 * h + 4 * a


@pytest.mark.parametrize("name", ["megatron-22B", "gpt3-175B", "megatron-1T"])
def test_a_block_of_gpt_with_eager_attention_keeps_what_korthikanti_counts(name):
    """Source: Korthikanti et al., arXiv 2205.05198, equation 1."""
    model = calculon.inputs.model(name)
    stats = calculon.estimate(model, ALONE | CORRECTED, "a100_80e").stats
    s, b, h, a = model.seq_size, ALONE["microbatch_size"], model.hidden, model.attn_heads
    assert h == a * model.attn_size
    assert model.feedforward == 4 * h
    assert stats["block_act_storage_space"] == s * b * (34 * h + 5 * a * s)


# -- tables and fields ------------------------------------------------------------------------------------------------


@settings(max_examples=draws(10))
@given(table=corrected_tables(6))
def test_rows_of_a_table_of_two_editions_equal_the_rows_alone(table):
    model, system, rows = table
    published = {name for name in rows[0] if name in PUBLISHED_NAMES}
    if not calculon.inputs.model(model).extensions:
        rows = [*rows, *({k: v for k, v in row.items() if k in published} for row in rows)]
    many = _evaluate(model, system, rows)
    for i, row in enumerate(rows):
        one = _evaluate(model, system, [row])
        assert many.reason[i] == one.reason[0]
        for name in one.names:
            assert many[name][i : i + 1].tobytes() == one[name].tobytes(), name
        if many.feasible[i] and i % 3 == 0:
            stats = calculon.estimate(model, row, system).stats
            assert [stats[n] for n in stats] == [
                None if np.isnan(many[n][i]) else many[n][i] for n in stats
            ]


def test_the_published_keys_round_trip_and_mean_the_published_edition():
    execution = calculon.inputs.execution(RAW)
    assert execution.to_dict() == RAW
    assert list(execution.to_dict()) == list(RAW)
    stated = calculon.inputs.execution(RAW | {"edition": "sc23"})
    assert stated == execution
    assert stated.to_dict() == RAW
    absent, present = (calculon.estimate("megatron-1T", e, "a100_80g").stats for e in (RAW, stated))
    assert absent == present
    assert tuple(absent) == NAMES


def _other(field):
    """Return a value of an optional field of a model that is not its default."""
    if field.declaration.choices:
        return next(choice for choice in field.declaration.choices if choice != field.default)
    if field.name == "norms":  # as many as two halves in turn can have
        return 4
    if field.name in ("expert_feedforward", "shared_feedforward"):  # which ranks split
        return 6400
    return not field.default if field.annotation is bool else 2 if field.default == 1 else 1


SHAPES: dict[str, dict[str, int]] = {
    "bias_after_reduce": {"mlp_bias": True},
    "cp_kv_replicate": {"kv_heads": 4},
    "cp_skip": {"sliding_window": 100},
}
"""What of a model a field of an execution makes no sense without."""


LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 120,
    "qk_rope_head_dim": 40,
    "v_head_dim": 96,
}
"""Fields of latent attention, which are stated together: beside heads of 160."""


def _optional(record):
    fields = [
        f
        for f in spec_fields(record)
        if f.declaration.optional and f.name not in ("edition", "preset")
    ]
    return pytest.mark.parametrize("field", fields, ids=lambda field: field.name)


@_optional(Execution)
def test_a_new_field_of_an_execution_needs_the_corrected_edition(field):
    stating = {"attn_kernel": "a100_80g_sxm", "float8_scaling": "h100_80g_sxm"}
    stating |= dict.fromkeys(("fp8_recipe", "fp8_param_gather"), "h100_80g_sxm")
    name = stating.get(field.name, "a100_80e")  # which states neither kernels nor 8 bits
    system = calculon.inputs.system(name)
    value = others(field.name, system, RAW["datatype"])[0]
    changed = RAW | {field.name: value}
    for execution in (changed, changed | {"edition": "sc23"}):
        with pytest.raises(calculon.SpecError, match=rf"corrected, which {field.name}="):
            calculon.estimate("megatron-1T", execution, "a100_80g")
        assert _evaluate("megatron-1T", "a100_80g", [execution]).reason[0] == "edition_fields"
    shape = {"num_blocks": 4} | SHAPES.get(field.name, {})
    if field.name.startswith(("expert_", "moe_", "ep_", "dispatch_", "combine_", "delay_")):
        shape |= {"num_experts": 8, "experts_per_token": 2, "shared_feedforward": 6400}
    model = calculon.inputs.model(document("models", "megatron-1T") | shape)
    two_stages = RAW | {"pipeline_par": 2, "num_procs": RAW["num_procs"] // 32}
    if field.name in ("ep_overlap", "delay_wgrad"):  # pairs need one stage, or chunks
        two_stages |= {"pipeline_par": 1, "num_procs": RAW["num_procs"] // 64}
        two_stages |= {"activation_recompute": "none", "pipeline_interleaving": 1}
    execution = fitting(model, system, two_stages, field.name, value)
    assert calculon.estimate(model, execution, system).edition == "corrected"
    assert calculon.inputs.execution(changed).to_dict() == changed


OF_EXPERTS: dict[str, dict[str, int]] = {
    "experts_per_token": {},
    "expert_feedforward": {},
    "shared_feedforward": {},
    "shared_gate": {"shared_feedforward": 6400},
    "router_bias": {},
    "expert_bias": {},
    "first_k_dense": {},
    "moe_layer_freq": {},
    "moe_latent": {},
    "router_groups": {"router_groups": 2, "router_group_topk": 1},
    "router_group_topk": {"router_groups": 2},
}
"""Fields of experts, and what of a model they make no sense without."""

GATED = {"linear_attention": "gated_delta", "linear_key_heads": 16, "linear_value_heads": 16}
MAMBA = {"linear_attention": "mamba2", "ssm_heads": 16}
OF_MAMBA = ("ssm_heads", "ssm_head_dim", "ssm_state", "ssm_groups", "ssm_conv", "ssm_chunk")
BESIDE: dict[str, dict[str, Any]] = {
    "chunked_window": {"sliding_window": 512},
    "mtp_layers": {"vocab": 51200},
    "layer_pattern": MAMBA | {"layer_pattern": "M-" * 64},
    **dict.fromkeys(("linear_attention", *GATED, "linear_key_dim", "linear_value_dim"), GATED),
    "linear_conv": GATED,
    **dict.fromkeys(OF_MAMBA, MAMBA),
}
"""Other fields, likewise."""


def stating(field):
    """Return what a model states that has another value of a field, and what it needs beside it."""
    found = {field.name: _other(field)} | (LATENT if field.name in LATENT else {})
    if field.name in OF_EXPERTS:
        found |= {"num_experts": 2} | OF_EXPERTS[field.name]
    beside = BESIDE.get(field.name, {})
    return found | beside


@_optional(Model)
def test_a_new_field_of_a_model_needs_the_corrected_edition(field):
    stated = stating(field)
    changed = document("models", "megatron-1T") | stated
    named = "|".join(stated)
    for execution in (RAW, RAW | {"edition": "sc23"}):
        with pytest.raises(calculon.SpecError, match=rf"corrected, which model: ({named})="):
            calculon.estimate(changed, execution, "a100_80g")
    assert calculon.inputs.model(changed).to_dict() == changed
    assert calculon.estimate(changed, RAW | CORRECTED, "a100_80e").edition == "corrected"
