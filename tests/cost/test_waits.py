"""What a stage waits for, where one wait hides another."""

import numpy as np
import pytest

import calculon
from calculon.cost.embedding_head import EmbeddingHeadTimes
from calculon.cost.launches import lag
from calculon.inputs import Changed
from tests.helpers import CORRECTED_PLAIN, document

EXPERTS = {"edition": "corrected", "preset": "common", "num_procs": 8, "tensor_par": 1}
EXPERTS |= {"pipeline_par": 1, "expert_par": 8, "batch_size": 64, "fusion": "compile"}

PLAN = CORRECTED_PLAIN | {"num_procs": 8, "tensor_par": 8, "batch_size": 4}


def _system(eager, slower):
    raw = document("systems", "a100_80e")
    raw["mem1"]["GiB"] = 1e6
    for network in raw["networks"]:
        network["bandwidth"] /= slower
    return raw | {"ext": {"launch": {"kernel": 0, "eager": eager}}}


@pytest.mark.parametrize("again", ["none", "full"])
def test_the_host_launches_on_while_a_collective_is_waited_for(again):
    """Passes and what they wait for collectives take as long as the launches, however slow the network is."""
    plan = PLAN | {"activation_recompute": again, "launch_mode": "eager"}
    totals = []
    for slower in (1, 2):
        found = calculon.estimate("megatron-22B", plan, _system(1e-2, slower)).stats
        forward = found["block_fw_time"] + found["baseblock_fw_tp_time_exposed"]
        backward = found["block_agrad_time"] + found["block_wgrad_time"] + found["block_re_time"]
        backward += found["baseblock_agrad_tp_time_exposed"]
        totals.append((forward, backward + found["baseblock_recomm_time_exposed"]))
    assert totals[0] == pytest.approx(totals[1], rel=1e-12)
    assert totals[0][0] / 1e-2 == pytest.approx(round(totals[0][0] / 1e-2), rel=1e-12)


@pytest.mark.parametrize("layout", [{}, {"first_stage_blocks": 24}])
def test_two_microbatches_of_a_group_take_no_less_than_one(layout):
    form = {"zero_stage": "2", "grad_group": 2, "optimizer_sharding": True, **layout}
    shape = {"num_procs": 128, "pipeline_par": 2, "data_par": 8, "pipeline_interleaving": 6}
    nets = {"pipeline_par_net": 1, "data_par_net": 1}
    rows = [PLAN | form | shape | nets | {"batch_size": 8 * m} for m in (1, 2)]
    one, two = calculon.evaluate(
        "megatron-22B", _system(0, 1000), calculon.Plan.from_records(rows)
    )["total_time"]
    assert one <= two


def test_the_slower_end_is_that_with_its_gradient_accumulation():
    class Times(EmbeddingHeadTimes):
        piped, embedding, head = np.array(True), np.array(2.0), np.array(3.0)

    one, two = np.array(1.0), np.array(2.0)
    for added, slower in ((None, 2), ((np.array(0.5), one), 2), ((np.array(5.0), one), 1)):
        times = Times(None, None, added=added)
        assert times.of_slower(one, two) == slower
        assert times.of_faster(one, two) == 3 - slower
        assert times.fill == (3.0 if slower == 1 else 2.0)


def test_an_idle_device_waits_for_the_largest_lead_of_launches():
    """Three kernels, the second of a layer of two: the host is ahead from the second on."""
    host, busy = np.array([[3.0], [4.0]]), np.array([[1.0], [20.0]])
    kernels = np.array([[1.0], [2.0]])
    # after 3 the first kernel starts, until 4; after 5 the first of two, while the second is launched
    assert lag(host, busy, kernels, first=0) == pytest.approx(5 - 1)
    # the other way round: 2 for the first of two, which hides all that follows
    assert lag(host, busy, kernels, first=1) == pytest.approx(2)


@pytest.mark.parametrize("again", ["none", "full"])
def test_fewer_launches_by_the_host_take_no_longer(again):
    modes = ("graph", "graph_parts", "eager", "blocking")
    plans = [EXPERTS | {"launch_mode": mode, "activation_recompute": again} for mode in modes]
    found = [calculon.estimate("qwen3-30B-a3B", plan, "gb200_nvl72").stats for plan in plans]
    for name in ("total_time", "host_wait_time"):
        times = [stats[name] for stats in found]
        assert times == sorted(times)
        assert times[0] < times[1] < times[2]


@pytest.mark.parametrize("again", ["none", "full"])
@pytest.mark.parametrize("mode", ["graph_parts", "eager", "blocking"])
def test_without_launches_passes_are_shorter_by_the_waits_for_the_host(mode, again):
    plan = EXPERTS | {"launch_mode": mode, "activation_recompute": again}
    free = dict.fromkeys(("eager", "training", "graph", "product_loop"), 0)
    system = Changed("gb200_nvl72", {f"ext.launch.{name}": value for name, value in free.items()})
    waits, none = (calculon.estimate("qwen3-30B-a3B", plan, one) for one in ("gb200_nvl72", system))
    names = [f"block_{name}_time" for name in ("fw", "re", "agrad", "wgrad")]
    longer = sum(waits.stats[name] - none.stats[name] for name in names)
    microbatches, blocks = 64 // 8, 48
    assert waits.stats["host_wait_time"] == pytest.approx(microbatches * blocks * longer)
    assert none.stats["host_wait_time"] == 0


@pytest.mark.parametrize("model", ["llama3.2-1B", "qwen3-30B-a3B"])
@pytest.mark.parametrize("further", [{}, {"fusion": "none"}, {"ep_overlap": "1f1b"}], ids=str)
def test_graphs_save_at_most_the_waits_for_the_host_and_the_optimizer_step(model, further):
    """So an execution that waits less is not evaluated in graphs for its page."""
    experts = model.startswith("qwen3")
    plan = EXPERTS | further
    if not experts:
        plan = {name: plan[name] for name in plan if name not in ("expert_par", "ep_overlap")}
    mode = "graph_parts" if experts else "graph"
    own, graphs = (
        calculon.estimate(model, plan | {"launch_mode": one}, "gb200_nvl72").stats
        for one in ("eager", mode)
    )
    assert own["total_time"] > graphs["total_time"]
    most = own["host_wait_time"] + own["optim_step_time"] + own["embedding_time"] + own["head_time"]
    assert own["total_time"] - graphs["total_time"] <= most


def test_overlapped_transfers_take_no_longer_than_passes_that_wait_for_them():
    """Transfers take longer than the passes of most chunks, but not than those of the last chunk, with the head."""
    model = {"hidden": 1024, "feedforward": 4096, "attn_heads": 8, "attn_size": 128}
    model |= {"seq_size": 256, "num_blocks": 13, "vocab": 200_000, "tied": True}
    plan = PLAN | {"num_procs": 3, "tensor_par": 1, "pipeline_par": 3, "batch_size": 12}
    plan |= {"pipeline_interleaving": 5, "stage_blocks": "1-1-1-1-1-1-1-1-1-1-1-0-1-1-0"}
    plan |= {"activation_recompute": "full"}
    apart, overlapped = (
        calculon.estimate(model, plan | {"p2p_overlap": overlap}, _system(0, 30)).stats
        for overlap in (False, True)
    )
    assert overlapped["bubble_time"] > apart["bubble_time"]
    assert overlapped["total_time"] == pytest.approx(apart["total_time"], rel=1e-12)
