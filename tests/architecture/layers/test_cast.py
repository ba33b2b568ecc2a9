"""Conversions beside products: bytes per element of weights, inputs and gradients."""

import pytest

from calculon.architecture.layer import Widths
from calculon.architecture.layers import Converted, Flags, cast, cast_to_recipe
from calculon.declarations.recipes import PRODUCTS_IN_FLOAT8, RECIPES

W, X, Y = 30.0, 20.0, 12.0


def _cast(widths, source, *, alone=True):
    layer = cast(
        "c",
        W,
        X,
        Y,
        widths=Widths(*widths),
        source=source,
        alone=alone,
        flags=Flags(),
    )
    return layer.accessed, layer.activation, layer.launches


def test_autocast_converts_weights_inputs_and_their_gradients():
    """Float32 stored, 16-bit products: 4 + 2 bytes each way."""
    accessed, kept, kernels = _cast((4, 2, 2), 4)
    assert accessed == (6 * W + 6 * X, 6 * X, 6 * W)
    assert (kept, kernels) == (2 * W, (2, 1, 1))


def test_what_comes_narrow_is_not_converted():
    accessed, _, kernels = _cast((4, 2, 2), 2)
    assert accessed == (6 * W, 0.0, 6 * W)
    assert kernels == (1, 0, 1)


def test_joined_with_the_kernel_before_only_weights_are_left():
    accessed, _, kernels = _cast((4, 2, 2), 4, alone=False)
    assert accessed[0] == 6 * W
    assert (accessed[1], kernels[:2]) == (0.0, (1, 0))


BOTH = ("inputs", "outputs")


def _recipe(recipe, *, gathered=(), stored=2, normed=False, restored=False):
    """Convert on one rank of 2, where `gathered` names what is split along the sequence."""
    parts = [
        Converted(count, count / 2 if name in gathered else count, 2, name in gathered)
        for name, count in zip(BOTH, (X, Y), strict=True)
    ]
    layer = cast_to_recipe(
        "c",
        W,
        *parts,
        widths=Widths(stored, recipe.operand, 2, recipe.weight),
        recipe=recipe,
        normed=normed,
        restored=restored,
        flags=Flags(),
    )
    assert layer.activation == pytest.approx(recipe.weight_layouts * recipe.weight * W)
    return layer.accessed, layer.launches


def _eight_bits(*, scaling="delayed", **changes):
    """Convert to 8 bits weights that are converted for each microbatch."""
    return _recipe(PRODUCTS_IN_FLOAT8[scaling], **changes)


def test_eight_bit_operands_are_converted_and_transposed_by_one_kernel():
    """Read 2, write 1 in each layout; weights once, in one layout."""
    assert _eight_bits() == ((3 * W + 4 * X, 4 * Y, 0.0), (2, 1, 0))


def test_what_is_gathered_in_eight_bits_is_transposed_afterwards():
    """Half of it is converted on each rank, read 2 and write 1; all of it is transposed, read 1 and write 1."""
    inputs, outputs = (_eight_bits(gathered=[one]) for one in BOTH)
    assert inputs == ((3 * W + 3 * X / 2, 4 * Y + 2 * X, 0.0), (2, 2, 0))
    assert outputs == ((3 * W + 4 * X, 3 * Y / 2 + 2 * Y, 0.0), (2, 2, 0))


def test_a_norm_that_writes_eight_bits_leaves_the_transpose():
    assert _eight_bits(normed=True) == ((3 * W, 2 * X + 4 * Y, 0.0), (1, 2, 0))


def test_a_factor_of_its_own_reads_every_tensor_once_more():
    delayed, current = _eight_bits(), _eight_bits(scaling="current")
    assert current[0][0] - delayed[0][0] == 2 * W + 2 * X
    assert current[0][1] - delayed[0][1] == 2 * Y
    assert current[1] == (4, 2, 0)


def test_gradients_go_back_to_stored_types():
    """Of weights from 2 to 4 bytes; of an input that comes in 2 bytes there is nothing to do."""
    accessed, kernels = _eight_bits(stored=4, restored=True)
    assert accessed[1:] == (4 * Y, 6 * W)
    assert kernels == (2, 1, 1)


def test_copies_of_weights_are_no_part_of_a_microbatch():
    """Read 2, write 1 in each layout."""
    assert _recipe(RECIPES["delayed"]) == ((4 * X, 4 * Y, 0.0), (1, 1, 0))
    assert _recipe(RECIPES["tensorwise"]) == ((6 * X, 6 * Y, 0.0), (2, 2, 0))


def test_engines_that_read_along_either_side_have_one_copy():
    alone = RECIPES["delayed"].on(transposes=False)
    assert _recipe(alone) == ((3 * X, 3 * Y, 0.0), (1, 1, 0))
    assert _recipe(alone, gathered=BOTH) == ((3 * X / 2, 3 * Y / 2, 0.0), (1, 1, 0))
    assert _recipe(alone, normed=True) == ((0.0, 3 * Y, 0.0), (0, 1, 0))


@pytest.mark.parametrize("name", ["blockwise", "mxfp8"])
def test_scales_of_blocks_make_both_layouts_of_what_is_stored(name):
    """Read 2, write 2 x 1.03125: on each rank of its own, so that nothing is transposed."""
    both = 2 + 2 * 1.03125
    for gathered, share in (((), 1), (BOTH, 2)):
        moved = both * X / share, both * Y / share, 0.0
        assert _recipe(RECIPES[name], gathered=gathered) == (moved, (1, 1, 0))
    assert _recipe(RECIPES[name], normed=True) == ((0.0, both * Y, 0.0), (0, 1, 0))
    assert RECIPES[name].on(transposes=False) == RECIPES[name]


def test_four_bits_are_measured_and_rotated_by_kernels_of_their_own():
    """Read 2 for the largest values, 2 for rows and 2 for rotated columns; write 2 x .5625."""
    both = 3 * 2 + 2 * 0.5625
    assert _recipe(RECIPES["nvfp4"]) == ((both * X, both * Y, 0.0), (3, 3, 0))
    plain = both - 2
    assert _recipe(RECIPES["nvfp4_plain"]) == ((plain * X, plain * Y, 0.0), (2, 2, 0))
