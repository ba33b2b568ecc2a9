"""The scalar twin knows every field of the specs and every named value, and agrees on all statistics.

``scripts/test --large`` draws more tables.
"""

import copy
from contextlib import suppress
from itertools import product

import numpy as np
import pytest

import calculon
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.model import Model
from calculon.declarations.recipes import RECIPES
from calculon.hardware.extension import AttentionKernel, ExpertLibrary, Extension, Link
from calculon.hardware.kernels.kernel import Launch
from calculon.hardware.kernels.laws import Gemm
from calculon.hardware.kernels.stated_rates import Stream
from calculon.hardware.processor import Engine, Host, MemoryUse, RecipeUse
from calculon.plan.columns import field_of
from tests import twin
from tests.declared import OPTIONAL, fitting, others
from tests.draws import SEED, draws
from tests.helpers import differences, document, unlabeled
from tests.properties import test_twin
from tests.properties.table import Table, holds, with_all_fields
from tests.properties.test_laws import stating
from tests.properties.test_twin import disagreements

REASONS = test_twin.REASONS | {
    1: {"edition_fields"},
    23: {
        "linear_comm",
        "tp_impl_comm",
        "tp_async_needs_backward",
        "copies_need_split",
        "scope_needs_compiler",
        "rotary_needs_kernels",
        "user_buffers_need_ring",
        "hidden_needs_overlap",
        "scaling_needs_float8",
        "bias_needs_reduction",
        "mul_sum_needs_vector",
        "latent_overlap",
        "latent_comm",
        "latent_tp_impl",
        "mtp_overlap",
        "mtp_tp_impl",
        "experts_tensor_par_overlap",
        "experts_tp_impl",
        "experts_matmul_impl",
    },
    18: {"tokens_split", "pattern_comm", "cp_sequence"},
    19: {
        "hidden_split",
        "feedforward_split",
        "attn_heads_split",
        "linear_heads_split",
        "linear_groups_split",
    },
    24: {
        "zero_stage_data_par",
        "zero_stage_training",
        "zero_stage_sharding",
        "grad_buffer_auto",
    },
    25: {f"{name}_needs_form" for name in twin.FORMS},
    26: {"latency_once"},
    27: {
        "stages_need_pipeline",
        "stages_need_one_chunk",
        "dualpipe_even",
        "dualpipe_filled",
        "dualpipe_replicas",
        "folded_layout",
        "schedule_needs_training",
        "layout_stated_once",
        "listed_once",
        "listed_blocks",
        "modules_place",
        "stage_blocks",
        "ends_as_blocks",
        "overlap_needs_work",
    },
    28: {
        "dp_shard_split",
        "expert_shards_split",
        "expert_replicas_apart",
        "fsdp_unit_split",
        "owner_split",
        "owner_experts",
        "whole_weights_offload",
    },
    29: {"mesh_size", "mesh_even"},
    30: {
        "matmul_wider",
        "matmul_engine",
        "recipe_rate",
        "recipe_storage",
        "recipe_products",
        "recipe_gemm",
        "recipe_modules",
        "narrow_attention",
        "gather_needs_recipe",
        "gather_needs_training",
        "gather_keeps_weights",
        "gather_without_modules",
    },
    31: {"multiquery_heads", "kv_heads_split", "latent_multiquery"},
    32: {
        "state_dtype_needs_moments",
        "main_grad_needs_small_gradients",
        "grad_sums_need_small_gradients",
    },
    33: {"positions_cover_sequence"},
    35: {
        "expert_par_net_used",
        "expert_par_needs_experts",
        "expert_tensor_par_needs_experts",
        "experts_split",
        "experts_width",
        "expert_groups",
        "expert_mesh",
        "experts_split_sequences",
        "expert_network_size",
        "experts_width_inside",
        "moe_dispatcher_needs_experts",
        "moe_capacity_percent_needs_experts",
        "imbalance_largest",
        "padding_needs_capacity",
        "padding_has_no_imbalance",
        "dispatch_dtype_needs_exchange",
        "dispatch_dtype_narrower",
        "combine_dtype_needs_exchange",
        "combine_dtype_narrower",
        "library_needs_ranks",
        "library_needs_whole_experts",
        "library_does_not_pad",
        "library_needs_ports",
    },
    36: {
        "ep_overlap_needs_exchange",
        "shared_overlap_needs_exchange",
        "shared_overlap_needs_experts",
        "shared_overlap_latents",
        "shared_overlap_alone",
        "shared_overlap_stores",
        "pairs_predict",
        "delay_needs_pairs",
        "halves_of_microbatch",
        "halves_split",
        "pairs_train",
        "pairs_datatype",
        "pairs_store",
        "pairs_schedule",
        "schedule_has_pairs",
        "pairs_stay",
        "pairs_synchronize_once",
        "pairs_need_microbatches",
        "pattern_ep_overlap",
    },
    34: {"attention_kernel", "kernel_needs_flash"},
    37: {
        "context_par_net_used",
        *(f"cp_{name}_needs_exchange" for name in ("a2a_size", "kv_replicate", "balance", "skip")),
        "cp_comm_needs_parts",
        "cp_sequence",
        "cp_a2a_inner",
        "cp_heads",
        "cp_kv_heads",
        "cp_kv_copies",
        "cp_kept_heads",
        "cp_fused_attention",
        "cp_skip_window",
        "cp_linear_heads",
        "cp_linear_groups",
    },
    38: {
        "packed_needs_attention",
        "packed_needs_flash",
        "pack_imbalance_needs_documents",
        "pack_imbalance_largest",
    },
}
"""Reasons of ours for the numbered requirements of the twin."""


