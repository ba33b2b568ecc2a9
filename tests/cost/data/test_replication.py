"""Forms of data parallelism: what they send, what of it is exposed, and what they hold."""

import copy
import math

import numpy as np
import pytest

import calculon
from calculon.cost.process_groups import exposed_time
from tests import twin
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN, document

MODEL = document("models", "megatron-126M") | {"num_blocks": 12, "seq_size": 2048}
BASE = CORRECTED_PLAIN | {
    "num_procs": 8,
    "data_par": 8,
    "batch_size": 32,
    "microbatch_size": 2,
    "datatype": "bfloat16",
    "optimizer_sharding": True,
}
BLOCKS, RANKS, MICROBATCHES = 12, 8, 2


def _system(rate=1.0, usage=0.0):
    """Return a machine whose outer network is so many times as fast, and takes such a share of the engines."""
    system = copy.deepcopy(document("systems", "a100_80g_sxm"))
    network = system["networks"][1]
    network["bandwidth"] *= rate
    system["ext"]["networks"][1]["processor_usage"] = usage
    network["latency"] /= rate
    return calculon.inputs.system(system)


SLOW, FAST = _system(1e-3), _system(1e3)


def _stats(system=FAST, **changes):
    changes["optimizer_sharding"] = changes.get("zero_stage") != "0"
    return calculon.estimate(MODEL, BASE | changes, system).stats


def _time(operation, size, ranks=RANKS, system=FAST):
    operation = {"broadcast": "p2p", "reduce": "p2p"}.get(operation, operation)
    return system.fabric.time(np.array(1), operation, np.array(size), np.array(float(ranks))).item()


WEIGHT = calculon.estimate(MODEL, BASE | {"zero_stage": 1}, FAST).stats["block_weight_space"]
"""Bytes of a block's weights, and of the gradients that are reduced for them."""


def _each(*operations, system=FAST):
    return sum(_time(operation, WEIGHT, system=system) for operation in operations)


@for_each(
    ("form", "once", "every"),
    [
        ({"zero_stage": "0"}, ["all_reduce"], []),
        ({"zero_stage": "0", "no_sync": False}, [], ["all_reduce"]),
        ({"zero_stage": 1}, ["reduce_scatter", "all_gather"], []),
        ({"zero_stage": 1, "no_sync": False}, ["all_gather"], ["reduce_scatter"]),
        ({"zero_stage": 2}, ["all_gather"], ["reduce_scatter"]),
        ({"zero_stage": 3}, [], ["all_gather", "all_gather", "reduce_scatter"]),
        ({"zero_stage": "fsdp"}, [], ["all_gather", "all_gather", "reduce_scatter"]),
        (
            {"zero_stage": "fsdp", "reshard_after_forward": False},
            [],
            ["all_gather", "reduce_scatter"],
        ),
        ({"zero_stage": "fsdp", "sync_once": True}, ["all_gather", "reduce_scatter"], []),
    ],
)
def test_what_each_form_sends_for_every_block(form, once, every):
    """Source: Rajbhandari et al., arXiv 1910.02054, section 7; Zhao et al., arXiv 2304.11277, section 3.3."""
    found = _stats(**form)
    expected = BLOCKS * (_each(*once) + MICROBATCHES * _each(*every))
    assert found["dp_comm_link_time"] == pytest.approx(expected, rel=1e-12)
    assert found["dp_comm_exposed_time"] == found["dp_comm_link_time"]  # nothing overlaps


def test_owners_of_layers_broadcast_them_for_each_pass_and_collect_their_gradients():
    found = calculon.estimate(
        MODEL, BASE | {"num_procs": 4, "data_par": 4, "zero_stage": "owner"}, FAST
    )
    one = sum(_time(name, WEIGHT, 4) for name in ("broadcast", "broadcast", "reduce"))
    batch = BASE["batch_size"] / 4 / BASE["microbatch_size"]
    assert found.stats["dp_comm_link_time"] == pytest.approx(batch * BLOCKS * one, rel=1e-12)


