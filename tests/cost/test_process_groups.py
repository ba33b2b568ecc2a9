"""Groups of the axes whose collectives are between layers, and operations that a layer states."""

from dataclasses import replace

import numpy as np

from calculon import inputs
from calculon.architecture.layers import Flags, communication
from calculon.cost.block_tables import only_choices
from calculon.cost.process_groups import ProcessGroup, layer_group
from calculon.cost.tensor import NetworkTimes, axis_traffic, operation_of, tensor_volumes
from calculon.editions import EDITIONS
from calculon.plan.plan import Plan
from tests.cases import for_each

EXECUTION = replace(inputs.execution("3072_t4_p64_d12_mbs4_full"), edition="corrected")
SYSTEM, EDITION = inputs.system("a100_80g"), EDITIONS["corrected"]
CHOICE, _, SIZES = only_choices(Plan.of(EXECUTION))
LAYER = communication(
    "Gather",
    "tp",
    np.array([1e6]),
    np.array([4.0]),
    forward="all_gather",
    backward="reduce_scatter",
    dtype_bytes=2,
    flags=Flags(recommunicate="recompute_all"),
)


def test_stated_groups_are_on_their_network():
    group = layer_group("tp", SIZES, CHOICE, SYSTEM)
    assert (group.ranks, group.network, group.stride) == (4, EXECUTION.tensor_par_net, None)


def test_in_a_mesh_tensor_parallel_ranks_are_neighbors():
    group = layer_group("tp", SIZES, replace(CHOICE, mesh_order="tp-dp-pp"), SYSTEM)
    assert (group.ranks, group.network, group.stride) == (4, 0, 1)


@for_each(
    ("pass_", "operation"),
    [("fw", "all_gather"), ("agrad", "reduce_scatter"), ("recomm", "all_gather")],
)
@for_each("kind", ["base", "edge"])
def test_a_layer_states_its_operations(pass_, kind, operation):
    assert operation_of(LAYER, pass_, kind, CHOICE, EDITION) == operation
    kept = replace(CHOICE, activation_recompute="none")
    again = operation_of(LAYER, "recomm", kind, kept, EDITION)
    assert again is None


def test_traffic_along_an_axis_is_its_network_time_and_the_work_on_it():
    work, memory = np.full((3, 1, 1), 2e-6), np.zeros((3, 1, 1))
    network = NetworkTimes(SYSTEM, SIZES)
    found = axis_traffic([LAYER], work, memory, network, CHOICE, EDITION)
    group = layer_group("tp", SIZES, CHOICE, SYSTEM)
    gather, scatter = (
        group.time(SYSTEM, name, np.array([2e6]), "published")
        for name in ("all_gather", "reduce_scatter")
    )
    np.testing.assert_array_equal(found.size, np.full((3, 1, 1), 2e6))
    expected = [gather + 2e-6, scatter + 2e-6, gather]
    np.testing.assert_allclose(found.link[:, 0], expected, rtol=1e-15)


def test_volumes_are_those_of_the_network_of_the_group():
    moved = tensor_volumes([LAYER], NetworkTimes(SYSTEM, SIZES), CHOICE, EDITION)
    assert moved[:, :, EXECUTION.tensor_par_net].all()
    assert not np.delete(moved, EXECUTION.tensor_par_net, axis=2).any()


NESTED = inputs.system("h100_80g_sxm")


@for_each(
    ("ranks", "stride", "used"),
    [(8, 1, [0]), (16, 1, [0, 1]), (4, 4, [0, 1]), (4, 8, [1]), (2, 4, [0])],
)
def test_a_collective_takes_the_largest_share_of_the_networks_that_it_spans(ranks, stride, used):
    shares = NESTED.fabric.processor_usage
    group = ProcessGroup(np.array(ranks), np.array(max(used)), np.array(stride))
    assert group.usage(NESTED) == max(shares[used])
    alone = ProcessGroup(np.array(ranks), np.array(1))
    assert alone.usage(NESTED) == shares[1]
    on_node = ProcessGroup(np.array(8), np.array(0), np.array(1))
    assert group.meets(on_node, NESTED) == (0 in used)
    assert not alone.meets(on_node, NESTED)
