"""Columns of groups: each row is that group alone, and no choice is better than the best."""

import itertools

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations import catalog
from calculon.hardware.collectives.algorithm_times import (
    AUTO,
    PUBLISHED,
    group_time,
    group_volume,
    paced,
    schedule_of,
    time_of,
)
from calculon.hardware.collectives.algorithms import (
    ALGORITHMS,
    BY_LIBRARY,
    MEASURED,
    OPERATIONS,
    SPANNING,
    SUPPORTED,
    is_supported,
)
from calculon.hardware.collectives.placement import Group, place
from tests.draws import some

SYSTEM = inputs.system("h100_80g_sxm")
PUBLISHED_OPERATIONS = ("p2p", "reduce_scatter", "all_gather", "all_reduce")
CHOICES = (AUTO, *ALGORITHMS)

RANKS = np.array([1, 2, 8, 8, 4, 16, 64, 128])
STRIDE = np.array([1, 1, 1, 8, 2, 1, 8, 4])
SIZES = np.array([1e3, 1.0, 1e6, 3e7, 1e9, 1e5, 0.0, 2e8])
COLUMN = Group.in_mesh(SYSTEM, RANKS, STRIDE)


def test_a_row_is_that_group_alone():
    groups = [
        Group.in_mesh(SYSTEM, int(ranks), int(stride))
        for ranks, stride in zip(RANKS, STRIDE, strict=True)
    ]
    for case in some(itertools.product(OPERATIONS, CHOICES), 30):
        operation, algorithm = case
        found = group_time(SYSTEM, operation, SIZES, COLUMN, algorithm)
        moved = group_volume(SYSTEM, operation, SIZES, COLUMN, algorithm)
        assert (found.shape, moved.shape) == (RANKS.shape, (2, *RANKS.shape)), case
        for i, one in enumerate(groups):
            assert found[i] == group_time(SYSTEM, operation, SIZES[i], one, algorithm), case
            alone = group_volume(SYSTEM, operation, SIZES[i], one, algorithm)
            np.testing.assert_array_equal(moved[:, i], alone, err_msg=str(case))
        assert (found[0], moved[:, 0].tolist()) == (0, [0, 0]), case  # one rank


@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_fastest_is_the_least_of_those_that_can(operation):
    best = group_time(SYSTEM, operation, SIZES, COLUMN, AUTO)
    each = [
        np.where(
            is_supported(SYSTEM, COLUMN, name),
            time_of(SYSTEM, operation, COLUMN, name, SIZES),
            np.inf,
        )
        for name in BY_LIBRARY[operation]
    ]
    shown = np.broadcast_to(is_supported(SYSTEM, COLUMN, MEASURED, operation), best.shape)
    np.testing.assert_array_equal(best[~shown], np.min(each, axis=0)[~shown])
    if shown.any():
        law = time_of(SYSTEM, operation, COLUMN, MEASURED, SIZES)
        np.testing.assert_array_equal(best[shown], law[shown])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_cannot_be_done_is_done_by_the_fastest(operation):
    best = group_time(SYSTEM, operation, SIZES, COLUMN, AUTO)
    for name in ALGORITHMS:
        found = group_time(SYSTEM, operation, SIZES, COLUMN, name)
        can = np.broadcast_to(
            is_supported(SYSTEM, COLUMN, name, operation) & (name in SUPPORTED[operation]),
            best.shape,
        )
        np.testing.assert_array_equal(found[~can], best[~can], err_msg=name)
        if can.any():
            named = time_of(SYSTEM, operation, COLUMN, name, SIZES)
            np.testing.assert_array_equal(found[can], named[can], err_msg=name)
            shares = np.array(schedule_of(SYSTEM, operation, COLUMN, name).shares)
            moved = group_volume(SYSTEM, operation, SIZES, COLUMN, name)
            np.testing.assert_array_equal(moved[:, can], (shares * SIZES)[:, can], err_msg=name)


