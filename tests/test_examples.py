"""The examples of data parallelism show what they are shipped for: memory and traffic as formulas."""

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.apps.cli.collective_tables import Asked
from calculon.architecture.parameters import parameter_count
from calculon.hardware.collectives.algorithm_times import bus_bandwidth, times
from calculon.hardware.collectives.placement import place
from calculon.inspect.operators import block
from calculon.units import GIB, MIB
from tests.helpers import LLAMA_X64, ROOT, document

STATE = ("weight_space", "weight_grad_space", "optimizer_space")
BUFFERS = ("gathered_space", "comm_buffer_space", "fragment_space", "reserved_space")
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
    with pytest.raises(calculon.Infeasible, match=r"tier-1 memory .* too much"):
        _stats(GPT, name, system, optimizer="adam")
    roomy = document("systems", system)
    roomy["mem1"]["GiB"] *= 2
    stats = _stats(GPT, name, roomy, optimizer="adam")
    expected = 16 * parameter_count(inputs.model(GPT)) / ranks
    assert _state(stats) == pytest.approx(expected, rel=1e-12)
    assert stats["proc_mem_tier1_cap_req"] > roomy["mem1"]["GiB"] / 2 * GIB


def test_beside_the_state_are_blocks_at_work_tables_and_checkpoints():
    stats = _stats(GPT, "gpt3-13B_a100x4_fsdp", "a100_40g_sxm")
    h, tokens = 5120, 2048
    block = 2 * (12 * h * h + 13 * h)
    ends = 2 * ((50257 + 2048) * h + 2 * h)
    assert stats["gathered_space"] == block + ends  # at work, none ahead
    assert stats["comm_buffer_space"] == block  # larger than the table
    assert stats["act_checkpoint_size"] == 40 * 2 * tokens * h
    working = stats["act_space"] + stats["act_grad_space"]
    parts = sum(stats[name] for name in (*STATE, *BUFFERS)) + stats["act_checkpoint_size"] + working
    assert stats["proc_mem_tier1_cap_req"] == pytest.approx(parts, rel=1e-12)


def test_what_a_process_takes_is_too_much_for_the_smaller_ones_only():
    """A context, workspaces and the communicator of the replicas."""
    small, large = (f"gpt3-13B_a100x{ranks}_fsdp" for ranks, _ in FSDP)
    taken = 512 + 12 + 688
    with pytest.raises(calculon.Infeasible, match=r"39\.56 GiB of 40\.00 GiB there"):
        _stats(GPT, small, "a100_40g_sxm", mem_reserved_mib=-1)
    kept = _stats(GPT, large, "a100_80g_sxm", mem_reserved_mib=-1)
    bare = _stats(GPT, large, "a100_80g_sxm", mem_reserved_mib=0)
    assert kept["reserved_space"] == taken * MIB
    more = kept["proc_mem_tier1_cap_req"] - bare["proc_mem_tier1_cap_req"]
    assert more == pytest.approx(taken * MIB, rel=1e-12)


@pytest.mark.parametrize(("tensor_par", "data_par"), [(1, 4), (2, 4), (4, 2)])
def test_with_tensor_parallelism_each_rank_stores_one_part_of_the_product(tensor_par, data_par):
    parts = tensor_par * data_par
    ranks = {"tensor_par": tensor_par, "data_par": data_par, "num_procs": parts}
    stats = _stats("mlp-2x1024", "mlp-2x1024_x8_fsdp_t2", "a100_80g_sxm", **ranks)
    assert stats["weight_space"] == 4 * (2 * 1024 * 1024) / parts
    assert _state(stats) == 16 * (2 * 1024 * 1024) / parts  # Adam
    assert stats["gathered_space"] == 2 * (2 * 1024 * 1024) / tensor_par


# -- collectives, DDP and owners of layers: four linear layers ---------------------------------------------------------

