"""The scalar twin knows every field of the specs and every named value, and agrees on all statistics.

`TWIN_TABLES` in the environment asks for another number of tables than in the suite.
"""

import os
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings

import calculon
from calculon.hardware.engine import Engine
from calculon.hardware.extension import AttentionKernel, Extension, Link
from calculon.hardware.host import Host
from calculon.hardware.kernels.launch import Launch
from calculon.hardware.kernels.stream import Stream
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.memory_use import MemoryUse
from calculon.spec.execution import Execution
from calculon.spec.fields import spec_fields
from calculon.spec.lists_of_counts import ListsOfCounts
from calculon.spec.model import Model
from tests import twin
from tests.helpers import differences, document
from tests.properties import test_twin
from tests.properties.test_twin_corrected import disagreements
from tests.strategies import every_table

TABLES = int(os.environ.get("TWIN_TABLES", "60"))

REASONS = test_twin.REASONS | {
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
        "schedule_needs_training",
        "layout_stated_once",
        "listed_once",
        "listed_blocks",
        "stage_blocks",
        "ends_as_blocks",
        "overlap_needs_work",
    },
    28: {"dp_shard_split", "fsdp_unit_split", "owner_split", "whole_weights_offload"},
    29: {"mesh_size", "mesh_even"},
    30: {"matmul_wider", "matmul_engine"},
    31: {"multiquery_heads", "kv_heads_split"},
    32: {
        "state_dtype_needs_moments",
        "main_grad_needs_small_gradients",
        "grad_sums_need_small_gradients",
    },
    33: {"positions_cover_sequence"},
    34: {"attention_kernel", "kernel_needs_flash"},
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
        "host": Host,
    }
    others = (
        "kernels",  # tests/hardware/kernels has them by hand
        "processing_mode",
    )
    own = [key for key in _keys(Extension) if key not in others]
    assert own == list(twin.EXTENSIONS)
    assert {name: _keys(record) for name, record in records.items()} == twin.EXTENSIONS
    kind = next(field for field in spec_fields(Link) if field.name == "kind")
    assert kind.declaration.choices == twin.LINK_KINDS


# -- agreement --------------------------------------------------------------------------------------------------------


def _twin(model, row, system):
    try:
        return twin.estimate(model, row, system), None
    except (twin.Rejected, twin.DoesNotFit) as error:
        return None, error.rule


def test_reasons_and_statistics_of_executions_with_all_fields():
    outcomes, drawn, stated = Counter(), defaultdict(set), defaultdict(set)
    fields_of_model = [field for field in spec_fields(Model) if field.declaration.optional]

    @settings(max_examples=TABLES)
    @given(table=every_table(9, contradicting=3))
    def agree(table):
        model, system, rows = table
        found = calculon.evaluate(model, system, calculon.Plan.from_records(rows))
        for i, row in enumerate(rows):
            expected, rule = _twin(model, row, system)
            outcomes[rule] += 1
            if expected is None:
                assert found.reason[i] in REASONS[rule]
                continue
            assert found.reason[i] == ""
            for name, value in {**twin.OPTIONS, **row}.items():
                drawn[name].add(value)
            for field in fields_of_model:
                stated[field.name].add(model.get(field.key, field.default))
            ours = {n: None if np.isnan(found[n][i]) else float(found[n][i]) for n in found.names}
            assert disagreements(ours, expected) == []

    agree()
    assert outcomes[None] > 0.6 * sum(outcomes.values())
    assert set(drawn) == set(twin.known())
    missing = set()
    for field in spec_fields(Execution):
        if field.name == "preset":  # a name without effect
            continue
        possible = set(field.declaration.choices) - {"sc23"}
        if isinstance(field.declaration.choices, ListsOfCounts):
            possible = {""}
        if field.annotation is bool:
            possible = {False, True}
        missing |= {(field.name, value) for value in possible - drawn[field.name]}
        never = f"{field.name} is never drawn: add it to OPTIONS of tests/strategies.py"
        assert len(drawn[field.name]) > 1 or field.name == "edition", never
    assert len(missing) < 3, missing
    for field in fields_of_model:
        never = f"{field.name} is never drawn: add it to extended_models of tests/strategies.py"
        assert len(stated[field.name]) > 1, never


@settings(max_examples=TABLES // 2)
@given(table=every_table(3))
def test_every_layer_of_executions_with_all_fields(table):
    model, system, rows = table
    for row in rows:
        if row.get("dp_shard"):
            continue
        try:
            found = calculon.estimate(model, row, system, layers=True).layers
        except calculon.CalculonError:
            continue
        for ours, theirs in zip(found, twin.layers(model, row, system), strict=True):
            assert differences(ours, theirs) == []


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
SETTLED = {
    "moments of bfloat16 are read as such by the last operation of SGD with momentum": (
        {},
        {
            "optimizer": "sgd_momentum",
            "optimizer_impl": "foreach",
            "optimizer_state_dtype": "bfloat16",
        },
        {},
        "block_optim_mem_accessed",
    ),
    "gains of the norm of queries and keys are stored like other weights": (
        {"qk_norm": "full"},
        {"datatype": "float32", "matmul_dtype": "float16"},
        WIDE,
        "block_weight_space",
    ),
    "a product in tiles writes the gradient of its input as any other does": (
        {},
        {"matmul_dtype": "float8", **TILED},
        FLOAT8,
        "block_agrad_mem_accessed",
    ),
    "the host launches on beside collectives inside of a stage, with and without a pipeline": (
        {},
        {
            "tensor_par": 4,
            "num_procs": 4,
            "tensor_par_comm_type": "p2p_rs_ag",
            "launch_mode": "eager",
        },
        {"ext": {"launch": {"kernel": 0, "eager": 0.02}}},
        "block_fw_time",
    ),
}
"""Changes of model, execution and system, and a statistic."""


@pytest.mark.parametrize("what", SETTLED)
def test_what_was_settled_stays_so(what):
    model, execution, system, name = SETTLED[what]
    large = {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}}
    question = MODEL | model, ALONE | execution, SYSTEM | system | large
    expected = twin.estimate(*question)[name]
    assert calculon.estimate(*question).stats[name] == pytest.approx(expected, rel=1e-9)


def test_a_bias_that_is_not_added_is_not_launched():
    model = MODEL | {"mlp_bias": True}
    system = SYSTEM | {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}, "ext": {"launch": {"kernel": 1e-3}}}
    one = ALONE | {"bias_after_reduce": True}
    two = one | {"tensor_par": 2, "num_procs": 2}
    alone, beside = (
        calculon.evaluate(model, system, calculon.Plan.from_records(rows))["fw_time"][0]
        for rows in ([one], [one, two])
    )
    assert alone == pytest.approx(twin.estimate(model, one, system)["fw_time"], rel=1e-9)
    assert beside == alone


def test_layers_share_the_optimizer_with_as_many_as_the_block():
    system = SYSTEM | {"mem1": SYSTEM["mem1"] | {"GiB": 10**6}}
    form = {"zero_stage": "1", "dp_shard": 2, "optimizer_sharding": True}
    execution = ALONE | form | {"data_par": 8, "num_procs": 8}
    found = calculon.estimate(MODEL, execution, system, layers=True)
    total = sum(layer["optimizer"] for layer in found.layers)
    assert total == pytest.approx(found.stats["block_optimizer_space"], rel=1e-9)
