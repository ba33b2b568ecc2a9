"""Laws of pipelines: of batches, offloading, overlapped transfers, schedules and layouts, in the corrected edition."""

import copy
import json
import math
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import calculon
from calculon.records import columns
from calculon.spec.named_values import PAIRED_SCHEDULES, SIMULATED_SCHEDULES
from calculon.statistics import CorrectedStats
from tests.draws import draws
from tests.helpers import PLAIN
from tests.properties.test_laws import IMPROVEMENTS
from tests.strategies import SWITCHES, divisors, pipelines, systems

SLACK = 1 + 1e-9
FORMS = ({}, {"zero_stage": "1", "optimizer_sharding": True}, {"zero_stage": "0", "no_sync": False})
NULLABLE = {column.name for column in columns(CorrectedStats) if column.nullable}


@st.composite
def tables(draw, rows=40):
    """A model, a system that is never too small, and executions that share a few blocks, most of them in pipelines."""
    blocks, heads = draw(st.integers(1, 24)), draw(st.sampled_from((2, 8)))
    widths = {"hidden": 64 * heads, "feedforward": 256 * heads, "attn_heads": heads}
    model = widths | {"attn_size": 64, "seq_size": 256, "num_blocks": blocks}
    model |= draw(st.sampled_from(({}, {"vocab": 1000}, {"vocab": 50_000, "tied": True})))
    system = draw(systems())
    system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
    for network in system["networks"]:
        network |= {"size": 10**8, "must_be_filled": False}
        network["processor_usage"] = min(network["processor_usage"], 0.49)
    random = draw(st.randoms(use_true_random=True))
    shared = [_block(random, system) for _ in range(2)]
    form = draw(st.sampled_from(FORMS))
    found = [_row(random, model, system, random.choice(shared), form) for _ in range(rows)]
    return model, system, found


def _block(random: Random, system):
    tensor_par = random.choice((1, 2))
    return {
        "edition": "corrected",
        "preset": "published",
        "tensor_par": tensor_par,
        "activation_recompute": random.choice(("none", "attn_only", "full")),
        "tensor_par_comm_type": random.choice(("ar", "p2p_rs_ag")),
        "tensor_par_overlap": random.choice(("none", "ring")) if tensor_par > 1 else "none",
        "datatype": next(iter(system["matrix"])),
    }


