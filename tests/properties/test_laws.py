"""What holds for every execution in the corrected edition, and which special cases are the plain model."""

import importlib
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import calculon
from calculon import inputs
from calculon.base.records import columns
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.statistics import PARTS_OF_TIME, CorrectedStats
from calculon.hardware.collectives.algorithms import BY_LIBRARY
from calculon.plan.plan import PUBLISHED_NAMES
from tests.declared import others
from tests.draws import draws
from tests.helpers import document, table_bits
from tests.properties.table import (
    Table,
    above,
    collected,
    corrected,
    difference,
    drawn_otherwise,
    excess,
    excess_time,
    excused,
    holds,
    holds_on_changes,
    of_catalog,
)
from tests.properties.test_monotone import BETTER, better_by, figures, lowered, raised
from tests.store import cache
from tests.strategies import CORRECTED, SWITCHES, measured_collectives, models, systems
from tests.twin.memory_error import allowed

STATS = tuple(column.name for column in columns(CorrectedStats))
NULLABLE = {column.name for column in columns(CorrectedStats) if column.nullable}
SPACES = ("weight", "act", "act_grad", "weight_grad", "optimizer")
BUFFERS = ("gathered", "comm_buffer", "fragment", "reserved")
FEW = 3
"""Tables of the laws that need many evaluations."""
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


def _few():
    return corrected()[: draws(FEW)]


@cache
def _with_attention(name):
    """Return the tables with one implementation of attention, where MFU counts what is executed.

    Of Mamba-2 it counts ``7 i N``, a scan, however short chunks are. Of the gated delta rule it counts the convolution,
    which the vector engine executes: ``2 w (2 d_k + d_v)`` for a window of ``w`` tokens. This is at most what is
    executed in addition within chunks of ``C`` tokens, ``C (5 d_k + 3 d_v)``, if sequences have at least ``w`` tokens.
    """
    counted = [
        table
        for table in corrected()
        if table.model.get("linear_attention") != "mamba2"
        and table.model["seq_size"] >= table.model.get("linear_conv", 1)
    ]
    return [table.change(attn_impl=name, matmul_impl="gemm") for table in counted]


# -- every execution --------------------------------------------------------------------------------------------------


def test_times_and_memory_are_sound():
    def unsound(table):
        found = table.found
        wrong = np.zeros(len(found))
        for name in STATS:
            values = found[name]
            null = np.isnan(values)
            wrong += (values < 0) | np.isinf(values) | (null & (name not in NULLABLE))
        for name in ("tp_comm", "pp_comm", "dp_comm"):
            wrong += above(found[f"{name}_exposed_time"], found[f"{name}_link_time"]) > 0
        total = sum(found[name] for name in PARTS_OF_TIME)
        wrong += ~np.isclose(total, found["total_time"], rtol=1e-12, atol=0)
        return np.where(found.feasible, wrong, np.nan)

    holds(unsound, corrected(), least=200)


def test_no_repeated_collective_is_exposed_for_longer_than_it_takes():
    full = {"training": True, "activation_recompute": "full", "seq_par_ag_redo": False}
    changes = (
        {},
        *(full | {"tensor_par_overlap": overlap} for overlap in ("none", "ring", "pipe")),
    )

    def longer(changes, table):
        found = table.change(**changes).found if changes else table.found
        return above(found["recomm_exposed_time"], found["recomm_link_time"])

    compared = 0
    for number, table in enumerate((*corrected(), *of_catalog()[:2])):
        compared += holds(partial(longer, changes[number % len(changes)]), [table], least=0)
    assert compared > 60


def test_without_offloading_the_kinds_of_tensors_fill_the_first_tier():
    def other(table):
        found = table.change(**dict.fromkeys(SWITCHES, False)).found
        spaces = sum(found[f"{name}_space"] for name in (*SPACES, *BUFFERS))
        spaces = spaces + found["act_checkpoint_size"]
        error = np.abs(spaces / found["proc_mem_tier1_cap_req"] - 1) - 1e-12
        return np.where(found["proc_mem_tier2_cap_req"] == 0, error, np.inf)

    holds(other, corrected(), least=200)