LAYERS, LAYER = 4, 4 * 1024 * 1024
"""Layers of the network, and bytes of one in float32."""


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_ring_of_few_ranks_has_the_bus_bandwidth_of_its_links(ranks):
    system = inputs.system("a100_80g_sxm")
    group, size = place(system, ranks), np.array([1024.0 * GIB])  # beyond the measured ramp
    ring = times(system, "all_reduce", group, size)["ring"]
    bus = bus_bandwidth("all_reduce", size, ring, ranks)
    assert bus[0] == pytest.approx(size[0] * 2 * (ranks - 1) / ranks / ring[0], rel=1e-12)
    shown = system.law(0, "all_reduce").rates
    reached = 300e9 * shown.shares[shown.ranks.index(ranks)]
    assert 0.99 * reached < bus[0] < reached


@pytest.mark.parametrize("ranks", [2, 4])
def test_ddp_reduces_the_gradient_of_each_layer_over_all(ranks):
    stats = _stats("mlp-4x1024", f"mlp-4x1024_x{ranks}_ddp", "a100_80g_sxm")
    one = LATENCY + 2 * (ranks - 1) / ranks * LAYER / RATE
    assert stats["dp_comm_link_time"] == pytest.approx(LAYERS * one, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == stats["dp_comm_link_time"]
    assert _state(stats) == 16 * LAYERS * 1024 * 1024


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("form", ["ddp", "owner"])
def test_each_link_carries_what_the_lecture_counts(form, ranks):
    execution = document("examples", f"mlp-4x1024_x{ranks}_{form}")
    (group,) = calculon.estimate("mlp-4x1024", execution, "a100_80g_sxm").groups
    each = {"ddp": 2 * (ranks - 1) / ranks, "owner": 3.0}[form]
    assert (group.kind, group.ranks, group.groups) == ("data", ranks, 1)
    assert group.bytes[0] == pytest.approx(LAYERS * each * LAYER, rel=1e-12)


@pytest.mark.parametrize("ranks", [2, 4])
def test_owners_broadcast_each_layer_twice_and_are_sent_its_gradient(ranks):
    stats = _stats("mlp-4x1024", f"mlp-4x1024_x{ranks}_owner", "a100_80g_sxm")
    one = 3 * (LATENCY + LAYER / RATE)
    assert stats["dp_comm_link_time"] == pytest.approx(LAYERS * one, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == stats["dp_comm_link_time"]
    assert _state(stats) == 16 * LAYERS * 1024 * 1024 / ranks
    assert stats["gathered_space"] == stats["comm_buffer_space"] == LAYER


# -- DDP with gradient accumulation: GPT-2 124M on two processors ------------------------------------------------------

LADDER = ROOT / "validation" / "gpt2_ladder"


def _ddp(name, **changes):
    return _stats(str(LADDER / "gpt2.json"), name, str(LADDER / "a100.json"), **changes)


def test_gradients_are_reduced_once_per_batch_behind_the_last_microbatch():
    stats = _ddp("gpt2-124M_a100x2_ddp")
    block = 4 * (12 * 768 * 768 + 13 * 768)
    ends = 4 * ((50304 + 1024) * 768 + 2 * 768)  # one table for both, known last
    others = 11 * (LATENCY + block / RATE)
    last = 2 * LATENCY + (block + ends) / RATE
    assert stats["dp_comm_link_time"] == pytest.approx(others + last, rel=1e-12)
    assert stats["dp_comm_exposed_time"] == pytest.approx(last + USAGE * others, rel=1e-12)


def test_without_no_sync_every_microbatch_pays():
    once, always = _ddp("gpt2-124M_a100x2_ddp"), _ddp("gpt2-124M_a100x2_ddp_sync")
    for name in ("dp_comm_link_time", "dp_comm_exposed_time"):
        assert always[name] == pytest.approx(16 * once[name], rel=1e-12)
    more = 15 * once["dp_comm_exposed_time"]
    assert always["total_time"] - once["total_time"] == pytest.approx(more, rel=1e-9)


def test_each_of_two_does_half_of_the_work_of_one():
    one = calculon.estimate(
        *(str(LADDER / name) for name in ("gpt2.json", "8_accumulation.json", "a100.json"))
    ).stats
    two = _ddp("gpt2-124M_a100x2_ddp")
    assert 2 * two["fw_time"] == pytest.approx(one["fw_time"], rel=1e-12)
    assert 2 * two["bw_time"] < one["bw_time"]  # the first microbatch of each finds no sums to read
    assert two["optim_step_time"] == one["optim_step_time"]
    more = two["proc_mem_tier1_cap_req"] - one["proc_mem_tier1_cap_req"]
    assert more == pytest.approx(688 * MIB, rel=1e-9)  # the communicator of the replicas


# -- the lecture: data, tensor and pipeline parallelism of four linear layers, float32, a batch of 128 -----------------

LECTURE = "mlp-4x1024"
P2P = 32 * 1024 * 4
"""Bytes of a microbatch of 32 rows between two stages."""


def _groups(model, execution, system="a100_80g_sxm", **changes):
    raw = document("examples", execution) | changes
    return {group.kind: group for group in calculon.estimate(model, raw, system).groups}


def test_tensor_parallel_ranks_gather_the_activations_of_every_layer():
    found = block(LECTURE, "mlp-4x1024_t4", "a100_80g_sxm")
    (gather,) = [one for operator in found.operators for one in operator["collectives"]]
    assert (gather["pass"], gather["operation"]) == ("forward", "all_gather")
    assert gather["message"] == 128 * 1024 * 4
    assert gather["moved"] == 384 * 1024  # three quarters
    (group,) = _groups(LECTURE, "mlp-4x1024_t4").values()
    assert (group.kind, group.bytes[0]) == ("tensor", LAYERS * 384 * 1024)
    stats = _stats(LECTURE, "mlp-4x1024_t4", "a100_80g_sxm")
    assert stats["weight_space"] == LAYERS * LAYER / 4
    assert stats["bw_time"] == 0


@pytest.mark.parametrize("stages", [2, 4])
def test_a_blocking_forward_pipeline_takes_its_fill_and_its_microbatches(stages):
    stats = _stats(LECTURE, f"mlp-4x1024_p{stages}", "a100_80g_sxm")
    microbatches = 4
    forward = stats["fw_time"] / microbatches
    send = stats["pp_comm_exposed_time"] / microbatches
    assert forward == pytest.approx(LAYERS / stages * stats["block_fw_time"], rel=1e-12)
    assert send == pytest.approx(LATENCY + P2P / RATE, rel=1e-12)
    steps = microbatches + stages - 1
    assert stats["total_time"] == pytest.approx(steps * (forward + send), rel=1e-12)
    assert stats["weight_space"] == LAYERS / stages * LAYER
    (group,) = _groups(LECTURE, f"mlp-4x1024_p{stages}").values()
    assert (group.kind, group.bytes[0]) == ("pipeline", microbatches * P2P)


# -- the picture: two layers on four processors ------------------------------------------------------------------------

PICTURE = "linear-2x1024"


@pytest.mark.parametrize("form", ["fsdp", "owner"])
def test_two_layers_on_four_processors_leave_a_quarter_to_each(form):
    """With owners layer 1 is on processors 1 and 2, layer 2 on 3 and 4; fully sharded, half of both."""
    name = f"mlp-2x1024_x4_{form}_t2"
    stats = _stats(PICTURE, name, "a100_80g_sxm")
    assert stats["weight_space"] == 2 * LAYER / 4
    assert _state(stats) == 4 * stats["weight_space"]
    assert stats["gathered_space"] == {"fsdp": 2, "owner": 1}[form] * LAYER / 2
    groups = _groups(PICTURE, name)
    tensor, data = groups["tensor"], groups["data"]
    assert (tensor.example, data.example) == ("0-1", "0, 2")
    assert (tensor.groups, data.groups) == (2, 2)
    each = {"fsdp": 3 * 1 / 2, "owner": 3}[
        form
    ]  # two gathers and a reduction, or three whole layers
    assert data.bytes[0] == 2 * each * LAYER / 2
    rows = 64 * 1024 * 4
    assert tensor.bytes[0] == 2 * 2 * rows / 2  # a gather and a reduce-scatter of every layer


# -- words that fill up a vocabulary -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("multiple", "words"), [(1, 50_257), (128, 50_304), (1024, 51_200)])
def test_a_padded_vocabulary_has_parameters(multiple, words):
    stats = _ddp("gpt2-124M_a100x2_ddp", vocab_pad_multiple=multiple)
    assert stats["parameters"] == 124_439_808
    assert stats["padded_parameters"] == 124_439_808 + (words - 50_257) * 768
    if multiple == 128:
        assert stats["padded_parameters"] == 124_475_904


def test_a_head_of_its_own_is_padded_too():
    stats = _stats("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm", vocab_pad_multiple=1000)
    ranks = LLAMA_X64["tensor_par"]
    words = ranks * 1000 * -(-128_256 // (ranks * 1000))
    more = (words - 128_256) * 2 * 4096
    assert stats["padded_parameters"] - stats["parameters"] == more > 0


def test_what_has_no_vocabulary_is_not_padded():
    stats = _stats("mlp-4x1024", "mlp-4x1024_x2_ddp", "a100_80g_sxm", vocab_pad_multiple=128)
    assert stats["padded_parameters"] == stats["parameters"] == 4_194_304


def test_larger_microbatches_do_not_fit():
    with pytest.raises(calculon.Infeasible, match="tier-1 memory"):
        _stats(GPT, "gpt3-13B_a100x4_fsdp", "a100_40g_sxm", microbatch_size=2)
    with pytest.raises(calculon.Infeasible, match="tier-1 memory"):
        _ddp("gpt2-124M_a100x2_ddp", batch_size=976, microbatch_size=488)


# -- the MLP of nanoGPT on four ranks ----------------------------------------------------------------------------------

KERNELS = "a100_80g_sxm"


def _mlp(**changes):
    """Return forward time, forward traffic and collectives of the MLP."""
    found = block("nanogpt-mlp", "nanogpt-mlp_t4", KERNELS, changes=changes)
    traffic = sum(one["bytes"]["forward"] for one in found.operators)
    sent = [sent for one in found.operators for sent in one["collectives"]]
    return found.stats["block_fw_time"], traffic, sent


def test_nothing_is_sent_between_the_first_product_and_its_bias():
    *_, sent = _mlp()
    message = 12 * 64 * 128 * 2
    assert [(one["pass"], one["operation"]) for one in sent] == [
        ("activation_grad", "all_reduce"),
        ("forward", "all_reduce"),
    ]
    assert {(one["message"], one["moved"]) for one in sent} == {(message, 1.5 * message)}


def test_a_bias_before_the_reduction_saves_a_kernel():
    (before, less, sent), (after, more, others) = _mlp(), _mlp(bias_after_reduce=True)
    assert before < after
    output = 12 * 64 * 128 * 2
    assert less < more <= less + 2 * output + 128 * 2
    assert sent == others


def test_multiplication_and_sum_is_slower_unless_they_are_one_kernel():
    plain, two, one = (_mlp(matmul_impl=form) for form in ("gemm", "mul_sum", "mul_sum_fused"))
    assert plain[0] <= one[0] < two[0]
    assert one[1] == plain[1]
    assert two[1] > 50 * plain[1]
    assert plain[2] == one[2] == two[2]


def test_sequence_parallelism_sends_the_same_bytes_in_two_parts():
    *_, reduced = _mlp()
    *_, parts = _mlp(tensor_par_comm_type="rs_ag")
    for name in ("forward", "activation_grad"):
        whole = sum(one["moved"] for one in reduced if one["pass"] == name)
        halves = [one["moved"] for one in parts if one["pass"] == name]
        assert halves == [whole / 2] * 2


# -- collectives of the lecture ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_reduction_in_the_switches_nearly_halves_what_a_port_carries(ranks):
    group, size = place(inputs.system("h100_80g_sxm"), ranks), float(GIB)
    ring, switches = (
        Asked(inputs.system("h100_80g_sxm"), "all_reduce", group, name, int(size)).shares(name)[0][
            1
        ]
        for name in ("ring", "nvls")
    )
    assert ring == pytest.approx(2 * (ranks - 1) / ranks)
    assert switches == pytest.approx(1 + 1 / ranks)
