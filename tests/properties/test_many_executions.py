"""Laws on executions with all options, on systems of the catalog whose rates are formulas.

More work is never faster; a better machine is never slower, nor less feasible.
``scripts/test --large`` draws more tables.
"""

from collections import Counter
from functools import partial
from random import Random

import numpy as np
import pytest

from calculon.declarations.named_values import SIMULATED_SCHEDULES
from tests.draws import SEED
from tests.helpers import LLAMA_X64_P4, document
from tests.properties.table import (
    Table,
    above,
    drawn_otherwise,
    excess,
    excess_time,
    excused,
    holds_on_changes,
    of_catalog,
)
from tests.properties.test_laws import stalled_and_uneven
from tests.properties.test_monotone import BETTER, better_by, figures, lowered, raised, raised_share
from tests.store import cache

MAX_EXCUSED = 10
"""Known exceptions to a law that the first seed may draw; which ones depends on the fields that there are."""


@cache
def _half_of_catalog():
    """Return the drawn tables with every second of their sizes."""
    return [table.take(slice(None, None, 2)) for table in of_catalog()]


MAX_RATE = 2.0
"""Largest share of a link that a system may state as the rate of an operation."""


# -- more work --------------------------------------------------------------------------------------------------------


def _more_microbatches(random, table):
    def more(row):
        one = row["data_par"] * row["microbatch_size"]
        return {"batch_size": row["batch_size"] + one * random.choice((1, 2, 5))}

    return table.each(more)


def _larger_microbatches(random, table):
    def more(row):
        times = random.choice((2, 3))
        return {name: times * row[name] for name in ("batch_size", "microbatch_size")}

    return table.each(more)


def _longer_sequences(random, table):
    length = table.model["seq_size"]
    return table.each(lambda row: {"seq_length": random.choice((2, 3, 4)) * length})


def _more_of(name):
    def more(random, table):
        return table.of(**{name: random.choice((2, 3)) * table.model[name]})

    return more


MORE_WORK = {
    "more microbatches": _more_microbatches,
    "larger microbatches": _larger_microbatches,
    "longer sequences": _longer_sequences,
    "more blocks": _more_of("num_blocks"),
    "a wider MLP": _more_of("feedforward"),
    "more words": _more_of("vocab"),
}


ALIGNED = 128
"""Bytes of rows up to which rates of products rise."""


def _exception(law, row, model):
    """Return why a law is known not to hold for an execution; empty if it holds."""
    simulated = row.get("pp_schedule") in SIMULATED_SCHEDULES
    overlapped = row["tensor_par_overlap"] != "none"
    launched = (row["launch_mode"], row["fusion"]) != ("auto", "published")
    waits = launched and row["launch_mode"] != "blocking"  # blocking adds each launch
    algorithm = row["coll_algo"] not in ("auto", "published") and row["mesh_order"] != "stated"
    # With these an all-reduce takes as long as the scatter and the gather that replace it, but for latency.
    even = row["coll_algo"] in ("published", "hierarchical")
    known = {
        # The wait for the host is one number for all blocks. It follows from the exposed collectives of blocks inside
        # of a stage: if these get shorter by more than collectives at its border, a block there takes longer.
        "blocks that a transfer follows wait for the host": row["tensor_par_comm_type"]
        == "p2p_rs_ag"
        and row["pipeline_par"] > 1
        and waits
        and (overlapped or (law in BETTER_LAWS and not even)),
        "other sizes of head and blocks have another layout": law in ("more words", "a wider MLP")
        and row.get("pp_layout") == "balanced",
        # Rows of fewer bytes, or of an odd number of them, have a lower rate, which more of them may make up for.
        "rows are not aligned": law in ("more words", "a wider MLP")
        and _aligned_bytes(law, row, model) < ALIGNED,
        # It has chains inside of a node, which are longer in a larger one; none is looked for that is faster there.
        "a stated algorithm has longer chains": law == "a larger network" and algorithm,
        # Between nodes a group takes a smaller share of the engines than inside of a larger one.
        "a group inside of a node takes more of the engines": law == "a larger network"
        and row["mesh_order"] != "stated"
        and (row["data_par_overlap"] or overlapped),
        # Time that a backward pass waits for the host counts as gradients of weights: where those of inputs take
        # longer, and the pass as long as before, the gradients that fill the bubble take less time.
        "waits for the host fill the bubble": waits
        and (simulated or row.get("pp_schedule") == "zb_h1"),
        # Where stages differ in a simulated schedule, on a stage that no other waits for.
        "more words hide gradients": law == "more words" and simulated,
        # See test_collectives_that_leave_weight_gradients_alone_may_cost_time.
        "gradients of weights hide less": law == "fewer processors for collectives"
        and simulated
        and overlapped
        and row["activation_recompute"] != "full",
        # Time that a backward pass waits for the host counts as gradients of weights, which transfers do not overlap
        # with: shorter gradients of inputs hide less of a transfer, while the pass takes as long.
        "transfers hide behind less": law in BETTER_LAWS
        and waits
        and row.get("p2p_overlap", False),
        # The library takes the fastest algorithm, whose bytes between nodes may be more: of traffic that shares the
        # link to the host bytes count. See test_a_faster_network_may_slow_offloading_down.
        "the fastest algorithm sends more between nodes": law in NETWORK_LAWS
        and row["coll_algo"] == "auto"
        and row["data_par_overlap"]
        and (row["weight_offload"] or row["activations_offload"]),
    }
    return next((reason for reason, applies in known.items() if applies), "")


