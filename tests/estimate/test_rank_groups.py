"""Groups of ranks: where they sit, and that their bytes and times are those of the collectives they run."""

import pytest

import calculon
from calculon.estimate.rank_groups import RankGroup
from tests.draws import some
from tests.helpers import LLAMA_X64, LLAMA_X64_P4, document
from tests.helpers import PLAIN as ONE_PROCESSOR

LLAMA = LLAMA_X64
EXAMPLE = document("examples", "3072_t4_p64_d12_mbs4_full")
FORM = LLAMA | {"grad_buffer": "sharded"}
PLAIN = document("models", "megatron-126M") | {"num_blocks": 8}
ALONE = ONE_PROCESSOR | {
    "edition": "corrected",
    "num_procs": 8,
    "data_par": 8,
    "batch_size": 64,
    "microbatch_size": 2,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_net": 1,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "coll_algo": "ring",
}
MICROBATCHES, BLOCKS = 64 / 8 / 2, PLAIN["num_blocks"]
ACTIVATION = 2 * 2 * PLAIN["seq_size"] * PLAIN["hidden"]
"""Bytes of the activations of a microbatch between two blocks."""


def _groups(model, execution, system="h100_80g_sxm"):
    result = calculon.estimate(model, execution, system)
    return result.stats, {group.kind: group for group in result.groups}


def _plain(**changes):
    """Return the statistics and groups of a model without a vocabulary."""
    return _groups(PLAIN, ALONE | changes, "a100_80g")


def _split(tensor=2, stages=1, replicas=4):
    return {"tensor_par": tensor, "pipeline_par": stages, "data_par": replicas}


EXPERTS = (
    FORM
    | {"zero_stage": "1", "mesh_order": "tp-dp-pp", "coll_algo": "auto", "microbatch_size": 1}
    | {"expert_par": 8, "expert_tensor_par": 1, "tensor_par_comm_type": "rs_ag"}
    | {"tensor_par": 2, "pipeline_par": 2, "data_par": 16, "tensor_par_overlap": "none"}
)
DATA = ("data", "shards", "copies", "expert data", "expert shards", "expert copies")

CASES = {
    "published": ("megatron-1T", EXAMPLE, "a100_80g"),
    "corrected": (
        "megatron-1T",
        EXAMPLE | {"edition": "corrected", "preset": "published"},
        "a100_80g",
    ),
    "ends on two stages": ("llama3-8B", LLAMA_X64_P4),
    "buckets": ("llama3-8B", FORM | {"zero_stage": "2", "ddp_bucket_mib": 25}),
    "tied": ("gemma2-2B", FORM | {"zero_stage": "1", "microbatch_size": 1} | _split(2, 2, 16)),
    "hybrid": ("llama3-8B", FORM | {"zero_stage": "fsdp", "dp_shard": 8} | _split(2, 2, 16)),
    "hybrid in a mesh": (
        "llama3-8B",
        FORM | {"zero_stage": "1", "dp_shard": 16, "mesh_order": "tp-dp-pp", "coll_algo": "auto"},
    ),
    "experts": ("mixtral-8x7B", EXPERTS),
    "experts in shards": ("mixtral-8x7B", EXPERTS | {"zero_stage": "fsdp", "dp_shard": 8}),
    "inference": (PLAIN, ALONE | _split(2, 2, 2) | {"training": False}, "a100_80g"),
}


@pytest.mark.parametrize("name", some(CASES, 7))
def test_times_of_groups_are_the_statistics_and_bytes_are_on_networks_that_are_used(name):
    stats, groups = _groups(*CASES[name])
    for kinds, names in (
        (("tensor",), ("tp_comm", "recomm")),
        (("pipeline",), ("pp_comm",)),
        (DATA, ("dp_comm",)),
    ):
        found = [groups[kind] for kind in kinds if kind in groups]
        for which in ("link_time", "exposed_time"):
            expected = sum(stats[f"{name}_{which}"] or 0 for name in names)
            assert sum(getattr(one, which) for one in found) == pytest.approx(expected, rel=1e-12)
    assert ("shards" in groups) == ("copies" in groups) == ("data" not in groups)
    for group in groups.values():
        ranks = 1
        for members, moved in zip(group.members, group.bytes, strict=True):
            ranks *= members
            assert (moved > 0) <= (members > 1)
        assert ranks == group.ranks
        assert (sum(group.bytes) > 0) == (group.link_time > 0)


@pytest.mark.parametrize(
    ("form", "times"),
    [
        ({}, 2),
        ({"optimizer_sharding": True}, 2),
        ({"zero_stage": "0"}, 2),
        ({"zero_stage": "0", "ddp_bucket_mib": 25}, 2),
        ({"zero_stage": "0", "no_sync": False}, 2 * MICROBATCHES),
        ({"zero_stage": "1"}, 2),
        ({"zero_stage": "2"}, MICROBATCHES + 1),
        ({"zero_stage": "3"}, 3 * MICROBATCHES),
        ({"zero_stage": "fsdp", "fsdp_unit": 4}, 3 * MICROBATCHES),
        ({"zero_stage": "fsdp", "reshard_after_forward": False}, 2 * MICROBATCHES),
        ({"zero_stage": "fsdp", "sync_once": True}, 2),
    ],
    ids=str,
)
def test_replicas_move_the_bytes_of_rings(form, times):
    """A ring passes (n - 1) / n of the weights in a gather, and in a reduction of gradients of the same size."""
    if form.get("zero_stage", "0") != "0":
        form = form | {"optimizer_sharding": True}
    stats, groups = _plain(**form)
    whole = BLOCKS * stats["block_weight_space"]
    assert groups["data"].bytes == pytest.approx((0, times * 7 / 8 * whole), rel=1e-12)