# -- what the twin knows ----------------------------------------------------------------------------------------------


def _values(field):
    """Return what a field can be: its named values, or a type."""
    choices = field.declaration.choices
    return field.annotation if isinstance(choices, ListsOfCounts) else choices or field.annotation


def test_the_twin_knows_every_field_of_an_execution_and_every_value_of_it():
    assert {field.name: _values(field) for field in spec_fields(Execution)} == twin.known()
    optional = [field for field in spec_fields(Execution) if field.declaration.optional]
    assert {field.name: field.default for field in optional} == twin.OPTIONS


def test_the_twin_knows_every_field_of_a_model_and_every_value_of_it():
    assert {field.name: _values(field) for field in spec_fields(Model)} == twin.known_of_models()


def _keys(record):
    return tuple(field.declaration.key or field.name for field in spec_fields(record))


def test_the_twin_knows_every_addition_to_a_system():
    records = {
        "traffic": Stream,
        "attention": AttentionKernel,
        "matrix": Engine,
        "gemm": Gemm,
        "launch": Launch,
        "networks": Link,
        "memory": MemoryUse,
        "ep_library": ExpertLibrary,
        "linear_efficiency": (),  # a number
        "recipes": RecipeUse,
        "host": Host,
    }
    others = (
        "kernels",  # tests/hardware/kernels has them by hand
        "processing_mode",
        *("power", "price", "serving"),  # no step of training depends on them
    )
    own = [key for key in _keys(Extension) if key not in others]
    assert own == list(twin.EXTENSIONS)
    below = {name: record and _keys(record) for name, record in records.items()}
    assert below == twin.EXTENSIONS
    kind = next(field for field in spec_fields(Link) if field.name == "kind")
    assert kind.declaration.choices == twin.LINK_KINDS


# -- agreement --------------------------------------------------------------------------------------------------------


def _twin(model, row, system):
    try:
        return twin.estimate(model, row, system), None
    except (twin.Rejected, twin.DoesNotFit) as error:
        return None, error.rule


def disagreement(table):
    """Count the statistics of each execution that differ from those of the twin, and wrong reasons."""
    found = [_wrong(table, i) for i in range(len(table.rows))]
    print(*filter(None, found))  # which is shown with a failure
    return np.array([len(wrong) for wrong in found])


