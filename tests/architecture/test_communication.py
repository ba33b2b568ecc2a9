"""A collective of any axis, as a layer of its own."""

import numpy as np
import pytest

from calculon.architecture.layers import Flags, communication
from calculon.cost.layer_cost import LayerTable

RANKS = np.array([1.0, 2.0, 4.0])
ELEMENTS = np.array([96.0, 96.0, 96.0])


def layer(axis="tp", forward="all_gather", backward="reduce_scatter"):
    return communication(
        "Gather",
        axis,
        ELEMENTS,
        RANKS,
        forward=forward,
        backward=backward,
        saved=ELEMENTS / RANKS,
        dtype_bytes=2,
        flags=Flags(),
    )


def test_nothing_is_sent_by_one_rank():
    found = layer()
    np.testing.assert_array_equal(found.collective.message, [0, 192, 192])
    np.testing.assert_array_equal(found.activation, [0, 96, 48])
    np.testing.assert_array_equal(found.inputs, [0, 48, 24])


def test_reductions_add_one_value_for_each_element_and_peer():
    gathered, reduced, _ = layer().flops
    assert gathered == 0
    np.testing.assert_array_equal(reduced, [0, 48, 72])
    np.testing.assert_array_equal(layer(forward="all_reduce").flops[0], [0, 48, 72])


def test_a_pass_without_an_operation_moves_nothing():
    found = layer(backward=None)
    assert found.accessed[1:] == (0.0, 0.0)
    np.testing.assert_array_equal(found.accessed[0], [0, 384, 384])
    np.testing.assert_array_equal(found.activation_grad, [0, 0, 0])
    assert found.collective.operations == ("all_gather", None)


def test_a_table_knows_its_collectives_by_axis():
    table = LayerTable([layer()], 3)
    assert table.collective_rows("tp") == table.collective_rows() == [0]


def test_an_axis_without_a_row_is_refused():
    with pytest.raises(AssertionError, match=r"Gather: no row of AXES is 'xp'"):
        LayerTable([layer("xp")], 3)
