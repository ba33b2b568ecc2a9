"""Laws of pipelines: of batches, offloading, overlapped transfers, schedules and layouts, in the corrected edition."""

import math
from collections import Counter
from random import Random

import numpy as np
from hypothesis import strategies as st

from calculon.declarations.named_values import PAIRED_SCHEDULES, SIMULATED_SCHEDULES
from tests.draws import draws
from tests.helpers import PLAIN
from tests.properties.table import (
    Table,
    collected,
    drawn_otherwise,
    evaluated,
    excess,
    excused,
    holds,
    holds_on_changes,
)
from tests.properties.test_laws import improvements
from tests.store import stored
from tests.strategies import SWITCHES, divisors, pipelines, systems

SLACK = 1 + 1e-9
FORMS = ({}, {"zero_stage": "1", "optimizer_sharding": True}, {"zero_stage": "0", "no_sync": False})


@stored
def drawn():
    """Draw executions that share a few blocks, most of them in pipelines, and evaluate them."""
    return evaluated(Table(*one) for one in collected(tables(), draws(6)))


@st.composite
def tables(draw, rows=40):
    """A model, a system that is never too small, and executions that share a few blocks, most of them in pipelines."""
    blocks, heads = draw(st.integers(1, 24)), draw(st.sampled_from((2, 8)))
    widths = {"hidden": 64 * heads, "feedforward": 256 * heads, "attn_heads": heads}
    model = widths | {"attn_size": 64, "seq_size": 256, "num_blocks": blocks}
    ends = {}, {"vocab": 1000}, {"vocab": 50_000, "tied": True}, {"vocab": 5_000, "mtp_layers": 1}
    model |= draw(st.sampled_from(ends))
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


def _apart(table, names):
    """Return the table without transfers overlapped with passes, where executions have one of some switches."""
    return table.each(
        lambda row: {"p2p_overlap": False} if any(row[name] for name in names) else {}
    )


def test_half_the_batch_never_takes_longer():
    def halved(row):
        paired = row.get("pp_schedule") in PAIRED_SCHEDULES  # which need many
        return row["batch_size"] // row["data_par"] % 2 == 0 and not paired

    def longer(table):
        whole = table.change(p2p_overlap=False)  # which few microbatches do not allow
        half = whole.each(lambda row: {"batch_size": row["batch_size"] // 2})
        return excess(half, whole, "total_time", slack=SLACK)

    holds(longer, [table.only(halved) for table in drawn()], least=50)


def test_overlapped_transfers_are_never_slower():
    """What is offloaded hides transfers too, if they are apart."""

    def slower(table):
        kept = dict.fromkeys(SWITCHES, False)
        simulated = table.each(
            lambda row: kept if row.get("pp_schedule") in SIMULATED_SCHEDULES else {}
        )
        apart, overlapped = (simulated.change(p2p_overlap=there) for there in (False, True))
        return _where_both_run(overlapped, apart, "total_time")

    holds(slower, drawn(), least=50)


def _where_both_run(less, more, name):
    over = excess(less, more, name, slack=SLACK)
    return np.where(less.found.feasible & more.found.feasible, over, np.nan)


def test_twice_the_batch_on_twice_the_replicas_takes_as_long():
    """But for the traffic between replicas, and what they share.

    The times of passes are of the slowest stage. Stages that differ may be stalled for gradients of each microbatch,
    and the stalls, which are longer with more replicas, then decide which stage is the slowest.
    """
    names, passes = ("optim_step_time", "proc_mem_tier1_cap_req"), ("fw_time", "bw_time")
    doubled = ("num_procs", "data_par", "batch_size")

    def other(table):
        one = table.change(data_par_overlap=False)
        two = one.each(lambda row: {name: 2 * row[name] for name in doubled})

        def differ(names):
            return np.any([one.found[name] != two.found[name] for name in names], axis=0)

        same = [row.get("no_sync", True) or _alike(row, table.model) for row in table.rows]
        wrong = differ(names) | (differ(passes) & np.array(same, bool))
        return np.where(one.found.feasible, wrong, np.nan)

    def replicated(row):  # in other forms there is one
        return row["data_par"] > 1 and not row["optimizer_sharding"]

    holds(other, [table.only(replicated) for table in drawn()[: draws(5)]], least=20)


def test_a_better_machine_never_refuses_and_is_never_slower():
    """But for stages that differ, and transfers beside what is offloaded: those closed forms are bounds from above."""
    broken = Counter()

    def slower(name, table, improved):
        refused = table.found.feasible & ~improved.found.feasible
        over = improved.found["total_time"] - table.found["total_time"] * SLACK
        differ = ("" if _equal_stages(row, table.model) else "differ" for row in table.rows)
        return np.where(refused, np.inf, excused(over, differ, broken))

    tried = 0
    for number, table in enumerate(drawn()):
        tried += holds_on_changes(slower, _apart(table, SWITCHES), improvements(number))
    assert tried > 100
    assert broken == {} or drawn_otherwise()


def _alike(row, model):
    """Return true if all stages have equal passes: as many blocks each, and neither embedding nor head."""
    return row["pipeline_par"] == 1 or (_equal_stages(row, model) and "vocab" not in model)


def _equal_stages(row, model):
    counts = [row.get(f"{name}_stage_blocks", 0) for name in ("first", "last")]
    layout = row.get("pp_layout", "uniform") != "uniform"
    stated = layout or any(counts) or row.get("stage_blocks", "")
    return not stated and math.remainder(model["num_blocks"], row["pipeline_par"]) == 0