def test_copies_move_what_is_left_of_the_gradients():
    hybrid = {"zero_stage": "fsdp", "dp_shard": 4, "optimizer_sharding": True}
    stats, groups = _plain(**hybrid)
    whole = BLOCKS * stats["block_weight_space"]
    shards, copies = groups["shards"], groups["copies"]
    assert shards.bytes[1] == pytest.approx(3 * MICROBATCHES * 3 / 4 * whole, rel=1e-12)
    assert copies.bytes[1] == pytest.approx(MICROBATCHES * 2 * 1 / 2 * whole / 4, rel=1e-12)
    assert (shards.ranks, shards.groups, shards.example) == (4, 2, "0-3")
    assert (copies.ranks, copies.groups, copies.example) == (2, 4, "0, 4")


@pytest.mark.parametrize(
    ("recompute", "reductions"), [("none", 4), ("full", 6)], ids=["none", "full"]
)
def test_tensor_parallel_ranks_move_four_reductions_of_a_block(recompute, reductions):
    """Two in each pass, and again those of the forward pass that is repeated: Shoeybi 2019, section 3."""
    changes = _split(4, 1, 2) | {"tensor_par_comm_type": "ar"}
    _, groups = _plain(**changes, activation_recompute=recompute)
    microbatches = 64 / 2 / 2
    expected = microbatches * BLOCKS * reductions * 2 * 3 / 4 * ACTIVATION
    assert groups["tensor"].bytes == pytest.approx((0, expected), rel=1e-12)


def test_stages_send_activations_and_their_gradients():
    changes = _split(1, 4, 2) | {"tensor_par_comm_type": "ar", "pipeline_interleaving": 2}
    _, groups = _plain(**changes)
    expected = 64 / 2 / 2 * 2 * 2 * ACTIVATION
    assert groups["pipeline"].bytes == pytest.approx((0, expected), rel=1e-12)


def test_the_stage_with_the_longer_end_has_the_most_bytes():
    """8 blocks and the end are reduced and gathered."""
    stats, groups = _groups(*CASES["ends on two stages"])
    ends = 2 * 128_256 * 4096 / 2  # bytes of weights of a rank, as many of gradients
    assert groups["data"].bytes[1] == pytest.approx(
        7 / 8 * 2 * (8 * stats["block_weight_space"] + ends), rel=1e-4
    )


@pytest.mark.parametrize(
    ("order", "tensor", "data"),
    [
        ("stated", ((2, 1), "0-1"), ((1, 32), "0, 2, ..., 62")),
        ("tp-dp-pp", ((2, 1), "0-1"), ((4, 8), "0, 2, ..., 62")),
    ],
)
def test_ranks_sit_where_they_are_numbered(order, tensor, data):
    small = {"mesh_order": order, "microbatch_size": 1}
    _, groups = _groups("llama3-8B", LLAMA | small)
    for kind, expected in (("tensor", tensor), ("data", data)):
        assert (groups[kind].members, groups[kind].example) == expected
        assert groups[kind].ranks * groups[kind].groups == 64


def test_stages_come_last_or_before_the_replicas():
    execution = FORM | _split(2, 2, 16)
    for order, (pipeline, data) in {
        "tp-dp-pp": ("0, 32", "0, 2, ..., 30"),
        "tp-pp-dp": ("0, 2", "0, 4, ..., 60"),
        "stated": ("0, 2", "0, 4, ..., 60"),
    }.items():
        _, groups = _groups("llama3-8B", execution | {"mesh_order": order})
        assert (groups["pipeline"].example, groups["data"].example) == (pipeline, data)


@pytest.mark.parametrize(
    ("ranks", "stride", "text", "near"),
    [
        *((8, 1, "0-7", {}), (2, 1, "0-1", {}), (2, 8, "0, 8", {}), (3, 8, "0, 8, 16", {})),
        (64, 8, "0, 8, ..., 504", {}),
        (8, 16, "0-3, ..., 19", {"near": 4, "near_stride": 1}),
        (12, 16, "0, 2, ..., 6, ..., 38", {"near": 4, "near_stride": 2}),
    ],
)
def test_an_example_is_short(ranks, stride, text, near):
    fields = {"kind": "data", "ranks": ranks, "groups": 1, "stride": stride}
    fields |= {"link_time": 2.0, "exposed_time": 1.0, **near}
    one = RankGroup(**fields, members=(1, ranks), bytes=(0.0, 5.0))
    networks = [{"network": 1, "members": ranks, "bytes": 5.0}]
    assert one.to_dict() == fields | {"example": text, "networks": networks}


def test_groups_that_a_node_would_cut_leave_processors_of_it_unused():
    """Three replicas of four stages: nodes of 8 hold 6 replicas' worth of neighbors, that is two groups of 3."""
    changes = _split(1, 4, 3) | {"num_procs": 12, "batch_size": 48, "mesh_order": "tp-dp-pp"}
    found = calculon.estimate(PLAIN, ALONE | changes, "a100_80g_sxm")
    (domain,) = found.domains
    expected = {"network": 0, "size": 8, "used": 6, "instances": 2, "idle": 2 * 8 - 12}
    assert domain.to_dict() == expected
    assert found.to_dict()["domains"] == [expected]
    members = {group.kind: group.members for group in found.groups}
    assert members == {"data": (3, 1), "pipeline": (2, 2)}
    used = changes | {"num_procs": 16, "data_par": 4}
    assert calculon.estimate(PLAIN, ALONE | used, "a100_80g_sxm").domains == []
