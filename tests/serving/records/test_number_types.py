"""Types of weights: their bytes, and the arithmetic that a machine has for them."""

from calculon import inputs
from calculon.serving.records.number_types import WEIGHT_TYPES, engine_of
from tests.cases import for_each


def test_inputs_of_8_bits_leave_weights_of_4_bits_as_they_are():
    narrow, mixed = WEIGHT_TYPES["mxfp4"], WEIGHT_TYPES["mxfp4_mxfp8"]
    assert mixed.bytes == narrow.bytes == 4 / 8 + 1 / 32


@for_each(
    ("machine", "weights", "engine"),
    [
        ("b200_sxm", "mxfp4", "float4"),
        ("b200_sxm", "mxfp4_mxfp8", "float8"),
        ("h100_80g_sxm", "mxfp4", "bfloat16"),
        ("a100_80g_sxm", "mxfp4_mxfp8", "bfloat16"),
    ],
)
def test_a_machine_multiplies_in_the_type_of_the_inputs_or_in_16_bits(machine, weights, engine):
    assert engine_of(inputs.system(machine), weights) == engine


def test_bytes_of_a_weight_with_its_share_of_the_scales():
    found = {name: one.bytes for name, one in WEIGHT_TYPES.items()}
    assert round(found["int4_g128"], 4) == 0.5195
    assert found["mxfp4"] == 0.53125
    assert found["nvfp4"] == 0.5625
    assert found["float8_block"] == 1 + 4 / 16384
    assert (found["bfloat16"], found["float8"]) == (2, 1)
