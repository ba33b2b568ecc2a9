"""Laws on as many random executions as are asked for, on systems of the catalog whose rates are laws.

More work is never faster; a better machine is never slower, nor less feasible; offloading never needs more memory.
``scripts/test --large`` tries each law on more of them.

Sizes differ within a table, and choices between its parts: executions of equal choices are evaluated together.
"""

import copy
import math
from random import Random

import numpy as np
import pytest

import calculon
from calculon.spec import catalog
from calculon.spec.named_values import SIMULATED_SCHEDULES
from tests.draws import SEED, draws
from tests.properties.test_laws import _stalled_and_uneven
from tests.properties.test_monotone import BETTER
from tests.strategies import SWITCHES, _corrected_row, _more, divisors

EXECUTIONS = draws(400)
FORMS = 6
SIZES = min(800, max(40, EXECUTIONS // 50))
"""Choices of a table, and executions of each."""

SYSTEMS = ("a100_80g_sxm", "h100_80g_sxm", "h200_141g_sxm", "b200_sxm")
SLACK = 1 + 1e-12

MOST_RATE = 2.0
"""Largest share of a link that a system may state as the rate of an operation."""


def _system(name):
    """Return a system whose memory never decides, with the types that its laws were fitted to.

    Its host memory has one rate, where the file has steps on which more bytes take less time.
    """
    system = copy.deepcopy(catalog.load("system", name)[1])
    system["mem2"]["MB_efficiency"] = [[0, 0.85]]
    system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
    types = ("float16", "bfloat16", "float8")
    system["matrix"] = {name: e for name, e in system["matrix"].items() if name in types}
    return system


def _model(random):
    """Choose a model with rows that are aligned on every rank, as fewer bytes of an odd row may take longer."""
    ranks = random.choice((4, 8, 8, 6))
    heads = ranks * random.choice((1, 2, 4, 8))
    model = {
        "hidden": 128 * ranks * random.choice((1, 2, 4, 8)),
        "feedforward": 128 * ranks * random.choice((1, 3, 8, 16, 28)),
        "seq_size": 128 * random.choice((1, 8, 16, 32, 64)),
        "attn_heads": heads,
        "attn_size": random.choice((64, 128, 128)),
        "num_blocks": random.choice((2, 4, 8, 12, 24, 32, 36, 48, 61)),
        "vocab": 128 * ranks * random.choice((20, 40, 125)),
    }
    options = {
        "kv_heads": (heads, heads // 2, ranks),
        "activation": ("relu", "squared_relu", "swiglu", "geglu"),
        "norm": ("layernorm_no_bias", "layernorm_plain", "rmsnorm"),
        "qk_norm": ("head", "full"),
        "parallel_attention": (True,),
        "attention_gate": (True,),
        "dropout": (False,),
        "rotary": (0.25, 0.5, 1.0),
        "causal": (False,),
        "sliding_window": (64, 512, 5000),
        "full_attention_every": (1, 2, 5),
        "positions": (2**17,),
    }
    if random.random() < 0.25:
        return model | _latents(random) | {"norms": 2, "norm": "rmsnorm"}
    switches = ("qkv_bias", "out_bias", "mlp_bias", "tied", "embedding_norm", "head_bias")
    options |= dict.fromkeys(switches, (True,))
    model |= {
        name: random.choice(values) for name, values in options.items() if random.random() < 0.35
    }
    model["norms"] = random.choice((1, 2) if "parallel_attention" in model else (2, 4))
    return model


def _latents(random):
    """Choose widths of latent attention."""
    nope, rope = random.choice((64, 128)), random.choice((32, 64))
    return {
        "attn_size": nope + rope,
        "q_lora_rank": random.choice((0, 256, 1536)),
        "kv_lora_rank": random.choice((256, 512)),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": random.choice((64, 128, 256)),
    }


def _form(random, model, system):
    """Choose an execution in 16 bits, of which some have products in 8."""
    row = {"datatype": "float8"}
    while row["datatype"] == "float8":
        row = _corrected_row(random, model, system)
    row |= _more(random, row, model, system)
    plain = row["matmul_impl"] == "gemm" and row["tensor_par_overlap"] == "none"
    if "float8" in system["matrix"] and plain and random.random() < 0.3:
        row["matmul_dtype"] = "float8"
    row["mesh_order"] = random.choice(("stated", "tp-dp-pp", "tp-pp-dp"))
    return row | {"seq_length": 0}


def _sized(random, form, model, system):
    """Return a form with other sizes, of which some contradict it."""
    row = dict(form)
    degrees = divisors(math.gcd(model["hidden"], model["feedforward"], model["attn_heads"]))
    if row["tensor_par"] > 1:
        row["tensor_par"] = random.choice(degrees[1:])
    stated = ("first_stage_blocks", "last_stage_blocks", "stage_blocks")
    laid_out = row.get("pp_layout", "uniform") != "uniform" or any(map(row.get, stated))
    if row["pipeline_par"] > 1 and not laid_out:
        row["pipeline_par"] = random.randint(2, min(8, model["num_blocks"]))
    blocks = -(-model["num_blocks"] // row["pipeline_par"])
    if row["pipeline_interleaving"] > 1 and not laid_out:
        row["pipeline_interleaving"] = random.choice(divisors(blocks)[1:] or [1])
    if row["data_par"] > 1:
        row["data_par"] = random.choice((2, 3, 4, 8, 16))
    row["num_procs"] = row["tensor_par"] * row["pipeline_par"] * row["data_par"]
    row["microbatch_size"] = random.choice((1, 1, 2, 3, 4, 8))
    microbatches = random.choice((1, 2, 3, 4, 7, 8, 16, 64))
    row["batch_size"] = row["data_par"] * row["microbatch_size"] * microbatches
    if row["mesh_order"] == "stated":
        for name in ("tensor_par_net", "pipeline_par_net", "data_par_net"):
            row[name] = random.randrange(len(system["networks"]))
    stage = row.get("zero_stage", "auto")
    if stage in ("3", "fsdp"):
        if not laid_out:
            chunk = max(1, blocks // row["pipeline_interleaving"])
            row["fsdp_unit"] = random.choice(divisors(chunk))
        row["fsdp_prefetch"] = random.choice((0, 1, 1, 2))
    if stage in ("1", "2", "3", "fsdp"):
        row["dp_shard"] = random.choice((0, *divisors(row["data_par"])[1:]))
    if stage in ("0", "1", "2"):
        row["ddp_bucket_mib"] = random.choice((0, 1, 25, 400))
    if stage == "2":
        row["grad_group"] = random.choice((1, 1, 2, 3))
    if row["recompute_every"] > 1:
        row["recompute_every"] = random.choice((2, 3, 4))
    return row | {"vocab_pad_multiple": random.choice((1, 1, 8, 128))}


def _tables(law):
    """Yield tables: a source of numbers, a model, a system and executions."""
    number = 0
    while True:
        random = Random(f"{law} {number + SEED - 1}")
        system, model = _system(SYSTEMS[number % len(SYSTEMS)]), _model(random)
        forms = [_form(random, model, system) for _ in range(FORMS)]
        rows = [_sized(random, form, model, system) for form in forms for _ in range(SIZES)]
        yield random, model, system, rows
        number += 1


def _evaluate(model, system, rows):
    return calculon.evaluate(model, system, calculon.Plan.from_records(rows))


def _assert_below(low, high, name, law, rows):
    """Compare a statistic of the same executions, where it is known to be below."""
    wrong = np.flatnonzero(~(low[name] <= high[name] * SLACK))
    if len(wrong):
        first = int(wrong[0])
        found = f"{low[name][first]} above {high[name][first]}"
        pytest.fail(f"{law}: {name} of {len(wrong)} of {len(rows)}: {found}: {rows[first]}")


# -- more work --------------------------------------------------------------------------------------------------------


def _more_microbatches(random, model, rows):
    def more(row):
        one = row["data_par"] * row["microbatch_size"]
        return row | {"batch_size": row["batch_size"] + one * random.choice((1, 2, 5))}

    return model, [more(row) for row in rows]


def _larger_microbatches(random, model, rows):
    def more(row):
        times = random.choice((2, 3))
        return row | {name: times * row[name] for name in ("batch_size", "microbatch_size")}

    return model, [more(row) for row in rows]


def _longer_sequences(random, model, rows):
    return model, [
        row | {"seq_length": random.choice((2, 3, 4)) * model["seq_size"]} for row in rows
    ]


def _more_of(name):
    def more(random, model, rows):
        return model | {name: random.choice((2, 3)) * model[name]}, rows

    return more


MORE_WORK = {
    "more microbatches": _more_microbatches,
    "larger microbatches": _larger_microbatches,
    "longer sequences": _longer_sequences,
    "more blocks": _more_of("num_blocks"),
    "a wider MLP": _more_of("feedforward"),
    "more words": _more_of("vocab"),
}


def _comparable(law, rows):
    """Whether the law holds of rows.

    A balanced pipeline has another layout for other sizes of head and blocks. What a pass waits for the host is one
    number for blocks that a transfer follows and for others: where their collectives differ and run beside products,
    one of the two may wait for less of both than it takes. A stated algorithm has chains inside of a node, which are
    longer in a larger one; none is looked for that is faster there. Where stages differ in a simulated schedule, more
    words give gradients more time to hide in, on a stage that no other waits for.
    """

    def holds(row):
        tiled = row["tensor_par_overlap"] != "none" and row["tensor_par_comm_type"] == "p2p_rs_ag"
        launched = (row["launch_mode"], row["fusion"]) != ("auto", "published")
        moved = law in ("more words", "a wider MLP") and row.get("pp_layout") == "balanced"
        stated = row["coll_algo"] not in ("auto", "published") and row["mesh_order"] != "stated"
        chained = law == "a larger network" and stated
        hides = law == "more words" and row.get("pp_schedule") in SIMULATED_SCHEDULES
        return not (tiled and launched) and not moved and not chained and not hides

    return np.array([holds(row) for row in rows])


@pytest.mark.parametrize("law", MORE_WORK)
def test_more_work_is_never_faster(law):
    tried = 0
    for random, model, system, rows in _tables(law):
        less = _evaluate(model, system, rows)
        larger, more_rows = MORE_WORK[law](random, model, rows)
        more = _evaluate(larger, system, more_rows)
        both = less.feasible & more.feasible & _comparable(law, rows)
        here = [row for row, one in zip(rows, both, strict=True) if one]
        _assert_below(less.take(both), more.take(both), "total_time", law, here)
        tried += len(here)
        if tried >= EXECUTIONS:
            break
    print(f"{law}: {tried} executions")


# -- a better machine -------------------------------------------------------------------------------------------------


def _laws(kind):
    def of(system):
        stated = system["ext"]["kernels"].get(kind, {})
        return [law for law in stated.values() if "law" in law]

    return of


def _products(system, factor):
    for law in _laws("product")(system):
        for name in ("max_efficiency", "sustained", "memory_efficiency"):
            law[name] = min(1.0, law[name] * factor)
        law["start"] /= factor


def _attention(system, factor):
    """Raise all shares alike, as a wider head is never to be faster."""
    for law in _laws("attention")(system):
        for kernel in law["kernels"].values():
            kernel["start"] /= factor
            kernel["sustained"] = min(1.0, kernel["sustained"] * factor)
            for one in (kernel["forward"], kernel["backward"]):
                most = max(share for _, share in one["shares"])
                one["shares"] = [[w, share * min(factor, 1 / most)] for w, share in one["shares"]]


def _traffic(system, factor):
    streams = [system["ext"]["traffic"]]
    streams += [law for kind in ("norm", "activation", "loss") for law in _laws(kind)(system)]
    for law in streams:
        law["start"] /= factor
        for name in ("efficiency", "backward"):
            if name in law:
                law[name] = min(1.0, law[name] * factor)


def _launches(system, factor):
    launch = system["ext"]["launch"]
    system["ext"]["launch"] = {name: time / factor for name, time in launch.items()}


def _operations(system, factor):
    for link in system["ext"]["networks"]:
        for law in link.get("operations", {}).values():
            law["latency"] /= factor
            if "rank_latency" in law:
                law["rank_latency"] /= factor
            law["rates"] = [
                [n, min(MOST_RATE, share * factor), ramp / factor]
                for n, share, ramp in law["rates"]
            ]


def _usage(system, factor):
    for place in (*system["networks"], *system["ext"]["networks"]):
        if "processor_usage" in place:
            place["processor_usage"] /= factor


def _host(system, factor):
    system["ext"]["host"]["GBps"] *= factor


def _reserve(system, factor):
    use = system["ext"]["memory"]
    names = ("withheld_GiB", "context_MiB", "workspaces_MiB", "communicator_MiB", "fragmentation")
    system["ext"]["memory"] = use | {name: use[name] / factor for name in names if name in use}


def _capacity(system, factor):
    for tier in ("mem1", "mem2"):
        system[tier]["GiB"] *= factor


BETTER_LAWS = {
    **{name: BETTER[name] for name in BETTER if name != "higher efficiencies"},
    "faster products": _products,
    "faster attention": _attention,
    "faster traffic": _traffic,
    "faster launches": _launches,
    "faster operations of networks": _operations,
    "fewer processors for collectives": _usage,
    "a faster host": _host,
    "less that is reserved": _reserve,
    "more memory": _capacity,
}


@pytest.mark.parametrize("law", BETTER_LAWS)
def test_a_better_machine_is_never_slower_nor_less_feasible(law):
    tried = 0
    for random, model, system, rows in _tables(law):
        for tier in ("mem1", "mem2"):  # which decides of some
            system[tier]["GiB"] = 200.0
        better = copy.deepcopy(system)
        BETTER_LAWS[law](better, random.choice((1.001, 1.3, 2, 16)))
        before, after = (_evaluate(model, one, rows) for one in (system, better))
        lost = before.feasible & ~after.feasible
        assert not lost.any(), f"{law}: {after.reason[lost][0]}"
        run = before.feasible & ~_stalled_and_uneven(model, rows) & _comparable(law, rows)
        here = [row for row, one in zip(rows, run, strict=True) if one]
        _assert_below(after.take(run), before.take(run), "total_time", law, here)
        tried += int(before.feasible.sum())
        if tried * len(BETTER_LAWS) >= EXECUTIONS:
            break
    print(f"{law}: {tried} executions")


# -- offloading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SWITCHES)
def test_offloading_never_needs_more_memory(name):
    tried = 0
    for _, model, system, rows in _tables(name):
        kept, moved = (
            _evaluate(model, system, [r | {name: on} for r in rows]) for on in (False, True)
        )
        both = kept.feasible & moved.feasible
        here = [row for row, one in zip(rows, both, strict=True) if one]
        _assert_below(moved.take(both), kept.take(both), "proc_mem_tier1_cap_req", name, here)
        tried += len(here)
        if tried * len(SWITCHES) >= EXECUTIONS:
            break
    print(f"{name}: {tried} executions")
