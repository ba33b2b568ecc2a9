"""What a further axis of parallelism must do, run in a copy of the package that has one (test_axes.py).

The axis ``xp`` gathers keys and values; its collective is all that its layers add.
"""

import itertools

import numpy as np

import calculon
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.estimate.operators import block
from calculon.search.best_first import count_space
from calculon.search.driver import make_ranking, make_space, run

MODEL = {
    "hidden": 64,
    "feedforward": 256,
    "seq_size": 24,
    "attn_heads": 4,
    "attn_size": 16,
    "num_blocks": 4,
}
SYSTEM, PROCS, BATCH = "a100_80g", 16, 16
EXECUTION = calculon.inputs.execution("3072_t4_p64_d12_mbs4_full").to_dict() | {
    "edition": "corrected",
    "preset": "published",
    "num_procs": PROCS,
    "tensor_par": 2,
    "pipeline_par": 2,
    "data_par": 2,
    "example_par": 2,
    "batch_size": BATCH,
    "microbatch_size": 1,
    "pipeline_interleaving": 1,
    "pipeline_par_net": 1,
    "data_par_net": 1,
}
SERIAL = {"optimizer_sharding": False, "data_par_overlap": False}
"""What there is without replicas, or a backward pass."""

FIXED = {
    "activation_recompute": "full",
    "seq_par_ag_redo": False,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "pipeline_interleaving": 1,
    "optimizer_sharding": False,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "tensor_par_net": 0,
}


def refused(**fields):
    """Return the message of an execution that is refused."""
    try:
        calculon.estimate(MODEL, EXECUTION | fields, SYSTEM)
    except calculon.SpecError as error:
        return str(error)
    raise AssertionError("not refused")


def check_one():
    """Its time is a statistic, a part of the iteration, a group of ranks, and operators of a block."""
    found = calculon.estimate(MODEL, EXECUTION, SYSTEM, layers=True)
    stats = found.stats
    assert stats["xp_comm_link_time"] == stats["xp_comm_exposed_time"] > 0
    parts = sum(stats[name] for name in ALL_PARTS_OF_TIME)
    np.testing.assert_allclose(parts, stats["total_time"], rtol=1e-12)
    (group,) = (group for group in found.groups if group.kind == "example")
    assert (group.ranks, group.groups, group.stride) == (2, 8, 2)
    assert group.link_time == stats["xp_comm_link_time"]
    assert sum(group.bytes) > 0
    assert found.peers()["5"]["example"] == [5, 7]
    sent = [
        one for layer in block(MODEL, EXECUTION, SYSTEM).operators for one in layer["collectives"]
    ]
    along = [(one["pass"], one["operation"]) for one in sent if one.get("axis") == "xp"]
    assert along == [
        ("forward", "all_gather"),
        ("activation_grad", "reduce_scatter"),
        ("recompute", "all_gather"),
    ]
    assert "XP 2" in repr(found)
    inference = EXECUTION | SERIAL | {"training": False, "activation_recompute": "none"}
    forward = calculon.estimate(MODEL, inference, SYSTEM).stats["xp_comm_link_time"]
    assert 0 < forward < stats["xp_comm_link_time"]


def check_refusals():
    """Messages name the product of all degrees, the size that is divided, and networks that there are not."""
    assert "x example_par = 2 x 2 x 2 x 4 = 32" in refused(example_par=4)
    whole = {"tensor_par": 1, "pipeline_par": 1, "data_par": 1, "example_par": PROCS}
    assert "seq_size=24" in refused(**SERIAL, **whole)
    assert "0, since example_par is 1" in refused(example_par=1, data_par=4, example_par_net=1)
    assert "networks" in refused(example_par_net=7)
    assert "corrected" in refused(edition="sc23")


def check_table():
    """Rows of a table with several degrees are what each is alone."""
    orders = ("stated", "tp-dp-pp")
    pairs = itertools.product(((1, 4), (2, 2), (4, 1)), (0, 1), orders)
    rows = [
        EXECUTION
        | {"example_par": c, "data_par": d, "example_par_net": net, "mesh_order": order}
        | (SERIAL if d == 1 else {})
        for (c, d), net, order in pairs
        if c > 1 or not net
    ]
    found = calculon.evaluate(MODEL, SYSTEM, rows)
    assert found.feasible.all()
    for number, row in enumerate(rows):
        alone = calculon.estimate(MODEL, row, SYSTEM).stats
        values = [np.nan if alone[name] is None else alone[name] for name in found.names]
        np.testing.assert_array_equal([found[name][number] for name in found.names], values)
    one, two = found["xp_comm_link_time"][[0, 2]]
    assert one == 0 < two


def check_search():
    """A search with added degrees and networks counts and finds what all executions in a table do."""
    space = make_space(
        MODEL,
        SYSTEM,
        PROCS,
        BATCH,
        "float16",
        fix=FIXED,
        add={"example_par": (2, 4), "example_par_net": (1, 7)},
        edition="corrected",
        preset="published",
    )
    divisors = (1, 2, 4, 8, 16)
    rows = []
    for t, p, d, c in itertools.product((1, 2, 4), (1, 2, 4), divisors, (1, 2, 4)):
        if t * p * d * c != PROCS or d == 1 or p == 1:  # which need no network
            continue
        for net, size in itertools.product((0, 1), divisors):
            if (net and c == 1) or (BATCH // d) % size:
                continue
            degrees = {"tensor_par": t, "pipeline_par": p, "data_par": d, "example_par": c}
            sizes = {"microbatch_size": size, "example_par_net": net, "fused_activation": False}
            rows.append(EXECUTION | FIXED | degrees | sizes)
    table = calculon.evaluate(MODEL, SYSTEM, rows)
    assert set(table.reason.tolist()) <= {"", "network_size"}
    found = run(space, make_ranking(5, "sample_rate", edition="corrected"))
    assert count_space(space) == found.counts.total == len(rows)
    assert found.counts.good == table.feasible.sum() > 0
    best = np.sort(table["sample_rate"][table.feasible])[::-1][:5]
    np.testing.assert_array_equal(np.ravel(found.scores), best)
    again = calculon.evaluate(MODEL, SYSTEM, space.plan(found.numbers))
    np.testing.assert_array_equal(again["sample_rate"], best)


if __name__ == "__main__":
    check_one()
    check_refusals()
    check_table()
    check_search()
