"""Changes that are tried: what the framework has, and nothing that computes something else."""

from math import log2

from calculon import inputs
from calculon.advise.neighbors import (
    QUESTION,
    SWITCHES,
    batch_changes,
    processor_changes,
    single_changes,
)
from calculon.advise.variations import Variations
from calculon.declarations.named_values import PRESETS
from calculon.declarations.presets import find_preset
from calculon.plan.columns import DEFAULTS, field_of
from calculon.plan.plan import NAMES
from tests.cases import for_each

SYSTEM = inputs.system("h100_80g_sxm")
SPLIT = {"num_procs": 16, "tensor_par": 2, "pipeline_par": 2, "batch_size": 48}
NUMERICS = (
    "datatype",
    "optimizer",
    "grad_dtype",
    "fp8_recipe",
    "training",
    "seq_length",
    "edition",
)


def _changes(model, preset, named=(), **changes):
    execution = inputs.execution(SPLIT | {"preset": preset} | changes)
    shape = inputs.model(model)
    return execution, single_changes(
        shape, execution, SYSTEM, Variations(shape, execution).broken, named
    )


def _value(change):
    choices = field_of(change.field).declaration.choices
    return choices[change.value] if choices else change.value


@for_each("preset", PRESETS[1:])
def test_frameworks_have_what_is_tried(preset):
    execution, found = _changes("mixtral-8x7B", preset)
    entries = find_preset(preset).entries
    for change in found:
        assert find_preset(preset).problem(change.field, _value(change)) is None
        assert _value(change) != getattr(execution, change.field)
        assert change.field in entries or change.field not in DEFAULTS
        assert change.field not in (*QUESTION, *NUMERICS)
    assert len({(change.field, change.value) for change in found}) == len(found)


def test_every_field_with_named_values_and_a_control_is_tried():
    controls = [
        name for name in NAMES if field_of(name).named and field_of(name).declaration.control
    ]
    assert sorted(SWITCHES) == sorted(controls)


def test_degrees_are_divisors_and_near_by_their_ratio():
    _, found = _changes("llama3-8B", "megatron-lm")
    tensor = {change.value: change.distance for change in found if change.field == "tensor_par"}
    assert tensor == {value: abs(log2(value / 2)) for value in (1, 4, 8, 16)}
    stages = {change.value for change in found if change.field == "pipeline_par"}
    assert stages == {1, 4, 8, 16}
    sizes = {change.value for change in found if change.field == "microbatch_size"}
    assert sizes == {2, 3, 4, 6, 8, 12, 16, 24, 48}
    assert all(change.distance == 1 for change in found if field_of(change.field).named)


def test_published_executions_have_published_fields_and_networks():
    execution = inputs.execution("3072_t4_p64_d12_mbs4_full")
    shape = inputs.model("megatron-1T")
    found = single_changes(shape, execution, SYSTEM)
    fields = {change.field for change in found}
    assert fields.isdisjoint(DEFAULTS)
    assert {"tensor_par_net", "pipeline_par_net", "data_par_net"} <= fields


def test_fields_that_broken_rules_name_are_tried():
    _, found = _changes("llama3-8B", "common", ("datatype", "fsdp_unit"), fsdp_unit=3)
    values = {name: {_value(m) for m in found if m.field == name} for name in NAMES}
    assert values["datatype"] == {*SYSTEM.datatypes} - {"bfloat16"}
    assert {1, 2, 4} <= values["fsdp_unit"]


def test_processors_that_the_degrees_need_are_tried_where_they_are_named():
    _, found = _changes("llama3-8B", "common", ("num_procs",), data_par=7)
    assert [m.value for m in found if m.field == "num_procs"] == [2 * 2 * 7]


def test_other_batches_and_processors_come_nearest_first():
    execution, _ = _changes("llama3-8B", "common")
    for found in (batch_changes(execution), processor_changes(execution, fewer=True)):
        distances = [change.distance for change in found]
        assert distances == sorted(distances)
        assert min(distances) > 0
    assert {m.value for m in processor_changes(execution, fewer=False)} == {
        16 << k for k in range(1, 7)
    }


def test_graphs_are_of_parts_if_experts_drop_no_rows():
    padded = {"moe_capacity_percent": 125, "moe_pad_to_capacity": True}
    for model, changes, graphs in (
        ("llama3-8B", {}, {"graph", "graph_parts"}),
        ("mixtral-8x7B", {}, {"graph_parts"}),
        ("mixtral-8x7B", padded, {"graph", "graph_parts"}),
    ):
        _, found = _changes(model, "megatron-lm", **changes)
        assert {_value(one) for one in found if one.field == "launch_mode"} == graphs
    _, found = _changes("llama3-8B", "deepspeed")
    assert "launch_mode" not in {one.field for one in found}
