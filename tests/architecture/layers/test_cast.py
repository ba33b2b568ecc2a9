"""Conversions beside products: bytes per element of weights, inputs and gradients."""

from calculon.architecture.layer import Widths
from calculon.architecture.layers import Converted, Flags, cast, cast_to_8_bits

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


def _eight_bits(*, gathered=None, stored=2, normed=False, restored=False, measured=False):
    """Convert on one rank of 2, where `gathered` names what is split along the sequence."""
    inputs = Converted(X, X / 2 if gathered == "inputs" else X, 2, gathered == "inputs")
    outputs = Converted(Y, Y / 2 if gathered == "outputs" else Y, 2, gathered == "outputs")
    layer = cast_to_8_bits(
        "c",
        W,
        inputs,
        outputs,
        widths=Widths(stored, 1, 2),
        normed=normed,
        restored=restored,
        measured=measured,
        flags=Flags(),
    )
    assert layer.activation == W
    return layer.accessed, layer.launches


def test_eight_bit_operands_are_converted_and_transposed_by_one_kernel():
    """Read 2, write 1 in each layout; weights once, in one layout."""
    assert _eight_bits() == ((3 * W + 4 * X, 4 * Y, 0.0), (2, 1, 0))


def test_what_is_gathered_in_eight_bits_is_transposed_afterwards():
    """Half of it is converted on each rank, read 2 and write 1; all of it is transposed, read 1 and write 1."""
    inputs, outputs = _eight_bits(gathered="inputs"), _eight_bits(gathered="outputs")
    assert inputs == ((3 * W + 3 * X / 2, 4 * Y + 2 * X, 0.0), (2, 2, 0))
    assert outputs == ((3 * W + 4 * X, 3 * Y / 2 + 2 * Y, 0.0), (2, 2, 0))


def test_a_norm_that_writes_eight_bits_leaves_the_transpose():
    assert _eight_bits(normed=True) == ((3 * W, 2 * X + 4 * Y, 0.0), (1, 2, 0))


def test_a_factor_of_its_own_reads_every_tensor_once_more():
    delayed, current = _eight_bits(), _eight_bits(measured=True)
    assert current[0][0] - delayed[0][0] == 2 * W + 2 * X
    assert current[0][1] - delayed[0][1] == 2 * Y
    assert current[1] == (4, 2, 0)


def test_gradients_go_back_to_stored_types():
    """Of weights from 2 to 4 bytes; of an input that comes in 2 bytes there is nothing to do."""
    accessed, kernels = _eight_bits(stored=4, restored=True)
    assert accessed[1:] == (4 * Y, 6 * W)
    assert kernels == (2, 1, 1)