def _wrong(table, i):
    reason = table.found.reason[i]
    expected, rule = _twin(table.model, table.rows[i], table.system)
    if expected is None:
        return [] if reason in REASONS.get(rule, ()) else [(reason, rule)]
    if reason:
        return [(reason, "")]
    ours = {name: float(table.found[name][i]) for name in table.found.names}
    return disagreements({n: None if np.isnan(v) else v for n, v in ours.items()}, expected)


def test_reasons_and_statistics_of_executions_with_all_fields():
    tables = with_all_fields()
    holds(disagreement, tables, least=120)
    feasible = np.concatenate([table.found.feasible for table in tables])
    assert feasible.mean() > 0.6
    required = [field for field in spec_fields(Execution) if not field.declaration.optional]
    values = {(f.name, value) for f in required for value in f.declaration.choices or ()}
    values |= {(f.name, value) for f in required if f.annotation is bool for value in (True, False)}
    assert values <= _drawn() or SEED > 1


def _drawn():
    """Return the values of optional fields with which the executions above run."""
    run = [
        {**twin.OPTIONS, **row}
        for table in with_all_fields()
        for row, feasible in zip(table.rows, table.found.feasible, strict=True)
        if feasible
    ]
    return {(name, value) for row in run for name, value in row.items()}


def test_models_that_state_a_field():
    system = SYSTEM | {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}}
    row = ALONE | {"bias_after_reduce": False}
    for field in spec_fields(Model):
        if field.declaration.optional:
            model = document("models", "megatron-1T") | stating(field)
            ours = calculon.estimate(model, row, system).stats
            assert disagreements(ours, twin.estimate(model, row, system)) == [], field.name


def test_every_value_of_a_field_has_an_execution():
    """Values that are seldom drawn, or not with what they need."""
    system, drawn, missing = _machine(), _drawn(), set()
    names = [name for name in OPTIONAL if name not in ("edition", "preset")]
    wanted = {(name, value) for name in names for value in field_of(name).others} - drawn
    models = (DENSE, DENSE | {"mlp_bias": True}, MIXED, LATENT, LINEAR)
    tables = [Table(model, system, []) for model in models]
    machine = calculon.inputs.system(system)
    decoded = [(table, calculon.inputs.model(table.model)) for table in tables]
    candidates = list(product(decoded, _forms()))
    for name, value in sorted(wanted, key=str):
        for candidate in candidates:
            (table, model), form = candidate
            if row := _made(model, machine, form, name, value):
                table.rows.append(row)
                candidates.remove(candidate)  # and try it first for the next value
                candidates.insert(0, candidate)
                break
        else:
            missing.add((name, value))
    assert missing == set()
    made = [table for table in tables if table.rows]
    assert all(table.found.feasible.all() for table in made)
    holds(disagreement, made, least=len(wanted))


DENSE = {
    **{"hidden": 64, "feedforward": 192, "attn_heads": 8, "kv_heads": 4, "attn_size": 8},
    **{"num_blocks": 4, "seq_size": 64, "vocab": 96, "rotary": 1.0, "sliding_window": 9},
}
MIXED = DENSE | {"num_experts": 8, "experts_per_token": 2, "shared_feedforward": 64}
GATED = {"linear_attention": "gated_delta", "linear_key_heads": 8, "linear_value_heads": 8}
LATENT = {
    **{"kv_lora_rank": 16, "qk_nope_head_dim": 6, "qk_rope_head_dim": 2, "v_head_dim": 8},
    **{"attn_heads": 8, "attn_size": 8, "hidden": 64, "feedforward": 192, "num_blocks": 4},
    **{"seq_size": 64, "num_experts": 8, "experts_per_token": 2},
}
LINEAR = {
    **{"attn_heads": 8, "attn_size": 8, "hidden": 64, "feedforward": 192, "num_blocks": 4},
    **{"seq_size": 64, **GATED},
}


