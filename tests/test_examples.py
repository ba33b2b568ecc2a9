"""The examples of data parallelism show what they are shipped for: memory and traffic as formulas."""

import pytest

import calculon
from calculon import inputs
from calculon.architecture.parameters import parameter_count
from calculon.base.units import GIB
from tests.helpers import ROOT, document

STATE = ("weight_space", "weight_grad_space", "optimizer_space")
LATENCY, RATE, USAGE = 1e-5, 300e9 * 0.65, 0.15
"""NVLink of ``a100_80g_sxm``: latency of a collective, bytes per second, share of the engines."""


def _stats(model, execution, system, **changes):
    return calculon.estimate(model, document("examples", execution) | changes, system).stats


def _state(stats):
    return sum(stats[name] for name in STATE)


# -- 12 bytes per parameter: GPT 13B, fully sharded --------------------------------------------------------------------

GPT = "gpt3-13B-hf"
FSDP = [(4, "a100_40g_sxm"), (2, "a100_80g_sxm")]


@pytest.mark.parametrize(("ranks", "system"), FSDP)
def test_lion_takes_12_bytes_per_parameter_and_fits(ranks, system):
    stats = _stats(GPT, f"gpt3-13B_a100x{ranks}_fsdp", system)
    parameters = parameter_count(inputs.model(GPT))
    assert parameters == 12_853_386_240
    for name in STATE:  # sharded weights of 4 bytes, gradients, one moment
        assert stats[name] == pytest.approx(4 * parameters / ranks, rel=1e-12)
    assert _state(stats) == pytest.approx(12 * parameters / ranks, rel=1e-12)


@pytest.mark.parametrize(("ranks", "system"), FSDP)
def test_adam_takes_16_bytes_per_parameter_and_does_not_fit(ranks, system):
    name = f"gpt3-13B_a100x{ranks}_fsdp"
    with pytest.raises(calculon.Infeasible, match=r"memory .* too much"):
        _stats(GPT, name, system, optimizer="adam")
    roomy = document("systems", system)
    roomy["mem1"]["GiB"] *= 2
    stats = _stats(GPT, name, roomy, optimizer="adam")
    expected = 16 * parameter_count(inputs.model(GPT)) / ranks
    assert _state(stats) == pytest.approx(expected, rel=1e-12)
    assert stats["proc_mem_tier1_cap_req"] > roomy["mem1"]["GiB"] / 2 * GIB


# -- DDP and owners of layers: four linear layers ----------------------------------------------------------------------

LAYERS, LAYER = 4, 4 * 1024 * 1024
"""Layers of the network, and bytes of one in float32."""


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("form", ["ddp", "owner"])
def test_each_link_carries_what_the_lecture_counts(form, ranks):
    execution = document("examples", f"mlp-4x1024_x{ranks}_{form}")
    (group,) = calculon.estimate("mlp-4x1024", execution, "a100_80g_sxm").groups
    each = {"ddp": 2 * (ranks - 1) / ranks, "owner": 3.0}[form]
    assert (group.kind, group.ranks, group.groups) == ("data", ranks, 1)
    assert group.bytes[0] == pytest.approx(LAYERS * each * LAYER, rel=1e-12)


# -- DDP with gradient accumulation: GPT-2 124M on two processors ------------------------------------------------------

LADDER = ROOT / "validation" / "gpt2_ladder"


def _ddp(name):
    return _stats(str(LADDER / "gpt2.json"), name, str(LADDER / "a100.json"))


def test_gradients_are_reduced_once_per_batch_behind_the_last_microbatch():
    stats = _ddp("gpt2-124M_a100x2_ddp")
    block = 4 * (12 * 768 * 768 + 13 * 768)
    ends = 4 * ((50304 + 1024) * 768 + 2 * 768)  # one table for both, known last
    others = 11 * (LATENCY + block / RATE)
    last = 2 * LATENCY + (block + ends) / RATE
    assert stats["dp_comm_link_time"] == pytest.approx(others + last, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == pytest.approx(last + USAGE * others, rel=1e-12)
    each_microbatch = _ddp("gpt2-124M_a100x2_ddp_sync")
    for name in ("dp_comm_link_time", "dp_comm_exposed_time"):
        assert each_microbatch[name] == pytest.approx(16 * stats[name], rel=1e-12)


# -- the picture: two layers on four processors ------------------------------------------------------------------------

PICTURE = "linear-2x1024"


@pytest.mark.parametrize("form", ["fsdp", "owner"])
def test_two_layers_on_four_processors_leave_a_quarter_to_each(form):
    """With owners layer 1 is on processors 1 and 2, layer 2 on 3 and 4; fully sharded, half of both."""
    name = f"mlp-2x1024_x4_{form}_t2"
    found = calculon.estimate(PICTURE, document("examples", name), "a100_80g_sxm")
    stats = found.stats
    assert stats["weight_space"] == 2 * LAYER / 4
    assert _state(stats) == 4 * stats["weight_space"]
    assert stats["gathered_space"] == {"fsdp": 2, "owner": 1}[form] * LAYER / 2
    groups = {group.kind: group for group in found.groups}
    tensor, data = groups["tensor"], groups["data"]
    assert (tensor.example, data.example) == ("0-1", "0, 2")
    assert (tensor.groups, data.groups) == (2, 2)
    # Two gathers and a reduction, or three whole layers.
    each = {"fsdp": 3 * 1 / 2, "owner": 3}[form]
    assert data.bytes[0] == 2 * each * LAYER / 2
    rows = 64 * 1024 * 4
    assert tensor.bytes[0] == 2 * 2 * rows / 2  # a gather and a reduce-scatter of every layer