def _row(random: Random, model, system, shared, form):
    blocks, network = model["num_blocks"], range(len(system["networks"]))
    p, replicas = random.randint(1, min(blocks, 7)), random.choice((1, 2, 4))
    stage = -(-blocks // p)
    microbatches = random.randint(1, 12)
    row = PLAIN | shared | (form if replicas > 1 else {})
    row |= {
        "num_procs": shared["tensor_par"] * p * replicas,
        "pipeline_par": p,
        "data_par": replicas,
        "pipeline_par_net": random.choice(network),
        "data_par_net": random.choice(network),
        "batch_size": replicas * microbatches,
        "pipeline_interleaving": random.choice(divisors(stage)) if p > 1 else 1,
        "data_par_overlap": replicas > 1 and random.random() < 0.5,
    }
    for name in SWITCHES:
        row[name] = stage >= 3 and random.random() < 0.3
    return row | pipelines(random, row, model)


def _evaluate(model, system, rows):
    return calculon.evaluate(model, system, calculon.Plan.from_records(rows))


def _never_more(name, less, more):
    """Compare a statistic where both tables can run."""
    both = less.feasible & more.feasible
    assert (less[name][both] <= more[name][both] * SLACK).all()
    return both


@settings(max_examples=draws(12))
@given(table=tables())
def test_half_the_batch_never_takes_longer(table):
    model, system, rows = table
    even = [row for row in rows if row["batch_size"] // row["data_par"] % 2 == 0]
    even = [row for row in even if row.get("pp_schedule") not in PAIRED_SCHEDULES]  # need many
    halves = [row | {"batch_size": row["batch_size"] // 2, "p2p_overlap": False} for row in even]
    whole = [row | {"p2p_overlap": False} for row in even]  # which few microbatches do not allow
    if even:
        both = _never_more(
            "total_time", _evaluate(model, system, halves), _evaluate(model, system, whole)
        )
        assert both.all()


@settings(max_examples=draws(12))
@given(table=tables())
def test_transfers_beside_passes_are_never_slower(table):
    model, system, rows = table
    kept = dict.fromkeys(
        SWITCHES, False
    )  # what is offloaded hides transfers too, if they are apart
    rows = [row | kept if row.get("pp_schedule") in SIMULATED_SCHEDULES else row for row in rows]
    apart, beside = (
        _evaluate(model, system, [row | {"p2p_overlap": there} for row in rows])
        for there in (False, True)
    )
    _never_more("total_time", beside, apart)


@settings(max_examples=draws(12))
@given(table=tables(), name=st.sampled_from(SWITCHES))
def test_offloading_never_needs_more_of_the_first_tier(table, name):
    model, system, rows = table
    kept, moved = (
        _evaluate(model, system, [row | {name: there} for row in rows]) for there in (False, True)
    )
    _never_more("proc_mem_tier1_cap_req", moved, kept)


@settings(max_examples=draws(8))
@given(table=tables())
def test_twice_the_batch_on_twice_the_replicas_takes_as_long(table):
    """But for the traffic between replicas, and what they share."""
    model, system, rows = table
    rows = [row | {"data_par_overlap": False} for row in rows if not row["optimizer_sharding"]]
    twice = [
        row | {name: 2 * row[name] for name in ("num_procs", "data_par", "batch_size")}
        for row in rows
    ]
    one, two = (_evaluate(model, system, some) for some in (rows, twice))
    several = np.array([row["data_par"] > 1 for row in rows], bool)  # in other forms there is one
    for name in ("fw_time", "bw_time", "optim_step_time", "proc_mem_tier1_cap_req"):
        np.testing.assert_array_equal(one[name][several], two[name][several])


@settings(max_examples=draws(8))
@given(table=tables(12))
def test_every_statistic_is_a_number_or_null_in_files(table):
    model, system, rows = table
    found = _evaluate(model, system, rows)
    for name in found.names:
        assert np.isfinite(found[name][found.feasible]).all() or name in NULLABLE
        assert not np.isinf(found[name]).any()
    for row in np.array(rows)[found.feasible][:2]:
        result = calculon.estimate(model, row, system, layers=True)
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()


@settings(max_examples=draws(12))
@given(
    table=tables(),
    names=st.sets(st.sampled_from(sorted(IMPROVEMENTS)), min_size=3, max_size=3),
    factor=st.sampled_from((1.001, 2, 16)),
)
def test_a_better_machine_never_refuses_and_is_never_slower(table, names, factor):
    """But for stages that differ, and transfers beside what is offloaded: those closed forms are bounds from above."""
    model, system, rows = table
    rows = [
        row | {"p2p_overlap": False} if any(row[name] for name in SWITCHES) else row for row in rows
    ]
    before = _evaluate(model, system, rows)
    alike = np.array([_equal_stages(row, model) for row in rows])
    for name in sorted(names):
        improved = copy.deepcopy(system)
        IMPROVEMENTS[name](improved, factor)
        after = _evaluate(model, improved, rows)
        assert (after.feasible | ~before.feasible).all()
        slower = after["total_time"] > before["total_time"] * SLACK
        assert not (slower & alike).any(), name


def _equal_stages(row, model):
    counts = [row.get(f"{name}_stage_blocks", 0) for name in ("first", "last")]
    layout = row.get("pp_layout", "uniform") != "uniform"
    stated = layout or any(counts) or row.get("stage_blocks", "")
    return not stated and math.remainder(model["num_blocks"], row["pipeline_par"]) == 0