@for_each("shards", [2, 4, 8])
def test_hybrid_shards_reduce_over_copies_what_they_share(shards):
    """Source: Zhao et al., arXiv 2304.11277, section 3.2.2."""
    copies = RANKS // shards
    gather, scatter = (_time(name, WEIGHT, shards) for name in ("all_gather", "reduce_scatter"))
    rest = _time("all_reduce", WEIGHT / shards, copies) if copies > 1 else 0.0
    found = _stats(zero_stage="fsdp", dp_shard=shards)
    expected = MICROBATCHES * BLOCKS * (2 * gather + scatter + rest)
    assert found["dp_comm_link_time"] == pytest.approx(expected, rel=1e-12)
    masters, moments = 4 / 2 * WEIGHT, 8 / 2 * WEIGHT
    assert found["weight_space"] == pytest.approx(BLOCKS * masters / shards)
    assert found["optimizer_space"] == pytest.approx(BLOCKS * moments / shards)


@for_each("unit", [1, 3, 12])
def test_units_that_computation_covers_expose_the_first_gathers_and_the_last_reduction(unit):
    changes = {"zero_stage": "fsdp", "data_par_overlap": True, "fsdp_unit": unit}
    ends = [_time(name, unit * WEIGHT) for name in ("all_gather", "all_gather", "reduce_scatter")]
    found = _stats(FAST, **changes)
    assert found["dp_comm_exposed_time"] == pytest.approx(MICROBATCHES * sum(ends), rel=1e-9)


def test_units_that_are_longer_on_the_link_than_in_computation():
    r"""Forward :math:`A + (n - 1) max(C, A) + C`, backward :math:`A + (n - 1) max(C', A + R) + C' + R`."""
    found = _stats(SLOW, zero_stage="fsdp", data_par_overlap=True)
    gather = _time("all_gather", WEIGHT, system=SLOW)
    reduce = _time("reduce_scatter", WEIGHT, system=SLOW)
    forward = found["block_fw_time"]
    backward = found["block_agrad_time"] + found["block_wgrad_time"]
    whole = gather + (BLOCKS - 1) * max(forward, gather) + forward
    whole += gather + (BLOCKS - 1) * max(backward, gather + reduce) + backward + reduce
    assert gather > forward
    assert gather + reduce > backward
    spent = BLOCKS * (forward + backward)
    expected = MICROBATCHES * (whole - spent)
    assert found["dp_comm_exposed_time"] == pytest.approx(expected, rel=1e-9)


def test_without_prefetching_nothing_overlaps():
    changes = {"zero_stage": "fsdp", "data_par_overlap": True}
    alone, ahead = (_stats(SLOW, **changes, fsdp_prefetch=n) for n in (0, 1))
    assert alone["dp_comm_exposed_time"] == alone["dp_comm_link_time"]
    assert ahead["total_time"] < alone["total_time"]
    assert _stats(SLOW, **changes, fsdp_prefetch=3)["total_time"] == ahead["total_time"]


@for_each(("percent", "share"), [(0, 0.15), (10, 0.15), (60, 0.6)])
def test_traffic_slows_the_work_beside_it_by_a_stated_share_of_its_time(percent, share):
    """All but the first unit of a pass is hidden, and costs so much; never less than the multiprocessors it takes."""
    system = _system(1e3, usage=0.15)
    found = _stats(system, zero_stage="fsdp", data_par_overlap=True, data_par_slowdown=percent)
    unit = found["dp_comm_link_time"] / (MICROBATCHES * BLOCKS)
    expected = MICROBATCHES * (unit + (BLOCKS - 1) * share * unit)
    assert found["dp_comm_exposed_time"] == pytest.approx(expected, rel=1e-9)


@for_each(("unit", "ahead"), [(1, 0), (1, 1), (2, 1), (3, 2), (6, 5)])
def test_gathered_weights_are_those_of_the_unit_at_work_and_of_those_ahead(unit, ahead):
    found = _stats(zero_stage="fsdp", fsdp_unit=unit, fsdp_prefetch=ahead)
    assert found["gathered_space"] == min(unit * (1 + ahead), BLOCKS) * WEIGHT
    assert found["comm_buffer_space"] == unit * WEIGHT
    kept = _stats(zero_stage="fsdp", reshard_after_forward=False)
    assert kept["gathered_space"] == BLOCKS * WEIGHT


