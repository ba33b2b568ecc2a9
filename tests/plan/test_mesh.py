"""Numbers of ranks along the axes of parallelism."""

import numpy as np
import pytest

from calculon import inputs
from calculon.declarations.axes import AXES, LAYER_AXES
from calculon.declarations.named_values import MESH_ORDERS
from calculon.plan.columns import Columns
from calculon.plan.mesh import (
    DEGREES,
    NUMBERING,
    fanouts_of,
    mesh_fanouts,
    mesh_size,
    networks_of,
    order_of,
    processors,
    strides_of,
)
from calculon.plan.plan import Plan
from calculon.plan.rules.all_rules import REASONS, check
from tests.helpers import CORRECTED_PLAIN, PLAIN, document, schedule_of
from tests.store import cache

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
    inner = tuple(axis.name for axis in LAYER_AXES if not axis.folded)
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


def test_experts_have_replicas_of_their_own_unless_tensor_ranks_alone_split_them():
    names = ("tensor_par", "expert_par", "expert_tensor_par", "data_par")
    splits = [(2, 1, 0, 1), (2, 1, 1, 1), (2, 2, 1, 1), (1, 1, 0, 2)]
    rows = [{"num_procs": 2, **dict(zip(names, one, strict=True))} for one in splits]
    plan = Plan.from_records([CORRECTED_PLAIN | {"batch_size": 2} | row for row in rows])
    found = schedule_of(plan, inputs.model("mixtral-8x7B"), inputs.system("a100_80g"))
    assert found.separate_experts.tolist() == [False, True, True, False]
    same = [tp * dp // (ep * (etp or tp)) for tp, ep, etp, dp in splits]
    assert found.expert_data_par.tolist() == same
    assert found.reduces.tolist() == [False, True, False, True]
    assert found.communicators.tolist() == [1, 2, 2, 1]  # tp; tp and replicas; tp, ep; dp


def test_processors_are_the_product_of_all_degrees():
    assert tuple(axis.degree for axis in AXES if not axis.folded) == DEGREES
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
    for order in MESH_ORDERS[1:]:
        assert fanouts_of(columns, order, system) == (8, 384, 8)


def _columns(tensor, stages, replicas, shards=0, order=1):
    """Return one execution: 1 stands for replicas next to tensor groups, 2 for stages."""
    degrees = {"tensor_par": tensor, "pipeline_par": stages, "data_par": replicas}
    fields = degrees | {"dp_shard": shards, "mesh_order": order}
    return Columns({name: np.array([value]) for name, value in fields.items()})


@cache
def _domain(size):
    raw = document("systems", "a100_80g")
    raw["networks"][0]["size"] = size
    return inputs.system(raw)


@pytest.mark.parametrize(
    ("tensor", "stages", "replicas", "size", "used"),
    [
        (8, 8, 64, 72, 64),  # 8 of the 64 replicas, as 9 do not divide them
        (8, 32, 18, 72, 72),
        (16, 32, 9, 72, 16 * 3),
        (16, 1, 16, 8, 8),  # a tensor group on two nodes
        (12, 1, 4, 8, 6),
        (4, 2, 3, 8, 4),
        (1, 1, 73, 72, 1),
        (4, 2, 8, 72, 72),  # all of them in one domain
    ],
)
def test_as_many_processors_of_a_domain_are_used_as_sit_evenly(
    tensor, stages, replicas, size, used
):
    """Of the degrees that fit inside all, and of the next one a divisor; everything where it has the room."""
    system = _domain(size)
    columns = _columns(tensor, stages, replicas)
    found = [int(np.asarray(room).item()) for room in fanouts_of(columns, "tp-dp-pp", system)]
    assert found == [used, 65536 // size]
    assert [int(room.item()) for room in mesh_fanouts(columns, system)] == found


def test_shards_of_hybrid_sharding_sit_evenly_too():
    """Of 12 replicas 6 fit into a domain of 7, but shards of 4 have equal parts in 4, 2 or 1."""
    assert fanouts_of(_columns(1, 1, 12), "tp-dp-pp", _domain(7))[0].item() == 6
    assert fanouts_of(_columns(1, 1, 12, shards=4), "tp-dp-pp", _domain(7))[0].item() == 4


def test_the_order_of_the_mesh_decides_what_sits_in_a_domain():
    """Nine replicas divide by 3 where four tensor groups of 16 have room; 32 stages by 4."""
    columns, system = _columns(16, 32, 9), _domain(72)
    found = [fanouts_of(columns, order, system)[0].item() for order in MESH_ORDERS[1:]]
    assert found == [16 * 3, 16 * 4]
    both = Columns({**columns.columns, "mesh_order": np.array([1, 2, 0])})
    assert mesh_fanouts(both, system)[0].tolist() == [48, 64, 72]


def test_used_processors_are_the_most_with_which_every_group_sits_evenly():
    """Try all numbers: in each instance whole groups, or equal parts of them."""
    random = np.random.default_rng(18)
    for _ in range(300):
        degrees = [int(n) for n in random.integers(1, 13, 4)]
        size = int(random.integers(2, 145))
        spans = np.cumprod(degrees)
        columns = _columns(degrees[0], degrees[3], degrees[1] * degrees[2], degrees[1])
        found = fanouts_of(columns, "tp-dp-pp", _domain(size))[0]
        if spans[-1] <= size:
            assert found == size
            continue
        even = [u for u in range(1, size + 1) if all(s % u == 0 or u % s == 0 for s in spans)]
        assert found == max(even)


def test_pods_share_the_last_one_with_others_and_leave_nodes_unused_where_a_stage_would_be_cut():
    """Stages of 2,048 fill a pod of 3,072 once; 16 of 1,024 take five pods and a third of a sixth one."""
    system = inputs.system("h100_80g_sxm_24k")
    cut = fanouts_of(_columns(8, 8, 256), "tp-dp-pp", system)
    assert [int(np.asarray(room).item()) for room in cut] == [8, 2048 // 8, 8]
    assert mesh_size(cut).item() == 8 * 2048


def test_networks_that_must_be_filled_are_so_in_the_published_edition_alone():
    """Groups of 3 on the stated node of 8: outside of edition sc23 two groups sit there, and 2 processors are idle."""
    stated = {
        "tensor_par_net": 0,
        "tensor_par": 3,
        "num_procs": 12,
        "pipeline_par": 2,
        "data_par": 2,
    }
    rows = [
        PLAIN | stated | {"pipeline_par_net": 1, "data_par_net": 1, "batch_size": 4} | more
        for more in ({}, {"edition": "corrected", "preset": "published"})
    ]
    model = inputs.model("megatron-126M").to_dict() | {"attn_heads": 12, "hidden": 768}
    system = inputs.system("a100_80g")
    found = check(inputs.model(model), system, Plan.from_records(rows))
    assert [REASONS[code] for code in found] == ["network_filled", ""]
