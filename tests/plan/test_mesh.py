"""Numbers of ranks along the axes of parallelism."""

import numpy as np
import pytest

from calculon import inputs
from calculon.plan.columns import Columns
from calculon.plan.mesh import (
    DEGREES,
    NUMBERING,
    even,
    networks_of,
    order_of,
    processors,
    strides_of,
)
from calculon.spec.axes import AXES, LAYER_AXES
from calculon.spec.execution import MESH_ORDERS

COLUMNS = Columns(
    {
        **{axis.degree: np.array([1]) for axis in AXES},
        **{axis.network: np.array([0]) for axis in AXES},
        "tensor_par": np.array([4, 8]),
        "pipeline_par": np.array([2, 4]),
        "data_par": np.array([16, 2]),
        "pipeline_par_net": np.array([1, 1]),
    }
)


@pytest.mark.parametrize("order", MESH_ORDERS)
def test_axes_of_layers_are_the_fastest(order):
    inner = tuple(axis.name for axis in LAYER_AXES)
    assert order_of(order)[: len(inner)] == inner
    assert sorted(order_of(order)) == sorted(NUMBERING)


@pytest.mark.parametrize(
    ("order", "pipeline", "data"),
    [("stated", [4, 8], [8, 32]), ("tp-pp-dp", [4, 8], [8, 32]), ("tp-dp-pp", [64, 16], [4, 8])],
)
def test_the_stride_of_an_axis_is_the_product_of_faster_degrees(order, pipeline, data):
    found = strides_of(COLUMNS, order)
    assert found["tp"] == 1
    np.testing.assert_array_equal(found["pp"], pipeline)
    np.testing.assert_array_equal(found["dp"], data)


def test_processors_are_the_product_of_all_degrees():
    assert tuple(axis.degree for axis in AXES) == DEGREES
    np.testing.assert_array_equal(processors(COLUMNS), [128, 64])


def test_networks_are_stated_or_spanned():
    system = inputs.system("a100_80g")
    stated, spanned = (networks_of(COLUMNS, order, system) for order in ("stated", "tp-dp-pp"))
    np.testing.assert_array_equal(stated["pp"], [1, 1])
    np.testing.assert_array_equal(stated["dp"], [0])
    assert {name: found.tolist() for name, found in spanned.items() if name in ("tp", "dp")} == {
        "tp": [0, 0],
        "dp": [1, 1],
    }


def test_groups_that_span_pods_are_on_the_network_between_them():
    """Llama 3 405B on 16,384: stages of 1,024, three of which fill a pod of 3,072, and a third of a sixth pod."""
    system = inputs.system("h100_80g_sxm_24k")
    raw = {
        **{axis.degree: np.array([1]) for axis in AXES},
        **{axis.network: np.array([0]) for axis in AXES},
    }
    columns = Columns(
        raw
        | {
            "tensor_par": np.array([8]),
            "pipeline_par": np.array([16]),
            "data_par": np.array([128]),
        }
    )
    inside, across = (networks_of(columns, order, system) for order in MESH_ORDERS[1:])
    assert [inside[name].tolist() for name in ("tp", "dp", "pp")] == [[0], [1], [2]]
    assert [across[name].tolist() for name in ("tp", "dp", "pp")] == [[0], [2], [1]]
    for ranks, stride in ((8, 1), (128, 8), (16, 1024), (16, 8), (128, 128)):
        assert even(system, np.array(ranks), np.array(stride), np.array(16384)).all()
    assert not even(system, np.array(256), np.array(8), np.array(16384)).any()  # a pod cuts some
