"""Bytes per element of the operands and weights of each recipe, and what making copies of weights moves."""

import pytest

import calculon
from calculon.base.errors import SpecError
from calculon.declarations.recipes import GATHERED, PRODUCTS_IN_FLOAT8, RECIPES
from tests.helpers import document


def test_operands_have_their_scales_with_them():
    """A byte, or half of one, and 4 bytes for 128 values, 1 for 32 and 1 for 16; of weights 4 bytes for 128 x 128."""
    assert {name: one.operand for name, one in RECIPES.items()} == {
        "delayed": 1,
        "tensorwise": 1,
        "blockwise": 1 + 4 / 128,
        "mxfp8": 1 + 1 / 32,
        "nvfp4": 1 / 2 + 1 / 16,
        "nvfp4_plain": 1 / 2 + 1 / 16,
    }
    assert RECIPES["blockwise"].weight == 1 + 4 / 128**2
    assert {one.product for one in RECIPES.values()} == {"float8", "float4"}


def test_weights_have_two_copies_where_products_need_both_layouts():
    copies = {name: one.copies for name, one in RECIPES.items()}
    assert copies == pytest.approx(
        {
            "delayed": 2,
            "tensorwise": 2,
            "blockwise": 2,
            "mxfp8": 2.0625,
            **dict.fromkeys(("nvfp4", "nvfp4_plain"), 1.125),
        },
        rel=1e-3,
    )
    alone = {name: one.on(transposes=False).copies for name, one in RECIPES.items()}
    assert alone == copies | {"delayed": 1, "tensorwise": 1}


def test_a_weight_is_read_as_it_is_stored_and_written_in_each_copy():
    assert RECIPES["delayed"].conversion(2) == 2 + 1 + 1
    assert RECIPES["tensorwise"].conversion(2) == 2 + 2 + 1 + 1
    assert RECIPES["mxfp8"].conversion(2) == 2 + 2 * 1.03125
    assert RECIPES["nvfp4"].conversion(4) == 4 + 4 + 2 * 0.5625


def test_what_is_gathered_in_eight_bits_is_transposed_afterwards():
    """Scales of rows are none of columns: both are made of 2 bytes."""
    assert [RECIPES[name].gathered(2)[0] for name in GATHERED] == pytest.approx(
        [1, 1, 1, 2], rel=1e-3
    )
    assert RECIPES["delayed"].gathered(2)[1] == 1 + 1
    assert RECIPES["delayed"].on(transposes=False).gathered(2)[1] == 0
    assert RECIPES["mxfp8"].gathered(2) == (2, RECIPES["mxfp8"].conversion(2))


def test_a_type_alone_means_recipes_whose_weights_are_converted_in_every_microbatch():
    for name, scaling in (("delayed", "delayed"), ("tensorwise", "current")):
        alone = PRODUCTS_IN_FLOAT8[scaling]
        assert not alone.cached
        assert alone._replace(cached=True, weight_layouts=2) == RECIPES[name]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("datatype", "stores bfloat16: set fp8_recipe"),
        ("fp8_recipe", "write delayed, the usual FP8 recipe"),
    ],
)
def test_fp8_as_a_type_is_led_to_a_recipe(field, words):
    execution = document("examples", "llama3-8B_h100x64") | {field: "fp8"}
    with pytest.raises(SpecError, match=words):
        calculon.estimate("llama3-8B", execution, "h100_80g_sxm")
