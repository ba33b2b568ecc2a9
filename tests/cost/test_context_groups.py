"""Ranks with parts of the same sequences: who works with whom, found rank by rank, and over whom state is split."""

import itertools

import pytest

import calculon
from calculon import inputs
from tests.cases import for_each
from tests.helpers import PLAIN, document

MODEL = {
    "hidden": 64,
    "feedforward": 128,
    "seq_size": 64,
    "attn_heads": 8,
    "attn_size": 8,
    "num_blocks": 4,
    "vocab": 512,
}
MIXTURE = MODEL | {"num_experts": 8, "experts_per_token": 2}
RUN = PLAIN | {
    "edition": "corrected",
    "attn_impl": "flash",
    "tensor_par_comm_type": "rs_ag",
    "coll_algo": "ring",
    "cp_comm": "all_gather",
}
NODE = 4


def _system():
    """Return boxes of four processors, and groups of two boxes."""
    raw = document("systems", "a100_80g")
    inner, outer = raw["networks"]
    pod = outer | {"size": 2 * NODE}
    return inputs.system(raw | {"networks": [inner | {"size": NODE}, pod, outer]})


SYSTEM = _system()


def _run(t, c, p, d, order="tp-dp-pp", **changes):
    degrees = {"tensor_par": t, "context_par": c, "pipeline_par": p, "data_par": d}
    if c == 1:
        changes["cp_comm"] = "p2p"
    sizes = {"num_procs": t * c * p * d, "batch_size": 16 * d, "microbatch_size": 1}
    return RUN | degrees | sizes | {"mesh_order": order} | changes


def _coordinates(run):
    """Return the place of each rank along the axes, by number: the fastest axis first."""
    sizes = {"tp": "tensor_par", "cp": "context_par", "pp": "pipeline_par", "dp": "data_par"}
    order = ["tp", "cp", *run["mesh_order"].split("-")[1:]]
    places = itertools.product(*(range(run[sizes[name]]) for name in reversed(order)))
    return [dict(zip(reversed(order), place, strict=True)) for place in places]


def _group(run, *axes):
    """Return the ranks of the group of rank 0 along some axes."""
    ranks = enumerate(_coordinates(run))
    return [number for number, at in ranks if all(at[axis] == 0 for axis in at if axis not in axes)]


