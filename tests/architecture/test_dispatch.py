"""How rows come to experts on other ranks: messages, rows and bytes by the formulas of the dispatchers."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

import calculon
from calculon import inputs
from tests.architecture.layers_by_name import layers_of
from tests.architecture.test_experts import MODEL, E, H, K, S
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN, document, sizes

T, P, U = np.array([1.0, 4.0, 4.0]), np.array([8.0, 4.0, 2.0]), np.array([1.0, 2.0, 4.0])
B = np.array([1.0, 3.0, 2.0])
OWN = B * S / T
"""Tokens of a rank; ranks with other experts, and with other parts of the same ones."""

MARK = 4
"""Bytes of a score."""


def _block(model=MODEL, imbalance=100, capacity=0, expert_par=P, width=U, **changes):
    columns = sizes(tensor_par=T, microbatch_size=B)
    spread = {
        "expert_par": expert_par,
        "expert_par_net": np.zeros(3, int),
        "expert_tensor_par": width,
    }
    columns = replace(
        columns,
        further=columns.further | spread,
        moe_imbalance_percent=np.full(3, float(imbalance)),
        moe_capacity_percent=np.full(3, float(capacity)),
    )
    changes["tensor_par_comm_type"] = "rs_ag"
    return layers_of(model, columns=columns, prefix="MlpBlock_", **changes)


def test_rows_are_exchanged_with_their_scores_both_ways_in_both_passes():
    layers = _block()
    for name in ("Dispatch", "Combine"):
        sent = layers[name].collective
        assert (sent.axis, sent.operations) == ("ep", ("all_to_all", "all_to_all"))
        np.testing.assert_allclose(sent.message, OWN * K * (2 * H + MARK))
        np.testing.assert_allclose(sent.returned, sent.message)


def test_parts_of_the_same_experts_gather_rows_after_the_exchange_and_reduce_before_the_way_back():
    layers = _block()
    there, back = layers["Rows_F"].collective, layers["Rows_G"].collective
    assert there.operations == ("all_gather", "reduce_scatter")
    assert back.operations == ("reduce_scatter", "all_gather")
    for sent in (there, back):
        assert (sent.axis, sent.group) == ("tp", "width")
        np.testing.assert_allclose(sent.message, (U > 1) * U * OWN * K * 2 * H)


def test_gathered_tokens_are_those_of_all_ranks_with_the_experts():
    layers = _block(moe_dispatcher="allgather")
    for name in ("EP_F", "EP_G"):
        np.testing.assert_allclose(layers[name].collective.message, P * U * OWN * 2 * H)
        assert layers[name].collective.group == "all"
    scores = layers["EP_Routing"].collective
    np.testing.assert_allclose(scores.size("all_gather"), 5 * P * U * OWN * E)
    assert not layers["F"].collective.message.any()
    np.testing.assert_allclose(layers["Permute"].accessed[0], 2 * H * OWN * U * (P + K))


@pytest.mark.parametrize("dispatcher", ["alltoall", "allgather"])
def test_a_rank_multiplies_the_rows_of_its_experts_by_its_share_of_their_width(dispatcher):
    layers = _block(moe_dispatcher=dispatcher)
    rows, inner = U * OWN * K, MODEL.expert_feedforward / U
    for name, n, k in (("Experts1", H, 2 * inner), ("Experts2", inner, H)):
        layer = layers[name]
        np.testing.assert_allclose(layer.flops[0], 2 * rows * n * k)
        np.testing.assert_allclose(layer.weights, E / P * n * k)
        np.testing.assert_allclose(layer.product.m, OWN * K * P * U / E)
        assert layer.expert
    assert not layers["Router"].expert


def test_rows_are_ordered_where_several_experts_have_them_from_several_ranks():
    layers = _block()
    rows = np.where(E / P > 1, U * OWN * K, 0.0)
    for name in ("Sort", "Unsort"):
        np.testing.assert_allclose(layers[name].accessed[0], 4 * H * rows)


def test_a_gradient_moves_as_rows_do_in_the_other_direction():
    layers = _block(dispatch_dtype="float8")
    narrow, wide = OWN * K * (H * (1 + 4 / 128) + MARK), OWN * K * (2 * H + MARK)
    sent, returned = layers["Dispatch"].collective, layers["Combine"].collective
    for found, wanted in (
        (sent.message, narrow),
        (sent.returned, wide),
        (returned.message, wide),
        (returned.returned, narrow),
    ):
        np.testing.assert_allclose(found, wanted)
    cast = layers["Dispatch_Cast"]
    np.testing.assert_allclose(cast.accessed[0], 2 * OWN * K * H * (2 + 1 + 4 / 128))
    np.testing.assert_array_equal(cast.accessed[1], 0)


# -- libraries of experts ---------------------------------------------------------------------------------------------

ENTRY = 12
"""Bytes of the number and the score of an expert, with a copy."""


def _copied(**changes):
    """Return the layers for groups of 8 and 4 ranks with whole experts, and for a rank that has all of them."""
    whole = {"expert_par": np.array([8.0, 4.0, 1.0]), "width": np.ones(3)}
    return _block(**whole, **{"moe_dispatcher": "deepep"} | changes)


def _ranks(parts):
    """Of how many ranks a token has an expert, of E / parts each: all choices of K experts alike often."""
    return parts * (1 - comb(int(E - E // parts), int(K)) / comb(int(E), int(K)))


ARRIVED = OWN * [_ranks(8), _ranks(4), 1.0]


@pytest.mark.parametrize("library", ["deepep", "hybridep"])
def test_copies_are_sent_with_entries_for_each_expert_of_the_token(library):
    layers = _copied(moe_dispatcher=library)
    several = np.array([1, 1, 0])
    for name in ("Dispatch", "Combine"):
        sent = layers[name].collective
        assert (sent.axis, sent.operations) == ("ep", (library, library))
        assert sent.routing == (E, K, 0, 0)
        np.testing.assert_allclose(sent.message, several * OWN * (2 * H + ENTRY * K))
        np.testing.assert_allclose(
            layers[name].accessed[0], 2 * several * ARRIVED * (2 * H + ENTRY * K)
        )
    np.testing.assert_allclose(layers["Dispatch"].activation, several * ARRIVED * ENTRY * K)
    assert not np.any(layers["Combine"].activation)
    assert not {"Counts", "Sort", "Unsort", "Rows_F", "Rows_G"} & {*layers}


def test_rows_are_made_of_copies_that_have_come_and_added_up_before_the_way_back():
    layers = _copied()
    names = [*layers]
    order = ["Dispatch", "Permute", "Experts1", "Experts2", "Unpermute", "Combine"]
    assert sorted(order, key=names.index) == order
    for name in ("Permute", "Unpermute"):
        np.testing.assert_allclose(layers[name].accessed[0], 2 * H * (ARRIVED + OWN * K))


PADDED = {"capacity": 200, "moe_pad_to_capacity": True}


@for_each(
    ("make", "fields", "most"),
    [
        *((make, {"imbalance": 130}, 1.3) for make in (_block, _copied)),
        *((make, {"imbalance": 130, "capacity": 110}, 1.1) for make in (_block, _copied)),
        *((make, {"capacity": 80}, 0.8) for make in (_block, _copied)),
        (_block, {"capacity": 200}, 1.0),
        (_block, PADDED, 2.0),
    ],
)
def test_the_busiest_rank_has_more_rows_and_copies_up_to_the_capacity(make, fields, most):
    layers, plain = make(**fields), make()
    for name in ("Experts1", "Experts2"):
        np.testing.assert_allclose(layers[name].flops[0], most * plain[name].flops[0])
        np.testing.assert_allclose(layers[name].activation, most * plain[name].activation)
    for name in ("Dispatch", "Combine"):
        message = most * plain[name].collective.message
        np.testing.assert_allclose(layers[name].collective.message, message)


def test_gradients_of_copies_move_as_copies_do_in_the_other_direction():
    layers = _copied(dispatch_dtype="float8")
    several = np.array([1, 1, 0])
    narrow, wide = (several * OWN * (H * width + ENTRY * K) for width in (1 + 4 / 128, 2))
    for name, there, back in (("Dispatch", narrow, wide), ("Combine", wide, narrow)):
        np.testing.assert_allclose(layers[name].collective.message, there)
        np.testing.assert_allclose(layers[name].collective.returned, back)
    moved = several * (OWN + ARRIVED) * H * (2 + 1 + 4 / 128)
    np.testing.assert_allclose(layers["Dispatch_Cast"].accessed[0], moved)


# -- laws of executions -----------------------------------------------------------------------------------------------

LARGE = document("systems", "h100_80g_sxm")
LARGE["mem1"]["GiB"] = 10_000
MACHINE = inputs.system(LARGE)
SPREAD = CORRECTED_PLAIN | {
    "microbatch_size": 4,
    "attn_impl": "flash",
    "num_procs": 16,
    "tensor_par": 2,
    "data_par": 8,
    "batch_size": 64,
    "tensor_par_comm_type": "rs_ag",
    "optimizer_sharding": True,
    "coll_algo": "auto",
}
MIXTRAL = document("models", "mixtral-8x7B")


def _stats(model=MIXTRAL, **changes):
    return calculon.estimate(model, SPREAD | changes, MACHINE).stats


def test_experts_on_one_rank_send_nothing_to_others():
    for dispatcher in ("alltoall", "allgather"):
        stats = _stats(moe_dispatcher=dispatcher)
        sent = ("ep_comm_link_time", "ep_comm_exposed_time", "ep_nic_bytes", "ep_scale_up_bytes")
        assert [stats[name] for name in sent] == [0, 0, 0, 0]
    whole = _stats(expert_tensor_par=1, tensor_par=1, num_procs=8)
    assert whole["dispatch_space"] == whole["tp_comm_link_time"] == 0


def test_rows_that_have_no_room_are_dropped():
    even = _stats(expert_par=8, expert_tensor_par=1, moe_capacity_percent=100)
    crowded = _stats(
        expert_par=8, expert_tensor_par=1, moe_capacity_percent=125, moe_imbalance_percent=250
    )
    assert even["dropped_fraction"] == 0
    assert crowded["dropped_fraction"] == 0.5
    assert crowded["expert_rows"] == 1.25 * even["expert_rows"]


def test_bytes_of_an_exchange_stay_in_the_node_or_leave_it():
    wide = {"expert_par": 8, "expert_tensor_par": 2, "mesh_order": "tp-dp-pp"}
    there = _stats(**wide)  # of seven others, three are in the node
    assert there["ep_nic_bytes"] == pytest.approx(4 / 3 * there["ep_scale_up_bytes"], rel=1e-3)
    inside = _stats(expert_par=8, expert_tensor_par=1, mesh_order="tp-dp-pp")
    tokens, passes = 4 * MIXTRAL["seq_size"] / 2, MIXTRAL["num_blocks"] * 64 / 8 / 4
    rows = 4 * passes * 2 * tokens * (2 * 4096 + 4)  # there and back, forward and backward
    counts = passes * 8 * 8 * 8
    assert inside["ep_nic_bytes"] == 0
    assert inside["ep_scale_up_bytes"] == pytest.approx((rows + counts) * 7 / 8)


# -- laws of libraries of experts -------------------------------------------------------------------------------------

EXCHANGED = ("ep_comm_link_time", "ep_scale_up_bytes", "ep_nic_bytes")
WHOLE = {"expert_tensor_par": 1, "mesh_order": "tp-dp-pp"}
FINE = MIXTRAL | {
    "num_experts": 32,
    "experts_per_token": 4,
    "expert_feedforward": 3584,
}
GROUPS = {"router_groups": 4, "router_group_topk": 1}


def _exchanged(model=FINE, system=MACHINE, **changes):
    row = SPREAD | {"num_procs": 32, "data_par": 16} | WHOLE | changes
    stats = calculon.estimate(model, row, system).stats
    return np.array([stats[name] for name in EXCHANGED])


def test_fewer_groups_of_a_token_are_fewer_bytes_between_nodes():
    free, limited = (
        _exchanged(FINE | groups, expert_par=32, moe_dispatcher="deepep") for groups in ({}, GROUPS)
    )
    chance = 1 - comb(24, 4) / comb(32, 4)  # that a node of four has an expert
    assert limited[2] / free[2] == pytest.approx(1 / (4 * chance))
    same = [_exchanged(FINE | groups, expert_par=32) for groups in ({}, GROUPS)]
    np.testing.assert_array_equal(*same)  # a row goes to each expert whatever the node


def test_a_torus_has_no_ports_for_a_library():
    ext = {"networks": [{"torus": {"sides": [4, 4, 4]}}]}
    system = LARGE | {"ext": ext}
    system["networks"] = [network | {} for network in LARGE["networks"]]
    system["networks"][0]["size"] = 64
    with pytest.raises(calculon.SpecError, match="need a port to each network, not a torus"):
        _exchanged(system=system, expert_par=8, moe_dispatcher="deepep")


DEEP = document("models", "deepseek-v2-lite") | {"num_blocks": 8}
STAGES = {"tensor_par": 1, "num_procs": 16, "pipeline_par": 2, "batch_size": 64}
STAGES |= {"expert_par": 8, "expert_tensor_par": 1, "moe_dispatcher": "alltoall"}


def _sent(model, **changes):
    """Return what a processor sends for experts in a step, inside of its node and to others."""
    stats = _stats(model, **STAGES | changes)
    return np.array([stats["ep_scale_up_bytes"], stats["ep_nic_bytes"]])


def test_a_group_sends_the_bytes_of_the_statistics():
    found = calculon.estimate(MIXTRAL, SPREAD | {"expert_par": 2, "coll_algo": "ring"}, MACHINE)
    (sent,) = [sum(group.bytes) for group in found.groups if group.kind == "expert"]
    assert sent == found.stats["ep_scale_up_bytes"] + found.stats["ep_nic_bytes"] > 0


def test_bytes_sent_in_a_step_are_those_of_the_blocks_of_the_slowest_stage():
    """It is the last, which has the head: whether the first has a dense block makes no difference."""
    every = _sent(DEEP | {"first_k_dense": 0})
    np.testing.assert_allclose(_sent(DEEP | {"first_k_dense": 1}), every, rtol=1e-12)
    assert every.sum() > 0


def test_a_module_sends_as_much_as_a_block_with_experts():
    of_stage = DEEP["num_blocks"] / STAGES["pipeline_par"]
    of_model = DEEP["num_blocks"] - DEEP["first_k_dense"]
    one_stage = {"pipeline_par": 1, "num_procs": 8}
    for modules, blocks, degrees in ((1, of_stage, {}), (2, of_model, one_stage)):
        found = _sent(DEEP | {"mtp_layers": modules}, **degrees)
        expected = _sent(DEEP, **degrees) * (1 + modules / blocks)
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=f"{modules} modules")
