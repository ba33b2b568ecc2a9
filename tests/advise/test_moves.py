"""Changes that are tried: what the framework has, and nothing that computes something else."""

from math import log2

from calculon import inputs
from calculon.advise.moves import QUESTION, moves, of_batch, of_processors
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


def _moves(model, preset, named=(), **changes):
    execution = inputs.execution(SPLIT | {"preset": preset} | changes)
    shape = inputs.model(model)
    return execution, moves(shape, execution, SYSTEM, Variations(shape, execution), named)


def _value(move):
    choices = field_of(move.field).declaration.choices
    return choices[move.value] if choices else move.value


@for_each("preset", PRESETS[1:])
def test_frameworks_have_what_is_tried(preset):
    execution, found = _moves("mixtral-8x7B", preset)
    entries = find_preset(preset).entries
    for move in found:
        assert find_preset(preset).problem(move.field, _value(move)) is None
        assert _value(move) != getattr(execution, move.field)
        assert move.field in entries or move.field not in DEFAULTS
        assert move.field not in (*QUESTION, *NUMERICS)
    assert len({(move.field, move.value) for move in found}) == len(found)


def test_degrees_are_divisors_and_near_by_their_ratio():
    _, found = _moves("llama3-8B", "megatron-lm")
    tensor = {move.value: move.distance for move in found if move.field == "tensor_par"}
    assert tensor == {value: abs(log2(value / 2)) for value in (1, 4, 8, 16)}
    stages = {move.value for move in found if move.field == "pipeline_par"}
    assert stages == {1, 4, 8, 16}
    sizes = {move.value for move in found if move.field == "microbatch_size"}
    assert sizes == {2, 3, 4, 6, 8, 12, 16, 24, 48}
    assert all(move.distance == 1 for move in found if field_of(move.field).named)


def test_published_executions_have_published_fields_and_networks():
    execution = inputs.execution("3072_t4_p64_d12_mbs4_full")
    shape = inputs.model("megatron-1T")
    found = moves(shape, execution, SYSTEM, Variations(shape, execution))
    fields = {move.field for move in found}
    assert fields.isdisjoint(DEFAULTS)
    assert {"tensor_par_net", "pipeline_par_net", "data_par_net"} <= fields


def test_fields_that_broken_rules_name_are_tried():
    _, found = _moves("llama3-8B", "common", ("datatype", "fsdp_unit"), fsdp_unit=3)
    values = {name: {_value(m) for m in found if m.field == name} for name in NAMES}
    assert values["datatype"] == {*SYSTEM.datatypes} - {"bfloat16"}
    assert {1, 2, 4} <= values["fsdp_unit"]


def test_processors_that_the_degrees_need_are_tried_where_they_are_named():
    _, found = _moves("llama3-8B", "common", ("num_procs",), data_par=7)
    assert [m.value for m in found if m.field == "num_procs"] == [2 * 2 * 7]


def test_other_batches_and_processors_come_nearest_first():
    execution, _ = _moves("llama3-8B", "common")
    for found in (of_batch(execution), of_processors(execution, fewer=True)):
        distances = [move.distance for move in found]
        assert distances == sorted(distances)
        assert min(distances) > 0
    assert {m.value for m in of_processors(execution, fewer=False)} == {
        16 << k for k in range(1, 7)
    }