@pytest.mark.parametrize("name", SWITCHES)
def test_offloading_never_needs_more_of_the_first_tier(name):
    def more(table):
        return excess(table, table.change(**{name: False}), "proc_mem_tier1_cap_req")

    holds(more, [table.only(lambda row: row[name]) for table in corrected()], least=10)


def test_no_less_is_executed_than_the_model_asks_for():
    """HFU is at least the MFU of the same convention: causal where the kernel skips masked keys."""

    def less(names, table):
        return np.fmax.reduce([above(table.found[name], table.found["hfu"]) for name in names])

    holds(partial(less, ["mfu_causal"]), _with_attention("flash"), least=100)
    holds(partial(less, ["mfu_causal", "mfu"]), _with_attention("eager"), least=100)


def test_flash_attention_has_no_more_arithmetic_than_eager_attention():
    for flash, eager in zip(_with_attention("flash"), _with_attention("eager"), strict=True):
        assert (~(excess(flash, eager, "block_fw_flops") > 0)).all()


def test_a_vocabulary_never_needs_less_time_or_memory():
    names = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")

    def less(table):
        without, found = (table.of(vocab=size, mtp_layers=0) for size in (0, 1000))
        longer = excess_time(without, found, more_gradients=True)
        return np.fmax(excess(without, found, *names), longer)

    holds(less, corrected(), least=200)


IMPROVEMENTS = BETTER | {
    "a higher bandwidth of one network": figures({r"networks\[0\]\.bandwidth": raised}),
    "a lower latency of a step": figures({r"ext\.networks.*\.step_latency": lowered}),
    "a shorter ramp": figures({r"ext\.networks\[\d+\]\.ramp": lowered}),
}


def improvements(number):
    """Return three improvements for a table, by one factor; all of them occur in a few tables."""
    names, factor = sorted(IMPROVEMENTS), (1.001, 2, 16)[number % 3]
    chosen = (names[(3 * number + i) % len(names)] for i in range(3))
    return {name: better_by(factor, IMPROVEMENTS[name]) for name in chosen}


def test_a_better_machine_is_never_slower_overlap_or_not():
    broken = Counter()

    def slower(name, table, improved):
        over = excess_time(improved, table)
        return excused(over, [stalled_and_uneven(table.model, row) for row in table.rows], broken)

    for number, table in enumerate(corrected()):
        compared = holds_on_changes(slower, table, improvements(number))
        assert compared or drawn_otherwise()
    assert broken == {} or drawn_otherwise()


def test_the_choice_of_a_library_is_never_slower_than_an_algorithm_that_it_has():
    algorithms = BY_LIBRARY["all_reduce"][:-1]  # the torus is not an option

    broken = Counter()

    def slower(operations, algorithm, table):
        link = {"kind": "nvlink", "in_network_reduction": True, "operations": operations}
        several = [link for _ in table.system["networks"]]
        measured = table.on(lambda system: system.update(ext={"networks": several}))
        chosen, asked = (
            measured.change(coll_algo=name, latency_per_step=False) for name in ("auto", algorithm)
        )
        over = excess(chosen, asked, "total_time")
        return excused(over, [stalled_and_uneven(table.model, row) for row in table.rows], broken)

    drawn = collected(measured_collectives(), len(corrected()))
    for number, (operations, table) in enumerate(zip(drawn, corrected(), strict=False)):
        algorithm = algorithms[number % len(algorithms)]
        holds(partial(slower, operations, algorithm), [table])
    assert broken == {} or drawn_otherwise()


def _stated_stages(row):
    """Whether the ends of a pipeline have fewer or more blocks than other stages, as an execution states."""
    return any(row.get(name, 0) for name in ("first_stage_blocks", "last_stage_blocks"))


def stalled_and_uneven(model, row):
    """Return why a better machine may be slower for an execution; empty if it is not.

    Blocks that stages lack shorten a bubble by their offload traffic only. They should shorten it by the stalls for
    split weights, too, which grow where offload traffic shrinks. Of stages that are stated, chunks are stalled as the
    stage that is stalled longest; and where gradients of weights fill the bubble, less of them leave more of it to the
    stalls, which gradients of inputs wait for.
    """
    if row.get("zero_stage", "auto") not in ("3", "fsdp", "owner"):
        return ""
    if model["num_blocks"] % row["pipeline_par"] > 0:
        return "stages that lack blocks are stalled"
    return "stages of stated blocks are stalled" if _stated_stages(row) and not _exact(row) else ""