def test_published_is_what_the_network_says():
    for per_step in [False, np.arange(8) % 2 == 0]:
        for operation in PUBLISHED_OPERATIONS:
            network, ranks = np.arange(8) % 2, RANKS
            group = Group.on_network(SYSTEM, network, ranks)
            expected = SYSTEM.fabric.time(network, operation, SIZES, ranks, per_step=per_step)
            found = group_time(SYSTEM, operation, SIZES, group, PUBLISHED, per_step=per_step)
            np.testing.assert_array_equal(found, expected, err_msg=str((per_step, operation)))
            moved = group_volume(SYSTEM, operation, SIZES, group, PUBLISHED)
            np.testing.assert_array_equal(
                moved.sum(axis=0),
                SYSTEM.fabric.volume(network, operation, SIZES, ranks),
                err_msg=str((per_step, operation)),
            )
            assert not moved[1 - network, np.arange(8)].any(), (per_step, operation)


def test_as_published_a_broadcast_is_a_transfer_and_there_is_no_all_to_all():
    expected = group_time(SYSTEM, "p2p", SIZES, COLUMN, PUBLISHED)
    for operation in ("broadcast", "reduce"):
        found = group_time(SYSTEM, operation, SIZES, COLUMN, PUBLISHED)
        np.testing.assert_array_equal(found, expected)
    for ask in (group_time, group_volume):
        with pytest.raises(ValueError, match="all_to_all"):
            ask(SYSTEM, "all_to_all", SIZES, COLUMN, PUBLISHED)


def test_no_operation_takes_less_than_its_launch():
    floor = 1e-3
    system = inputs.system({"base": "h100_80g_sxm", "ext.launch.kernel": floor})
    for case in itertools.product(OPERATIONS, CHOICES):
        operation, algorithm = case
        plain = group_time(SYSTEM, operation, SIZES, COLUMN, algorithm)
        found = group_time(system, operation, SIZES, COLUMN, algorithm)
        np.testing.assert_array_equal(found[1:], np.maximum(plain, floor)[1:], err_msg=str(case))


def test_no_algorithm_of_a_library_is_faster_than_its_own_choice():
    """Of machines, operations, group sizes, strides and message sizes; one network has no phases of its own."""
    sizes, slower = 2.0 ** np.arange(0, 36, 3), {}
    for name in some(catalog.names("system"), 8):
        system = inputs.system(name)
        largest = max(network.size for network in system.networks)
        ranks, strides = np.meshgrid([2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 72, 512], [1, 2, 4, 8])
        fits = ranks * strides <= largest
        group = Group.in_mesh(system, ranks[fits], strides[fits])
        for operation in OPERATIONS:
            each = sizes[:, None]
            chosen = group_time(system, operation, each, group, AUTO)
            for algorithm in (*BY_LIBRARY[operation], *SPANNING):
                found = group_time(system, operation, each, group, algorithm)
                faster = found < chosen * (1 - 1e-12)
                if algorithm in SPANNING:
                    faster &= ~group.several
                if faster.any():
                    slower[name, operation, algorithm] = (found / chosen)[faster].min()
    assert not slower


def test_an_algorithm_that_was_measured_takes_the_measured_time():
    group, size = place(SYSTEM, 8), 2.0 ** np.arange(36)
    for operation, algorithm in (
        *(("reduce_scatter", "ring"), ("all_gather", "ring"), ("all_to_all", "pairwise")),
        *(("p2p", "direct"), ("all_gather", "hierarchical"), ("all_reduce", "pipelined")),
    ):
        found = group_time(SYSTEM, operation, size, group, algorithm)
        np.testing.assert_array_equal(found, group_time(SYSTEM, operation, size, group, AUTO))
    rings = group_time(SYSTEM, "all_reduce", size, group, "ring")
    measured = group_time(SYSTEM, "all_reduce", size, group, AUTO)  # large ones by the switches
    own = np.min([time for _, time in paced(SYSTEM, "all_reduce", group, "ring", size)], axis=0)
    np.testing.assert_array_equal(rings, np.maximum(own, measured))
    assert rings[-1] > 1.2 * measured[-1]
