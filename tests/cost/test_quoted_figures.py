"""Figures that people quote."""

import pytest

import calculon
from calculon import inputs
from calculon.architecture.parameters import model_flops_per_token, parameter_count
from tests.cases import for_each
from tests.helpers import CORRECTED_PLAIN

LLAMA, SYSTEM = inputs.model("llama3-8B"), inputs.system("a100_80e")
PEAK = 312e12
RAW = CORRECTED_PLAIN | {
    "num_procs": 16,
    "tensor_par": 4,
    "pipeline_par": 2,
    "data_par": 2,
    "batch_size": 16,
    "fused_activation": True,
    "tensor_par_comm_type": "rs_ag",
}
ALONE = {"num_procs": 1, "tensor_par": 1, "pipeline_par": 1, "data_par": 1, "batch_size": 2}
ALONE |= {"tensor_par_comm_type": "ar"}
modes = pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])


def _stats(model=LLAMA, **changes):
    return calculon.estimate(model, RAW | changes, SYSTEM).stats


def test_the_published_edition_does_not_quote_them():
    published = {k: v for k, v in RAW.items() if k != "edition"}
    found = calculon.estimate("megatron-22B", published, "a100_80e").stats
    assert not {"mfu", "hfu", "tokens_per_second", "parameters"} & set(found)


def test_rates_are_those_of_a_batch():
    s = _stats()
    tokens = RAW["batch_size"] * LLAMA.seq_size
    assert s["tokens_per_second"] == pytest.approx(tokens / s["total_time"], rel=1e-14)
    assert s["tokens_per_second"] == pytest.approx(s["sample_rate"] * LLAMA.seq_size, rel=1e-14)
    each = s["tokens_per_second_per_proc"]
    assert each == pytest.approx(s["tokens_per_second"] / RAW["num_procs"], rel=1e-14)
    assert s["parameters"] == parameter_count(LLAMA)


@modes
def test_model_flop_utilization_is_arithmetic_per_peak(training):
    s = _stats(training=training)
    for name, causal in (("mfu", False), ("mfu_causal", True)):
        flops = model_flops_per_token(LLAMA, training=training, causal=causal)
        expected = flops * s["tokens_per_second_per_proc"] / PEAK
        assert s[name] == pytest.approx(expected, rel=1e-13)
    assert s["model_flops_per_token"] == model_flops_per_token(LLAMA, training=training)
    assert s["model_flops_per_second_per_proc"] == pytest.approx(s["mfu"] * PEAK, rel=1e-14)


@modes
def test_eager_hardware_executes_the_model_with_full_attention(training):
    s = _stats(**ALONE, training=training)
    assert s["hfu"] == pytest.approx(s["mfu"], rel=1e-12)


def test_flash_hardware_executes_half_a_forward_pass_of_attention_more():
    """Five products backward where the model has four, with the keys that the mask leaves."""
    s = _stats(**ALONE, attn_impl="flash")
    attention = 4 * LLAMA.attn_heads * LLAMA.attn_size * (LLAMA.seq_size + 1) / 2
    more = LLAMA.num_blocks * 0.5 * attention * s["tokens_per_second_per_proc"] / PEAK
    assert s["hfu"] - s["mfu_causal"] == pytest.approx(more, rel=1e-9)
    inference = _stats(**ALONE, attn_impl="flash", training=False)
    assert inference["hfu"] == pytest.approx(inference["mfu_causal"], rel=1e-12)


def test_recomputation_is_what_the_hardware_does_and_the_model_does_not_need():
    s = _stats(**ALONE, activation_recompute="full")
    head = 6 * LLAMA.hidden * LLAMA.vocab  # is not computed again
    needed = model_flops_per_token(LLAMA, training=True)
    expected = (needed - head) * 4 / 3 + head
    assert s["hfu"] / s["mfu"] == pytest.approx(expected / needed, rel=1e-12)


@for_each("recompute", ["none", "attn_only", "full"])
def test_activations_per_token_are_what_a_block_keeps(recompute):
    s = _stats(activation_recompute=recompute, microbatch_size=2)
    name = "block_act_checkpoint_size" if recompute == "full" else "block_act_storage_space"
    assert s["block_act_bytes_per_token"] == s[name] / (2 * LLAMA.seq_size)