def _aligned_bytes(law, row, model):
    """Return the largest power of two in bytes that divides a row of the MLP, or of the LM head, on a rank."""
    width, ranks = model["feedforward"] // row["tensor_par"], row["tensor_par"]
    if law == "more words":
        multiple = row["vocab_pad_multiple"]
        width = -(-model["vocab"] // (multiple * ranks)) * multiple
    narrow = row["fp8_recipe"] != "none" or row["matmul_dtype"] == "float8"
    size = 0.5 if row["fp8_recipe"] == "nvfp4" else 1 if narrow else 2
    return (width & -width) * size


@pytest.mark.quick
def test_more_work_is_never_faster():
    compared, broken = Counter(), Counter()

    def faster(law, table, more):
        both = table.found.feasible & more.found.feasible
        over = np.where(both, excess_time(table, more, more_gradients=True), np.nan)
        over = excused(over, [_exception(law, row, table.model) for row in table.rows], broken)
        compared[law] += int((~np.isnan(over)).sum())
        return over

    def change(law, table):
        return MORE_WORK[law](Random(law), table)

    for number, table in enumerate(_half_of_catalog()):
        laws = list(MORE_WORK)
        laws = [*laws[: 0 if number % 2 else 3], laws[3 + number % 3]]
        holds_on_changes(faster, table, {law: partial(change, law) for law in laws})
    assert min(map(compared.get, MORE_WORK)) >= 40 or drawn_otherwise(), compared
    assert broken.total() <= MAX_EXCUSED or drawn_otherwise(), broken


# -- a better machine -------------------------------------------------------------------------------------------------


def _attention(system, factor):
    """Raise all shares alike, as a wider head is never to be faster."""
    for law in system["ext"]["kernels"]["attention"].values():
        for kernel in law.get("kernels", {}).values():
            kernel["start"] /= factor
            kernel["sustained"] = min(1.0, kernel["sustained"] * factor)
            for one in (kernel["forward"], kernel["backward"]):
                most = max(share for _, share in one["shares"])
                one["shares"] = [[w, share * min(factor, 1 / most)] for w, share in one["shares"]]


OPERATIONS = r"ext\.networks.*\.operations\.\w+"
PRODUCT = r"ext\.kernels\.product\.\w+"
STREAM = r"ext\.(traffic|kernels\.(norm|activation|loss)\.\w+)"
RESERVED = "withheld_GiB|context_MiB|workspaces_MiB|communicator_MiB|fragmentation"

BETTER_LAWS = {
    **{name: BETTER[name] for name in BETTER if name != "higher efficiencies"},
    "faster products": figures(
        {
            PRODUCT + r"\.start": lowered,
            PRODUCT + r"\.(max_efficiency|sustained|memory_efficiency)": raised_share,
        }
    ),
    "faster attention": _attention,
    "faster traffic": figures(
        {STREAM + r"\.start": lowered, STREAM + r"\.(efficiency|backward)": raised_share}
    ),
    "faster launches": figures({r"ext\.launch\.\w+": lowered}),
    "faster operations of networks": figures(
        {
            OPERATIONS + r"\.(rank_)?latency": lowered,
            OPERATIONS + r"\.rates\[\d+\]\[1\]": lambda rate, factor: min(MAX_RATE, rate * factor),
            OPERATIONS + r"\.rates\[\d+\]\[2\]": lowered,
        }
    ),
    "fewer processors for collectives": figures({r"(ext\.)?networks.*\.processor_usage": lowered}),
    "a faster host": figures({r"ext\.host\.GBps": raised}),
    "less that is reserved": figures({rf"ext\.memory\.({RESERVED})": lowered}),
    "more memory": figures({r"mem[12]\.GiB": raised}),
}

NETWORK_LAWS = [law for law in BETTER_LAWS if "network" in law]


def _small(system):
    for tier in ("mem1", "mem2"):  # which decides of some
        system[tier]["GiB"] = 200.0


def test_a_better_machine_is_never_slower_nor_less_feasible():
    compared, broken = Counter(), Counter()

    def slower(law, table, better):
        lost = table.found.feasible & ~better.found.feasible
        over = above(better.found["total_time"], table.found["total_time"])
        reasons = [
            stalled_and_uneven(table.model, row) or _exception(law, row, table.model)
            for row in table.rows
        ]
        over = np.where(lost, np.inf, excused(over, reasons, broken))
        compared[law] += int((~np.isnan(over)).sum())
        return over

    for number, table in enumerate(_half_of_catalog()):
        changes = {
            law: better_by((1.001, 1.3, 2, 16)[(number + i + SEED) % 4], better)
            for i, (law, better) in enumerate(BETTER_LAWS.items())
        }
        small = table.take(slice(None, None, 2)).on(_small)
        assert all(
            better_by(2, better)(small).system != small.system for better in BETTER_LAWS.values()
        )
        holds_on_changes(slower, small, changes)
    assert min(map(compared.get, BETTER_LAWS)) >= 20 or drawn_otherwise(), compared
    assert broken.total() <= MAX_EXCUSED or drawn_otherwise(), broken


def test_collectives_that_leave_weight_gradients_alone_may_cost_time():
    """What gradients of weights no longer hide of repeated gathers is exposed where the next stage waits for it."""
    row = LLAMA_X64_P4 | {
        "num_procs": 80,
        "tensor_par": 4,
        "tensor_par_net": 1,
        "pipeline_par": 5,
        "data_par": 4,
        "data_par_overlap": False,
        "batch_size": 32,
        "activation_recompute": "attn_only",
        "pp_schedule": "zb_h1",
        "seq_length": 1024,
    }
    table = Table(document("models", "llama3-8B"), document("systems", "h100_80g_sxm"), [row])
    better = better_by(2, BETTER_LAWS["fewer processors for collectives"])
    assert excess(better(table), table, "total_time") > 0


def test_a_faster_network_may_slow_offloading_down():
    """A tree becomes the fastest algorithm: it takes less time, but sends more over the link that offloading shares."""
    row = LLAMA_X64_P4 | {
        "tensor_par": 4,
        "pipeline_par": 1,
        "data_par": 16,
        "batch_size": 64,
        "microbatch_size": 4,
        "optimizer_sharding": False,
        "activations_offload": True,
        "mesh_order": "tp-dp-pp",
    }
    found = {}
    for name in ("auto", "ring"):
        table = Table(
            document("models", "llama3-8B"),
            document("systems", "h100_80g_sxm"),
            [row | {"coll_algo": name}],
        ).on(_small)
        before, after = (
            better_by(factor, BETTER["a higher network bandwidth"])(table) for factor in (2, 16)
        )
        assert excess(after, before, "dp_comm_link_time") < 0
        found[name] = excess(after, before, "total_time")[0]
    assert found["ring"] <= 0 < found["auto"], found
