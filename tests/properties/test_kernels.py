"""Laws of kernels: what a machine or a policy makes worse is never faster; neutral settings change no bit."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import calculon
from calculon.hardware.kernels.kernel import Launch
from tests.draws import draws
from tests.helpers import document
from tests.properties.table import above, corrected, difference, excess, excess_time, holds
from tests.strategies import CORRECTED

TILES = [[256, 128, 1.0], [128, 128, 0.96], [64, 64, 0.7]]
GEMM = {
    "max_efficiency": 0.8,
    "multiprocessors": 64,
    "half_depth": 100,
    "alignment": [[128, 1.0], [16, 0.9], [0, 0.4]],
    "tiles": TILES,
}
LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


FUSIONS = ("published", "none", "compile", "max")
WORSE = (
    {"tiles": TILES[1:]},
    {"alignment": [[128, 0.9], [16, 0.8], [0, 0.2]]},
    {"half_depth": 300},
    {"max_efficiency": 0.5},
)
"""Changes of the law of products."""


def _extend(system, **ext):
    system["ext"] = {**system.get("ext", {}), **ext}


def _with(system, **ext):
    changed = copy.deepcopy(system)
    _extend(changed, **ext)
    return changed


def _tiled(system, **changes):
    _extend(system, gemm={name: {**GEMM, **changes} for name in system["matrix"]})


def test_worse_kernels_are_never_faster():
    def faster(fusion, worse, table):
        base = table.change(fusion=fusion).on(_tiled)
        changed = base.on(partial(_tiled, **worse))
        step, slow, slower = (
            base.on(partial(_extend, launch={"kernel": kernel, "step": 1e-3}))
            for kernel in (0, 1e-6, 1e-3)
        )
        longer = base.found["total_time"] + 1e-3
        over = [above(longer, step.found["total_time"]), excess_time(step, slow)]
        return np.fmax.reduce([*over, excess_time(slow, slower), excess_time(base, changed)])

    for number, table in enumerate(corrected()[: draws(4)]):
        law = partial(faster, FUSIONS[number % 4], WORSE[number % 4])
        holds(law, [table], least=20)


def test_fusion_is_never_slower():
    """On a memory whose rate does not depend on the size: two small kernels may each be faster than their sum."""

    def slower(table):
        flat = table.on(lambda system: system["mem1"].update(MB_efficiency=[[0, 0.75]]))
        policies = [flat.change(fusion=name) for name in ("none", "compile", "max")]
        pairs = zip(policies[1:], policies, strict=False)
        return np.fmax.reduce([excess(fused, apart, "total_time") for fused, apart in pairs])

    holds(slower, corrected()[: draws(4)], least=100)


def test_neutral_settings_change_no_bit():
    """No launch cost, a multiple of 1, the type itself; a rate that no shape changes only rounds.

    Tiles of overlapped products, and experts, may have parts of a row, which a tile of one row fills up.
    """
    shape = {"max_efficiency": 0.625, "multiprocessors": 1, "half_depth": 0, "tiles": [[1, 1, 1.0]]}

    def flat(system):
        for engine in system["matrix"].values():
            engine["gflops_efficiency"] = [[0, 0.625]]

    def neutral(system):
        gemm = dict.fromkeys(system["matrix"], shape)
        _extend(system, launch={"kernel": 0.0, "step": 0.0}, gemm=gemm)

    def other(table):
        if "num_experts" in table.model:  # whole rows of each, likewise; no group can be left out
            each = table.model["num_experts"]
            table = table.of(experts_per_token=each, router_groups=0, router_group_topk=0)
        plain = table.change(tensor_par_overlap="none").on(flat)
        by_shape = plain.on(neutral)
        wrong = [
            ~np.isclose(found, plain.found[name], rtol=1e-9, atol=1e-12, equal_nan=True)
            for name, found in ((name, by_shape.found[name]) for name in plain.found.names)
        ]
        same = (
            plain.each(lambda row: {"matmul_dtype": row["datatype"]}),
            plain.change(fusion="published"),
        )
        return np.fmax.reduce([*wrong, *(difference(one, plain) for one in same)])

    holds(other, corrected()[: draws(3)], least=50)


ONE_STEP = (
    document("examples", "3072_t4_p64_d12_mbs4_full")
    | CORRECTED
    | dict.fromkeys(("num_procs", "tensor_par", "pipeline_par", "data_par"), 1)
    | {
        "batch_size": 4,
        "microbatch_size": 1,
        "activation_recompute": "none",
        "optimizer_sharding": False,
        "data_par_overlap": False,
        "tensor_par_overlap": "none",
        "tensor_par_comm_type": "ar",
        "fusion": "compile",
        "attn_impl": "flash",
    }
)
"""Four microbatches on one processor, whose passes are few kernels."""


# -- launches ---------------------------------------------------------------------------------------------------------


def test_a_step_of_tiny_kernels_takes_as_long_as_their_launches():
    system = _with(document("systems", "h100_80g_sxm"), launch={"kernel": 1.0, "step": 7.0})
    model = document("models", "megatron-126M")
    stats = calculon.estimate(model, ONE_STEP, system).stats
    forward = 4 + 1 + 1 + 2  # QKV, output, two of the MLP; attention; GeLU; two sums
    assert stats["fw_time"] == pytest.approx(4 * model["num_blocks"] * forward, rel=1e-5)
    assert stats["host_time"] == 7.0
    assert stats["total_time"] == pytest.approx(
        stats["fw_time"] + stats["bw_time"] + stats["optim_step_time"] + 7.0
    )


def test_the_published_edition_knows_no_launches():
    system = document("systems", "a100_80g")
    slow = _with(system, launch={"kernel": 1.0, "step": 7.0})
    names = ("megatron-1T", "3072_t4_p64_d12_mbs4_full")
    assert calculon.estimate(*names, slow).stats == calculon.estimate(*names, system).stats


# -- arithmetic narrower than storage ---------------------------------------------------------------------------------


def test_narrow_arithmetic_saves_time_and_activations():
    model, name, system = LLAMA
    execution = document("examples", name)
    stats = {
        matmul: calculon.estimate(
            model, execution | {"matmul_dtype": matmul, "fusion": "compile"}, system
        ).stats
        for matmul in ("same", "float8")
    }
    for statistic in ("fw_time", "bw_time", "block_act_storage_space"):
        assert stats["float8"][statistic] < stats["same"][statistic]
    assert stats["float8"]["weight_space"] == stats["same"]["weight_space"]
    assert stats["float8"]["hfu"] < stats["same"]["hfu"]  # of a peak twice as high


@pytest.mark.parametrize("datatype", ["float32", "bfloat16"])
def test_attention_beside_8_bit_products_is_computed_in_16_bits(datatype):
    model, name, system = LLAMA
    execution = document("examples", name) | {"datatype": datatype, "mem_reserved_mib": 0}
    execution |= {"microbatch_size": 1}
    times = {}
    for matmul in ("bfloat16", "float8"):
        found = calculon.estimate(model, execution | {"matmul_dtype": matmul}, system, layers=True)
        times[matmul] = next(one for one in found.layers if one["name"] == "AttnBlock_Flash")
    for member in ("fw_processing_time", "agrad_processing_time"):
        assert times["float8"][member] == times["bfloat16"][member]


# -- padded vocabularies ----------------------------------------------------------------------------------------------


def test_a_padded_vocabulary_is_the_larger_one():
    model, execution = document("models", "gpt2-124M"), document("examples", LLAMA[1])
    alone = dict.fromkeys(("num_procs", "tensor_par", "pipeline_par", "data_par"), 1)
    execution |= alone | {"optimizer_sharding": False, "data_par_overlap": False}
    execution |= {"tensor_par_comm_type": "ar", "tensor_par_overlap": "none"}
    execution |= {"seq_par_ag_redo": False, "batch_size": 8, "microbatch_size": 1}
    padded = calculon.estimate(model, execution | {"vocab_pad_multiple": 128}, LLAMA[2]).stats
    larger = calculon.estimate(model | {"vocab": 50304}, execution, LLAMA[2]).stats
    assert padded["total_time"] == larger["total_time"]
    assert padded["weight_space"] == larger["weight_space"]
    assert larger["parameters"] == padded["padded_parameters"]
    assert larger["parameters"] - padded["parameters"] == (50304 - 50257) * model["hidden"]


def _host_bound(mode, seconds=1.0, **changes):
    """Return the statistics of a step on a system whose host takes a second for a kernel in one mode."""
    launch = {"kernel": 0.0, mode: seconds}
    system = _with(document("systems", "h100_80g_sxm"), launch=launch)
    model = document("models", "megatron-126M")
    return calculon.estimate(model, ONE_STEP | changes, system).stats


def test_a_pass_takes_as_long_as_the_host_launches_its_kernels():
    blocks = 4 * document("models", "megatron-126M")["num_blocks"]
    forward = 4 + 1 + 1 + 2  # as above
    backward = (
        8 + 2 + 2 + 2 * 2 + 2
    )  # both gradients of products; attention; GeLU, and again; norms and their gains; dropout
    found = _host_bound("compile")
    assert found["fw_time"] == pytest.approx(blocks * forward, rel=1e-9)
    assert found["bw_time"] == pytest.approx(blocks * backward, rel=1e-9)


def test_a_host_launches_a_kernel_for_each_weight_tensor_whose_gradient_is_added():
    blocks = 4 * document("models", "megatron-126M")["num_blocks"]
    form = {"grad_dtype": "float32"}
    fused, apart = (_host_bound("compile", **form, grad_fusion=x) for x in (True, False))
    added = apart["bw_time"] - fused["bw_time"]
    # QKV, output and both products of the MLP, without biases; gains of two norms
    tensors = 4 + 2
    assert added == pytest.approx(blocks * tensors, rel=1e-3)


def test_long_kernels_do_not_wait_for_the_host():
    without, found = _host_bound("compile", 0.0), _host_bound("compile", 1e-9)
    assert found == without


def test_a_host_that_waits_for_each_kernel_adds_its_time_to_theirs():
    blocks = 4 * document("models", "megatron-126M")["num_blocks"]
    kernels = 4 + 1 + 1 + 2  # forward, as above
    device = _host_bound("eager", 0.0)
    found = _host_bound("eager", 1e-3, launch_mode="blocking")
    launches = blocks * kernels * 1e-3
    assert found["fw_time"] == pytest.approx(device["fw_time"] + launches, rel=1e-9)
    again = _host_bound("eager", 1e-3, launch_mode="blocking", activation_recompute="full")
    assert again["recompute_time"] == pytest.approx(found["fw_time"], rel=1e-9)
    assert again["bw_time"] == pytest.approx(found["bw_time"], rel=1e-9)


def test_training_frameworks_may_have_a_host_time_of_their_own():
    one, two = np.array([1.0, 1.0]), np.array([2.0, 0.0])
    launch = Launch(kernel=0.0, eager=one, training=two, compile=0.5, graph=0.25)
    for mode in ("eager", "blocking", "graph_parts"):
        np.testing.assert_array_equal(launch.host(mode), [2.0, 1.0])
        assert replace(launch, eager=1.0, training=0.0).host(mode) == 1.0
    assert (launch.host("compile"), launch.host("graph"), launch.host(None)) == (0.5, 0.25, 0.0)


def test_the_mode_follows_from_fusion_unless_it_is_stated():
    device = _host_bound("eager", 0.0)["fw_time"]
    assert _host_bound("eager")["fw_time"] == device
    assert _host_bound("eager", launch_mode="eager")["fw_time"] > 100
    assert _host_bound("graph", launch_mode="graph")["fw_time"] > 100
    assert _host_bound("compile", launch_mode="graph")["fw_time"] == device
    assert _host_bound("eager", fusion="none")["fw_time"] > _host_bound("compile")["fw_time"]
    assert _host_bound("eager", fusion="published")["fw_time"] < 100
