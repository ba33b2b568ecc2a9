"""Conversions beside products: bytes per element of weights, inputs and gradients."""

import pytest

from calculon.architecture.layer import Widths
from calculon.architecture.layers import Flags, cast

W, X, Y = 30.0, 20.0, 12.0


def _cast(widths, source, *, alone=True, gradients_alone=None):
    layer = cast(
        "c",
        W,
        X,
        Y,
        widths=Widths(*widths),
        source=source,
        alone=alone,
        gradients_alone=alone if gradients_alone is None else gradients_alone,
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


def test_eight_bit_products_quantise_weights_inputs_and_gradients_of_outputs():
    """16-bit stored: read 2, write 1."""
    accessed, kept, kernels = _cast((2, 1, 2), 2)
    assert accessed == (3 * W + 3 * X, 3 * Y, 0.0 * W)
    assert (kept, kernels) == (W, (2, 1, 0))


@pytest.mark.parametrize(("widths", "source"), [((4, 2, 2), 4), ((2, 1, 2), 2)])
def test_joined_with_the_kernel_before_only_weights_are_left(widths, source):
    accessed, _, kernels = _cast(widths, source, alone=False)
    assert accessed[0] == (widths[0] + widths[1]) * W
    assert (accessed[1], kernels[:2]) == (0.0, (1, 0))


def test_gradients_of_outputs_can_be_converted_apart():
    """Of 8-bit products whose gradients no activation makes: read 2, write 1."""
    accessed, _, kernels = _cast((2, 1, 2), 2, alone=False, gradients_alone=True)
    assert (accessed[1], kernels[:2]) == (3 * Y, (1, 1))