def _members(ranks):
    """Return in how many parts networks join ranks: in a box, boxes of a pod, and pods."""
    boxes = {rank // NODE for rank in ranks}
    pods = {box // 2 for box in boxes}
    return len(ranks) // len(boxes), len(boxes) // len(pods), len(pods)


def _estimated(run, model=MODEL):
    return calculon.estimate(model, run, SYSTEM)


DEGREES = [(1, 2, 1, 4), (1, 4, 2, 2), (2, 2, 2, 2), (2, 4, 2, 1), (2, 2, 1, 4)]
"""Of tensor, context, pipeline and data parallelism."""


@for_each(
    ("degrees", "order"),
    [*((one, "tp-dp-pp") for one in DEGREES), *((one, "tp-pp-dp") for one in DEGREES[1:3])],
)
def test_groups_of_parts_and_of_equal_weights_are_those_of_the_mesh(degrees, order):
    run = _run(*degrees, order)
    found = {group.kind: group for group in _estimated(run).groups}
    for kind, axes in {"context": ("cp",), "data": ("cp", "dp")}.items():
        ranks, group = _group(run, *axes), found[kind]
        assert (group.ranks, group.groups) == (len(ranks), run["num_procs"] // len(ranks))
        assert group.members == _members(ranks)
        near = range(0, group.near * group.near_stride, group.near_stride)
        far = range(0, group.ranks // group.near * group.stride, group.stride)
        assert sorted(one + other for one in far for other in near) == ranks
        assert group.example.endswith(f"{ranks[-1]}")


def test_a_group_in_clusters_says_so():
    (group,) = (g for g in _estimated(_run(1, 4, 2, 2, "tp-pp-dp")).groups if g.kind == "data")
    assert group.example == "0-3, ..., 11"
    assert group.to_dict()["near"] == 4


@for_each("order", ["tp-dp-pp", "tp-pp-dp"])
def test_peers_are_those_of_the_mesh(order):
    run = _run(2, 2, 2, 2, order)
    peers = _estimated(run).peers()["0"]
    assert peers["tensor"] == _group(run, "tp")
    assert peers["context"] == _group(run, "cp")
    assert peers["data"] == _group(run, "dp")


SPREAD = [
    (1, 2, 2, 2, 2, 1),
    (1, 4, 1, 2, 2, 1),
    (2, 2, 2, 1, 2, 2),
    (1, 2, 1, 4, 8, 1),
    (2, 4, 2, 2, 2, 1),
]
"""Degrees t, c, p, D, and of experts e, u."""


@for_each("degrees", SPREAD)
def test_experts_are_spread_over_consecutive_ranks_of_all_axes_of_a_stage(degrees):
    *mesh, e, u = degrees
    t, c, p, d = mesh
    run = _run(*mesh, expert_par=e, expert_tensor_par=u)
    groups = {group.kind: group for group in _estimated(run, MIXTURE).groups}
    assert groups["expert"].ranks == e
    assert groups["expert"].members == _members(range(0, e * u, u))
    replicas = t * c * d // (e * u)
    if replicas > 1:
        group = groups["expert data"]
        assert (group.ranks, group.groups) == (replicas, t * c * p * d // replicas)
        assert group.members == _members(range(0, t * c * d, e * u))


def test_replicas_of_experts_on_both_sides_of_a_pipeline():
    """Of 4 parts, 2 stages and 2 replicas, 2 ranks have all experts: of a stage 0 and 2, behind the other 8 and 10."""
    run = _run(1, 4, 2, 2, "tp-pp-dp", expert_par=2, expert_tensor_par=1)
    (group,) = (g for g in _estimated(run, MIXTURE).groups if g.kind == "expert data")
    assert (group.ranks, group.near, group.near_stride, group.stride) == (4, 2, 2, 8)
    assert group.members == _members([0, 2, 8, 10])


STATE = (
    "weight_space",
    "weight_grad_space",
    "optimizer_space",
    "expert_weight_space",
    "expert_optimizer_space",
    "dp_comm_link_time",
    "optim_step_time",
)


@for_each("stage", ["0", "1", "fsdp", "owner", "auto"])
def test_parts_share_state_and_gradients_as_replicas_do(stage):
    """Two parts of two replicas hold, send and step what four replicas do, for each microbatch."""
    form = {"zero_stage": stage, "optimizer_sharding": stage != "0"}
    form |= {"expert_par": 2, "expert_tensor_par": 1}
    two = _estimated(_run(2, 2, 1, 2, **form), MIXTURE).stats
    one = _estimated(_run(2, 1, 1, 4, **form), MIXTURE).stats
    for name in STATE:
        assert two[name] == one[name], name


@pytest.mark.parametrize("stage", ["1", "3"])
def test_shards_are_of_whole_sequences(stage):
    form = {"zero_stage": stage, "optimizer_sharding": True, "dp_shard": 4}
    groups = {g.kind: g for g in _estimated(_run(1, 2, 1, 4, **form)).groups}
    assert (groups["shards"].ranks, groups["copies"].ranks) == (4, 2)
    assert (groups["shards"].stride, groups["copies"].stride) == (1, 4)
    with pytest.raises(calculon.SpecError, match="a multiple of context_par=4"):
        _estimated(_run(1, 4, 1, 4, **form | {"dp_shard": 2}))


def test_every_rank_with_a_part_has_all_weights():
    (two, one) = (_estimated(_run(1, c, 1, 4 // c, zero_stage="0")).stats for c in (4, 1))
    assert two["weight_space"] == one["weight_space"] == 2 * one["padded_parameters"]


def test_gradients_of_parts_alone_are_reduced_on_their_network():
    plain = {"mesh_order": "stated", "coll_algo": "published", "zero_stage": "0"}
    run = _run(1, 4, 1, 1, **plain | {"context_par_net": 0, "data_par_net": 0})
    near, far = (
        calculon.estimate(MODEL, run | {"context_par_net": net}, SYSTEM).stats for net in (0, 2)
    )
    assert 0 < near["dp_comm_link_time"] < far["dp_comm_link_time"]


def test_every_group_with_several_ranks_is_a_communicator():
    """Tensor, context, pipeline and data groups, and that of all ranks with the same weights."""
    raw = document("systems", "h100_80g_sxm")
    raw["ext"]["memory"] |= {"communicator_MiB": 100}
    reserved = {
        c: calculon.estimate(MODEL, _run(2, c, 2, 2), raw).stats["reserved_space"] for c in (1, 2)
    }
    assert reserved[2] - reserved[1] == pytest.approx(2 * 100 * 2**20)