def _machine():
    """Return a system that runs every type and recipe, and each kernel of attention."""
    found = copy.deepcopy(document("systems", "h100_80g_sxm"))
    for name in ("matrix", "vector"):
        found[name] |= {"float32": found[name]["float16"]}
    found["mem1"]["GiB"] = 10**6
    ext = found["ext"]
    kernels = ext["kernels"]["attention"].items()  # of which the twin knows no curves
    ext["kernels"] = {"attention": {name: one for name, one in kernels if "law" in one}}
    ext.setdefault("matrix", {})
    ext["matrix"] |= dict.fromkeys(("tfloat32", "float4"), found["matrix"]["float16"])
    ext["recipes"] = {name: {} for name in RECIPES}
    return found


def _forms():
    """Return executions on few processors, which values of fields are stated with."""
    stages = ALONE | {"pipeline_par": 2, "data_par": 4, "num_procs": 8, "batch_size": 64}
    flat = stages | {"pipeline_par": 1, "num_procs": 4}
    wide = stages | {"tensor_par": 2, "tensor_par_comm_type": "rs_ag", "num_procs": 16}
    return (
        stages,
        flat,
        wide,
        wide | {"tensor_par_overlap": "ring"},
        flat | {"datatype": "float32"},
        wide | {"tensor_par_comm_type": "ar"},
        flat | {"expert_par": 2},
    )


def _made(model, system, form, name, value):
    """Return an execution with a value of a field, or None if the model has none."""
    if value in others(name, system, form["datatype"]):
        with suppress(AssertionError):
            return fitting(model, system, form, name, value)
    return None


def test_every_layer_of_executions_with_all_fields():
    compared = 0
    for table in with_all_fields():
        runs = zip(table.rows, table.found.feasible, strict=True)
        rows = [row for row, feasible in runs if feasible and not row.get("dp_shard")]
        for row in rows[: draws(1)]:
            found = calculon.estimate(table.model, row, table.system, layers=True).layers
            for ours, theirs in zip(
                found, twin.layers(table.model, row, table.system), strict=True
            ):
                assert differences(unlabeled(ours), theirs) == [], row
            compared += 1
    assert compared > 10


# -- what the package had otherwise ----------------------------------------------------------------------------

MODEL = document("models", "megatron-22B")
SYSTEM = document("systems", "a100_80e")
ALONE = document("examples", "3072_t4_p64_d12_mbs4_full") | {
    "edition": "corrected",
    "preset": "published",
    "num_procs": 1,
    "tensor_par": 1,
    "pipeline_par": 1,
    "data_par": 1,
    "batch_size": 16,
    "microbatch_size": 2,
    "fused_activation": False,
    "activation_recompute": "none",
    "optimizer_sharding": False,
    "tensor_par_comm_type": "ar",
}
WIDE = {name: SYSTEM[name] | {"float32": SYSTEM[name]["float16"]} for name in ("matrix", "vector")}
TILED = {"tensor_par": 4, "num_procs": 4, "tensor_par_overlap": "ring"}
FLOAT8 = {"matrix": SYSTEM["matrix"] | {"float8": SYSTEM["matrix"]["float16"]}}
NOT_ADDED = {"bias_after_reduce": True}
SETTLED = {
    "moments of bfloat16 are read as such by the last operation of SGD with momentum": (
        *({}, {}),
        {"optimizer": "sgd_momentum", "optimizer_impl": "foreach"}
        | {"optimizer_state_dtype": "bfloat16"},
    ),
    "gains of the norm of queries and keys are stored like other weights": (
        *({"qk_norm": "full"}, WIDE),
        {"datatype": "float32", "matmul_dtype": "float16"},
    ),
    "a product in tiles writes the gradient of its input as any other does": (
        *({}, FLOAT8),
        {"matmul_dtype": "float8", **TILED},
    ),
    "the host launches on beside collectives inside of a stage, with and without a pipeline": (
        *({}, {"ext": {"launch": {"kernel": 0, "eager": 0.02}}}),
        {"tensor_par": 4, "num_procs": 4, "tensor_par_comm_type": "p2p_rs_ag"}
        | {"launch_mode": "eager"},
    ),
    "a bias that is not added is not launched": (
        *({"mlp_bias": True}, {"ext": {"launch": {"kernel": 1e-3}}}),
        NOT_ADDED,
        NOT_ADDED | {"tensor_par": 2, "num_procs": 2},
    ),
}
"""Changes of model and system, and executions."""