def _exact(row):
    """Whether stages pass each microbatch at once, and do gradients of weights with those of inputs."""
    plain = row.get("pp_schedule", "1f1b") in ("1f1b", "gpipe")
    return plain and row["pipeline_interleaving"] == 1


@pytest.mark.parametrize("tier", [1, 2])
def test_more_memory_is_never_infeasible_and_changes_no_time(tier):
    """Up to the memory error of tier 1 an execution that needs more is evaluated as well."""

    def other(table):
        whole = table.found
        needs = whole[f"proc_mem_tier{tier}_cap_req"]
        capacity = float(np.nanmedian(needs)) / 2**30
        found = table.on(lambda system: system[f"mem{tier}"].update(GiB=capacity)).found
        more = np.ones(len(whole))
        if tier == 1:
            kinds = zip(*(whole.column(name) for name in ("preset", "zero_stage")), strict=True)
            experts = inputs.model(table.model).has_experts
            more = np.array([allowed(preset, zero, experts) for preset, zero in kinds])
        fits = whole.feasible & (needs <= capacity * 2**30 * more)
        same = found["total_time"] == np.where(fits, whole["total_time"], np.nan)
        wrong = (found.feasible != fits) | (fits & ~same)
        return np.where(whole.feasible, wrong, np.nan)

    holds(other, corrected(), least=200)


# -- special cases ----------------------------------------------------------------------------------------------------

COUNTED = {"parameters", "padded_parameters"}
"""Counted as published for a model of the published fields alone."""

QUOTED = {"model_flops_per_token", "model_flops_per_second_per_proc", "mfu", "mfu_causal"}
"""Figures that follow from the arithmetic of the model."""


@cache
def _plain():
    """Return a few tables with models of the published fields."""
    names = document("models", "megatron-22B")
    return [Table({n: t.model[n] for n in names}, t.system, t.rows) for t in _few()]


