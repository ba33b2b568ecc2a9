"""Context parallelism by a ring: its steps, what hides it, who waits for whom; laws, and small cases by hand."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.cost.axis_overlap import ring_exposed
from calculon.cost.layer_cost import RingSteps
from calculon.estimate.operators import block
from tests import twin
from tests.cases import for_each
from tests.helpers import CORRECTED_FLASH, document
from tests.properties.test_twin import disagreements

PARTS = 8
MODEL = {"hidden": 1024, "feedforward": 2048, "seq_size": 8192, "num_blocks": 4}
MODEL |= {"attn_heads": 16, "attn_size": 64, "kv_heads": 8}
SPLIT = CORRECTED_FLASH | {
    "num_procs": PARTS,
    "context_par": PARTS,
    "batch_size": 2,
    "coll_algo": "auto",
}
LONG = {"seq_length": 131072}
RING, CORE = "AttnBlock_KV_Ring", "AttnBlock_Flash"
MIDDLE = {"cp_comm": "a2a_p2p", "cp_a2a_size": 4}


def system(usage=0.0, outer=(), **network):
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = 100_000
    for one in raw["networks"]:
        one["processor_usage"] = usage
    raw["networks"][0] |= network
    raw["networks"][1] |= dict(outer)
    return inputs.system(raw)


SYSTEM = system()


def stats_of(machine=SYSTEM, model=MODEL, **changes):
    return calculon.estimate(model, SPLIT | changes, machine).stats


def operators(machine=SYSTEM, model=MODEL, **changes):
    return {one["name"]: one for one in block(model, SPLIT | changes, machine).operators}


def sent(operator, which):
    return next(one for one in operator["collectives"] if one["pass"] == which)


# -- what is sent -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [2, 8])
def test_bytes_of_a_ring(parts):
    """All ranks together send keys and values of all tokens to all others; gradients make one more hop."""
    found = operators(context_par=parts, num_procs=parts)[RING]
    width = 2 * MODEL["kv_heads"] * MODEL["attn_size"]
    every = MODEL["seq_size"] * width * 2  # bytes
    assert parts * sent(found, "forward")["message"] == (parts - 1) * every
    assert parts * sent(found, "activation_grad")["message"] == (parts - 1 + parts) * every


def test_latent_attention_sends_the_keys_and_values_of_all_heads():
    model = document("models", "deepseek-v2-lite")
    found = operators(model=model, seq_length=4096)[RING]
    heads = model["attn_heads"]
    width = heads * (model["qk_nope_head_dim"] + model["qk_rope_head_dim"] + model["v_head_dim"])
    part = 4096 / PARTS * width * 2
    assert sent(found, "forward")["message"] == (PARTS - 1) * part


def test_a_ring_that_skips_sends_what_windows_reach():
    model, part = MODEL | {"sliding_window": 2000}, MODEL["seq_size"] / PARTS
    every, some = (
        operators(model=model, cp_balance="contiguous", cp_skip=skips)[RING]
        for skips in (False, True)
    )
    needed = np.ceil((2000 - 1) / part)
    for which, extra in (("forward", 0), ("activation_grad", 1)):
        hops = [sent(one, which)["message"] for one in (some, every)]
        factor = 2 if extra else 1
        assert hops[0] / hops[1] == pytest.approx(
            (factor * needed + extra) / (factor * (PARTS - 1) + extra), rel=1e-14
        )


def test_a_ring_inside_of_groups_that_exchange_heads():
    """Each rank has the tokens of its group for a share of the heads: the ring sends as much, in fewer hops."""
    ring, both = operators()[RING], operators(**MIDDLE)
    groups = PARTS / 4
    part = MODEL["seq_size"] / PARTS * 2 * MODEL["kv_heads"] * MODEL["attn_size"] * 2
    assert sent(ring, "forward")["message"] == (PARTS - 1) * part
    assert sent(both[RING], "forward")["message"] == (groups - 1) * part
    outputs = MODEL["seq_size"] / PARTS * MODEL["attn_heads"] * MODEL["attn_size"] * 2
    assert sent(both["AttnBlock_Heads_Out"], "forward")["message"] == outputs
    assert sent(both["AttnBlock_Heads_In"], "forward")["message"] == outputs + part


# -- a2a_p2p between a2a and p2p --------------------------------------------------------------------------------------


@for_each("mesh", ["stated", "tp-dp-pp"])
@for_each(("size", "other"), [(PARTS, "a2a"), (1, "p2p")])
def test_groups_of_all_ranks_or_of_one(size, other, mesh):
    both = stats_of(cp_comm="a2a_p2p", cp_a2a_size=size, mesh_order=mesh)
    assert both == stats_of(cp_comm=other, mesh_order=mesh)


def test_groups_that_exchange_heads_are_neighbors():
    """Inside of nodes of four: heads go by the links of a node, keys and values from node to node."""
    ways = {"mesh_order": "tp-dp-pp", **MIDDLE}
    found, slower = (operators(system(outer=one, size=4), **ways) for one in ({}, {"bandwidth": 1}))
    for name in ("AttnBlock_Heads_In", "AttnBlock_Heads_Out"):
        assert sent(found[name], "forward")["time"] == sent(slower[name], "forward")["time"]
    assert sent(found[RING], "forward")["time"] < sent(slower[RING], "forward")["time"]


# -- steps ------------------------------------------------------------------------------------------------------------


def times(first, later, steps):
    """Return steps of some seconds forward and backward."""
    own, other = (np.array([[a], [b], [0.0]], float) for a, b in (first, later))
    none = np.zeros((3, 1))
    count = np.array([float(steps)])
    return RingSteps(steps=count, first=own, later=other, arithmetic=none, memory=none)


@for_each("usage", [0.0, 0.25])
@for_each("hop", [1.0, 3.0, 7.0])
def test_each_transfer_runs_beside_a_step(hop, usage):
    c, (own, own_back), (other, other_back) = 4, (2.0, 5.0), (4.0, 10.0)

    def left(traffic, work):
        return min(traffic, max(traffic - work, usage * traffic))

    link = np.array([[(c - 1) * hop], [(2 * c - 1) * hop], [(c - 1) * hop]])
    found = ring_exposed(link, times((own, own_back), (other, other_back), c), np.array(usage))
    forward = left(hop, own) + (c - 2) * left(hop, other)
    assert found[0] == forward
    assert found[1] == (c - 1) * left(2 * hop, other_back) + left(hop, own_back)
    assert found[2] == forward


def test_engines_that_transfers_take_slow_attention_down():
    usage, plain = 0.25, stats_of(**LONG)
    found = stats_of(system(usage), **LONG)
    hidden = usage * plain["cp_comm_link_time"]
    assert found["cp_comm_exposed_time"] == pytest.approx(hidden, rel=1e-12)


def test_steps_are_kernels_with_parts_of_queries_and_keys():
    """By the law of the kernel: the own part under the mask, others with half of the queries or of the keys."""
    found = operators(attn_kernel="flash2", **LONG)[CORE]
    law = document("systems", "h100_80g_sxm")["ext"]["kernels"]["attention"]["bfloat16"]
    kernel, part = law["kernels"]["flash2"], LONG["seq_length"] // PARTS
    heads, width, share = 16, 64, kernel["forward"]["shares"][0][1]

    def seconds(queries, keys, lead):
        waves = queries * heads / (128 * law["multiprocessors"])
        flops = 4 * queries * keys * heads * width
        work = flops / (989e12 * share) * (1 + lead / keys) * (1 + kernel["tail"] / waves)
        return (work + kernel["start"]) / kernel["sustained"]

    lead = kernel["forward"]["lead"]
    own = seconds(part, (part + 1) / 2, lead + kernel["forward"]["causal_lead"])
    other = max(seconds(part / 2, part, lead), seconds(part, part / 2, lead))
    assert found["time"]["forward"] == pytest.approx(own + (PARTS - 1) * other, rel=1e-9)


# -- who waits for whom -----------------------------------------------------------------------------------------------


@for_each(("percent", "parts"), [(100, 8), (50, 4), (10, 1)])
def test_of_gathered_documents_a_rank_has_what_is_in_its_part(percent, parts):
    """Documents of a tenth are all in one of eight parts; a ring splits them as it splits sequences."""
    packed = {"packed_percent": percent, "cp_balance": "contiguous", "seq_length": 2**22}
    even = operators(**packed | {"cp_comm": "all_gather", "cp_balance": "zigzag"})[CORE]
    gathered, ring = (operators(cp_comm=way, **packed)[CORE] for way in ("all_gather", "p2p"))
    ratio = gathered["time"]["forward"] / even["time"]["forward"]
    assert ratio == pytest.approx((2 * parts - 1) / parts, rel=2e-3)
    assert ring["time"]["forward"] / even["time"]["forward"] == pytest.approx(15 / 8, rel=2e-3)


# -- the twin ---------------------------------------------------------------------------------------------------------

CASES = (
    {},
    {"cp_balance": "contiguous", "activation_recompute": "full"},
    {"cp_balance": "striped", "activation_recompute": "attn_only"},
    {"cp_comm": "all_gather", "cp_balance": "contiguous"},
    MIDDLE | {"mesh_order": "tp-pp-dp", "activation_recompute": "full"},
    MIDDLE | {"cp_balance": "contiguous", "mesh_order": "tp-dp-pp"},
    {"cp_skip": True, "window": 300},
    {"cp_skip": True, "cp_balance": "contiguous", "window": 300, "full_attention_every": 2},
    {"cp_skip": True, "window": 1024, "chunked_window": True},
    {"window": 300, "activation_recompute": "attn_only"},
    {"packed_percent": 30, "pack_imbalance_percent": 120, "cp_balance": "contiguous"},
    {"packed_percent": 30, "cp_balance": "contiguous", "cp_comm": "all_gather"},
)


@for_each("case", range(len(CASES)))
def test_the_twin_has_the_same_ring(case):
    raw = document("systems", "a100_80g")
    raw["mem1"]["GiB"] = 100_000
    raw["networks"][1]["size"] = 4096
    for engine in ("matrix", "vector"):
        raw[engine]["bfloat16"] = raw[engine]["float16"]
    fused = document("systems", "h100_80g_sxm")["ext"]["kernels"]["attention"]["bfloat16"]
    raw["ext"] = {"kernels": {"attention": {"bfloat16": fused}}}
    model, execution = MODEL | {"seq_size": 2048}, dict(CASES[case])
    for name in ("chunked_window", "full_attention_every"):
        if name in execution:
            model[name] = execution.pop(name)
    if "window" in execution:
        model["sliding_window"] = execution.pop("window")
    question = model, SPLIT | execution, raw
    assert disagreements(calculon.estimate(*question).stats, twin.estimate(*question)) == []


def test_gradients_hide_behind_computation_alone_on_the_network_of_a_ring():
    """Of four blocks the last has nothing to hide behind; a ring on another network hides the others' gradients."""
    raw = document("systems", "h100_80g_sxm")
    raw["mem1"]["GiB"] = 100_000
    link = raw["networks"][0] | {"bandwidth": 2, "size": 64, "latency": 0, "processor_usage": 0}
    del raw["ext"]["networks"]  # measured latencies
    machine = inputs.system(raw | {"networks": [link, link]})
    plan = {"num_procs": 4, "context_par": 2, "data_par": 2, "data_par_overlap": True}
    plan |= {"coll_algo": "published"}
    apart, shared = (stats_of(machine, **plan, data_par_net=net) for net in (1, 0))
    sync = apart["dp_comm_link_time"]
    assert apart["dp_comm_exposed_time"] == pytest.approx(sync / 4, rel=1e-9)
    ring = sent(operators(machine, **plan)[RING], "activation_grad")
    backward = sum(shared[f"block_{which}_time"] for which in ("agrad", "wgrad"))
    memory = sum(shared[f"block_{which}_mem_time"] for which in ("agrad", "wgrad"))
    window = backward - memory - (ring["time"] - ring["exposed"])  # of neither memory nor the link
    assert 0 < window < sync / 4
    assert shared["dp_comm_link_time"] == sync
    assert shared["dp_comm_exposed_time"] == pytest.approx(sync - 3 * window, rel=1e-9)