def test_what_was_settled_stays_so():
    large = {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}}
    for model, system, *rows in SETTLED.values():
        table = Table(MODEL | model, SYSTEM | system | large, [ALONE | row for row in rows])
        assert table.found.feasible.all()
        holds(disagreement, [table])


ROUTED = {"num_experts": 8, "experts_per_token": 2, "expert_feedforward": 2048}
SPREAD = {"expert_par": 4, "data_par": 4, "num_procs": 4, "mesh_order": "tp-dp-pp"}
BUSY = SPREAD | {"moe_imbalance_percent": 130}
PADDED = SPREAD | {"moe_capacity_percent": 100, "moe_pad_to_capacity": True}
UNFUSED = {"rotary_impl": "unfused", "moe_router_fusion": False, "moe_permute_fusion": False}
INSIDE = {"tensor_par": 2, "expert_tensor_par": 2, "expert_par": 2, "data_par": 2}
LAUNCHED = (
    {"launch_mode": "eager"},
    {"launch_mode": "graph_parts"},
    {"launch_mode": "eager", "activation_recompute": "full"},
    {"launch_mode": "eager", "recompute_modules": "moe"},
)
WAITING = (
    *(
        BUSY | form | {"moe_dispatcher": dispatcher}
        for dispatcher in ("alltoall", "allgather", "deepep")
        for form in LAUNCHED
    ),
    BUSY | {"launch_mode": "eager", "fusion": "compile", "recompute_modules": "norm+moe_act"},
    BUSY | {"launch_mode": "eager", "fusion": "compile"} | UNFUSED,
    BUSY | {"launch_mode": "graph"},
    PADDED | {"launch_mode": "eager"},
    PADDED | {"launch_mode": "graph"},
    BUSY | INSIDE | {"launch_mode": "compile", "tensor_par_comm_type": "rs_ag"},
    BUSY | {"launch_mode": "eager", "ep_overlap": "two_batch"},
    {"launch_mode": "eager"},
)
SHARED = BUSY | {"launch_mode": "eager", "moe_shared_overlap": True, "recompute_modules": "moe"}


@pytest.mark.parametrize(
    "changes",
    [{}, {"shared_feedforward": 512, "router_bias": True, "rotary": 1.0}, {"expert_bias": True}],
)
@pytest.mark.parametrize("slower", [1, 20])
def test_the_host_waits_for_the_rows_of_experts(changes, slower):
    """Launches take about as long as the kernels, or longer."""
    seconds = {"eager": 1e-3, "compile": 1e-4, "graph": 2e-5}
    launch = {name: time * slower for name, time in seconds.items()} | {"kernel": 1e-5}
    launch["training"] = 3e-3 if slower > 1 else 0.0
    system = SYSTEM | {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}, "ext": {"launch": launch}}
    rows = [*WAITING, SHARED] if "shared_feedforward" in changes else WAITING
    model = MODEL | ROUTED | changes | {"activation": "swiglu"}
    table = Table(model, system, [ALONE | row for row in rows])
    assert table.found.feasible.all()
    holds(disagreement, [table])


def test_layers_share_the_optimizer_with_as_many_as_the_block():
    system = SYSTEM | {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}}
    form = {"zero_stage": "1", "dp_shard": 2, "optimizer_sharding": True}
    execution = ALONE | form | {"data_par": 8, "num_procs": 8}
    found = calculon.estimate(MODEL, execution, system, layers=True)
    total = sum(layer["optimizer"] for layer in found.layers)
    assert total == pytest.approx(found.stats["block_optimizer_space"], rel=1e-9)