def test_model_fields_that_mean_the_plain_model():
    def other(fields, rtol, table):
        return difference(table.of(**fields), table, rtol=rtol, without=COUNTED)

    for table in _plain():
        length, heads = table.model["seq_size"], table.model["attn_heads"]
        for fields in (
            {"kv_heads": heads},
            {"sliding_window": length},
            {"sliding_window": length + 1, "full_attention_every": 3},
            {"full_attention_every": 2},
            {"tied": True, "positions": 7, "embedding_norm": True, "head_bias": True},
        ):
            holds(partial(other, fields, 0.0), [table])
        full = {"sliding_window": max(1, length // 2), "full_attention_every": 1}
        holds(partial(other, full, 1e-12), [table])


def test_execution_fields_that_mean_the_plain_execution():
    def datatype(table):
        stated = table.each(lambda row: {"grad_comm_dtype": row["datatype"]})
        return difference(stated, table.change(grad_comm_dtype="same"))

    def buffer(table):
        whole = table.change(optimizer_sharding=False)
        return difference(*(whole.change(grad_buffer=name) for name in ("full", "sharded")))

    def loss(table):
        headless = table.of(vocab=0, mtp_layers=0)
        return difference(*(headless.change(ce_impl=name) for name in ("fused", "eager")))

    auto = [table.only(lambda row: row.get("zero_stage", "auto") == "auto") for table in _few()]
    holds(datatype, _few(), least=100)
    holds(buffer, [table for table in auto if table.rows], least=20)
    holds(loss, _few(), least=100)


@settings(max_examples=draws(4))
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
    table = Table(model, system, [ALONE | CORRECTED | shape | {"batch_size": 8}])
    once, per_step = (table.change(latency_per_step=each) for each in (False, True))
    assert (difference(per_step, once, without=COUNTED) == 0).all()


def test_multiquery_attention_is_a_single_group():
    def other(table):
        alone = table.change(tensor_par_overlap="none")
        multiquery = alone.change(attention_type="multiquery")
        single = alone.of(kv_heads=1).change(attention_type="multihead")
        return difference(multiquery, single, without=COUNTED | QUOTED)

    holds(other, _plain(), least=50)


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


# -- tables and fields ------------------------------------------------------------------------------------------------


def test_rows_of_a_table_of_two_editions_equal_the_rows_alone():
    for table in corrected():
        model, system, rows = table.model, table.system, table.rows[:: len(table.rows) // 2]
        if not calculon.inputs.model(model).extensions:
            rows = [*rows, *({name: row[name] for name in PUBLISHED_NAMES} for row in rows)]
        many = _evaluate(model, system, rows)
        for i, row in enumerate(rows):
            one = _evaluate(model, system, [row])
            assert many.reason[i] == one.reason[0]
            for name in one.names:
                assert many[name][i : i + 1].tobytes() == one[name].tobytes(), (name, row)
            if many.feasible[i] and i % 3 == 0:
                stats = calculon.estimate(model, row, system).stats
                expected = [None if np.isnan(many[n][i]) else many[n][i] for n in stats]
                assert [stats[n] for n in stats] == expected


@pytest.mark.parametrize(
    ("module", "name"),
    [("calculon.estimate.evaluate", "CHUNK_ROWS"), ("calculon.cost.block_tables", "BLOCK_ROWS")],
    ids=["rows of the batch formulas", "blocks of a layer table"],
)
def test_the_size_of_chunks_does_not_show(module, name, monkeypatch):
    rows = [RAW | {"batch_size": 768, "microbatch_size": size} for size in (1, 2, 4, 8, 16, 32, 64)]
    whole = table_bits(_evaluate("megatron-1T", "a100_80e", rows))
    assert np.isfinite(whole.view(float)).all()
    monkeypatch.setattr(importlib.import_module(module), name, 3)
    assert (table_bits(_evaluate("megatron-1T", "a100_80e", rows)) == whole).all()


def test_an_empty_table_has_no_rows():
    result = _evaluate("megatron-1T", "a100_80g", [])
    assert len(result) == len(result["total_time"]) == 0


def _other(field):
    """Return a value of an optional field of a model that is not its default."""
    if field.declaration.choices:
        return next(choice for choice in field.declaration.choices if choice != field.default)
    if field.name == "norms":  # as many as two halves in turn can have
        return 4
    if field.name in ("expert_feedforward", "shared_feedforward"):  # which ranks split
        return 6400
    return not field.default if field.annotation is bool else 2 if field.default == 1 else 1


LATENT = {
    "q_lora_rank": 64,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 120,
    "qk_rope_head_dim": 40,
    "v_head_dim": 96,
}
"""Fields of latent attention, which are stated together: beside heads of 160."""


def _optional(record):
    """Return the fields that only the corrected edition has."""
    fields = (field for field in spec_fields(record) if field.declaration.optional)
    return [field for field in fields if field.name not in ("edition", "preset")]


def test_new_fields_of_an_execution_need_the_corrected_edition():
    """Which has each of them: see ``test_every_value_of_a_field_has_an_execution``."""
    stating = {"attn_kernel": "a100_80g_sxm", "float8_scaling": "h100_80g_sxm"}
    stating |= dict.fromkeys(("fp8_recipe", "fp8_param_gather"), "h100_80g_sxm")
    published = []
    for field in _optional(Execution):
        name = stating.get(field.name, "a100_80e")  # which states neither kernels nor 8 bits
        value = others(field.name, calculon.inputs.system(name), RAW["datatype"])[0]
        changed = RAW | {field.name: value}
        published += [changed, changed | {"edition": "sc23"}]
        with pytest.raises(calculon.SpecError, match=rf"corrected, which {field.name}="):
            calculon.estimate("megatron-1T", changed, "a100_80g")
        assert calculon.inputs.execution(changed).to_dict() == changed
    assert {*_evaluate("megatron-1T", "a100_80g", published).reason} == {"edition_fields"}


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


def test_new_fields_of_a_model_need_the_corrected_edition():
    for field in _optional(Model):
        stated = stating(field)
        changed = document("models", "megatron-1T") | stated
        named = "|".join(stated)
        with pytest.raises(calculon.SpecError, match=rf"corrected, which model: ({named})="):
            calculon.estimate(changed, RAW, "a100_80g")
        assert calculon.inputs.model(changed).to_dict() == changed