def test_synchronized_once_weights_and_gradients_stay_whole_and_reductions_are_exposed():
    """Source: PyTorch, ``distributed/pipelining/stage.py``, and ``FSDPParam.accumulate_unsharded_grad_if_needed``."""
    form = {"zero_stage": "fsdp", "data_par_overlap": True, "grad_comm_dtype": "float32"}
    found = _stats(SLOW, **form, sync_once=True)
    each = _stats(SLOW, **form, reshard_after_forward=False)
    parameters = WEIGHT / 2
    assert found["gathered_space"] == each["gathered_space"] == BLOCKS * WEIGHT
    assert found["comm_buffer_space"] == (BLOCKS + 1) * 4 * parameters
    assert found["dp_comm_link_time"] == each["dp_comm_link_time"] / MICROBATCHES
    reduced = _time("reduce_scatter", 2 * WEIGHT, system=SLOW)
    window = found["block_fw_time"]
    gather = _time("all_gather", WEIGHT, system=SLOW)
    hidden = min(gather, max(gather - window, SLOW.fabric.processor_usage[1] * gather))
    expected = gather + (BLOCKS - 1) * hidden + BLOCKS * reduced
    assert found["dp_comm_exposed_time"] == pytest.approx(expected, rel=1e-6)


@for_each("form", [2, 3, "fsdp"])
def test_gradients_that_are_reduced_in_another_type_are_there_twice(form):
    """2 bytes of a parameter as computed, 4 on their way. Source: PyTorch, ``FSDPParamGroup.post_backward``."""
    parameters = WEIGHT / 2
    found = _stats(zero_stage=form, grad_comm_dtype="float32")
    assert found["comm_buffer_space"] == (2 + 4) * parameters
    assert _stats(zero_stage=form)["comm_buffer_space"] == 2 * parameters


@for_each("mib", [1, 25, 4096])
def test_buckets_but_the_last_hide_behind_what_comes_before_it(mib):
    """Source: Li et al., arXiv 2006.15704, section 3.2.3."""
    bucket, whole = mib * 2**20, BLOCKS * WEIGHT
    count = math.ceil(whole / bucket)
    last = whole - (count - 1) * bucket
    others = (count - 1) * _time("all_reduce", bucket, system=SLOW)
    found = _stats(SLOW, zero_stage="0", ddp_bucket_mib=mib, data_par_overlap=True)
    backward = BLOCKS * (found["block_agrad_time"] + found["block_wgrad_time"])
    exposed = _time("all_reduce", last, system=SLOW)
    exposed += max(0.0, others - backward * (1 - last / whole))
    assert found["dp_comm_exposed_time"] == pytest.approx(exposed, rel=1e-9)
    link = others + _time("all_reduce", last, system=SLOW)
    assert found["dp_comm_link_time"] == pytest.approx(link, rel=1e-9)


def test_new_weights_that_are_gathered_beside_the_forward_pass_expose_the_first_block():
    changes = {"zero_stage": 1, "data_par_overlap": True}
    after, beside = (_stats(**changes, overlap_param_gather=on) for on in (False, True))
    one = _time("all_gather", WEIGHT)
    saved = after["dp_comm_exposed_time"] - beside["dp_comm_exposed_time"]
    assert saved == pytest.approx((BLOCKS - 1) * one, rel=1e-9)


@for_each(("unit", "again"), [(1, True), (3, True), (1, False)])
@for_each("comm", ["bfloat16", "float32"])
def test_fsdp_copies_weights_out_of_what_it_gathers_and_gradients_into_what_it_reduces(
    unit, again, comm
):
    """Source: PyTorch, pull requests 117203, 119451 (4 bytes read and written per parameter), 121081."""
    form = {"fsdp_unit": unit, "reshard_after_forward": again, "grad_comm_dtype": comm}
    found, without = (_stats(**form, zero_stage=stage) for stage in ("fsdp", 3))
    masters, reduced = 4 / 2 * WEIGHT, {"bfloat16": 2, "float32": 4}[comm] / 2 * WEIGHT
    gather = (masters + WEIGHT) / RANKS + WEIGHT + WEIGHT
    times = [FAST.move_time(np.array(unit * size)) / unit for size in (gather, WEIGHT + reduced)]
    for pass_, time in zip(
        ("fw", "agrad", "wgrad"), (times[0], again * times[0], times[1]), strict=True
    ):
        name = f"block_{pass_}_time"
        assert found[name] - without[name] == pytest.approx(time, abs=1e-12)
    whole = (2 if again else 1) * times[0] + times[1]
    assert found["copy_time"] == pytest.approx(MICROBATCHES * BLOCKS * whole)
    assert without["copy_time"] == 0
    for name in ("fw_time", "bw_time", "dp_comm_link_time"):
        assert found[name] >= without[name]


def test_what_a_form_holds_falls_from_stage_to_stage():
    names = ("weight_space", "weight_grad_space", "optimizer_space")
    states = [sum(_stats(zero_stage=z)[n] for n in names) for z in ("0", 1, 2, 3)]
    assert states == sorted(states, reverse=True)
    parameters = BLOCKS * WEIGHT / 2
    weights, gradients, optimizer = 2, 4, 12
    shared = (gradients / 2, optimizer)  # split gradients have the type of the weights
    assert states == pytest.approx(
        [
            parameters * (weights + gradients + optimizer),
            parameters * (weights + gradients + optimizer / RANKS),
            parameters * (weights + sum(shared) / RANKS),
            parameters * (weights + sum(shared)) / RANKS,
        ]
    )


@for_each(
    ("traffic", "window", "usage", "left"),
    [
        (2.0, 3.0, 0.0, 0.0),
        (2.0, 3.0, 0.25, 0.5),  # slows what runs beside it
        (4.0, 3.0, 0.0, 1.0),
        (4.0, 3.0, 0.5, 2.0),  # 4 s at half the rate do 2 s of the work, the third follows
        (4.0, 0.0, 0.5, 4.0),
    ],
)
def test_traffic_adds_what_is_left_of_it_or_what_it_slows(traffic, window, usage, left):
    assert exposed_time(np.array(traffic), np.array(window), np.array(usage)) == left


def _hybrid(rate, form, *, synchronous=True):
    """Return a machine whose outer network has such a rate, and hybrid sharding over two nodes of it."""
    system = copy.deepcopy(document("systems", "a100_80g_sxm"))
    system["networks"][1]["bandwidth"] *= rate
    system["ext"]["networks"][1]["synchronous"] = synchronous
    row = BASE | {"num_procs": 16, "data_par": 16, "dp_shard": 8, "zero_stage": form}
    return row | {"mesh_order": "tp-dp-pp", "coll_algo": "auto", "data_par_overlap": True}, system


@for_each("form", ["3", "fsdp"])
def test_copies_of_shards_hide_nothing_on_a_synchronous_network(form):
    """The network of the copies does not change how much of their own traffic the shards of a node hide."""

    def traffic(rate, **network):
        row, system = _hybrid(rate, form, **network)
        found = calculon.estimate(MODEL, row, calculon.inputs.system(system)).stats
        return found["dp_comm_link_time"], found["dp_comm_exposed_time"]

    (slow, exposed), (fast, least) = traffic(1e-2), traffic(1e3)
    assert slow > 2 * fast
    assert slow - exposed == pytest.approx(fast - least, rel=1e-9)
    link, overlapped = traffic(1, synchronous=False)
    assert traffic(1)[0] == link
    assert traffic(1)[1] > overlapped


@for_each("form", ["2", "3", "fsdp"])
def test_an_independent_implementation_waits_as_long_on_a_synchronous_network(form):
    for rate in (1e-2, 1):
        row, system = _hybrid(rate, form)
        system["ext"] = {"networks": system["ext"]["networks"]}  # it has no measured kernels
        found = calculon.estimate(MODEL, row, calculon.inputs.system(system)).stats
        expected = twin.estimate(MODEL, row, system)
        for name in ("total_time", "dp_comm_link_time", "dp_comm_exposed_time"):
            assert found[name] == pytest.approx(expected[name], rel=1e-9)
