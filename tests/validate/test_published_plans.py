"""Plans as papers describe them, beside what they reached; no figure of the model was fitted to any."""

import pytest

import calculon
from tests.shipped_studies import compared

DEEPSEEK_V3 = {
    "edition": "corrected",
    "preset": "common",
    "num_procs": 2048,
    "tensor_par": 1,
    "pipeline_par": 16,
    "pp_schedule": "dualpipe",
    "pp_layout": "uniform",
    "batch_size": 15360,
    "microbatch_size": 1,
    "seq_length": 4096,
    "datatype": "bfloat16",
    "fp8_recipe": "blockwise",
    "expert_par": 64,
    "expert_tensor_par": 1,
    "moe_dispatcher": "deepep",
    "dispatch_dtype": "float8",
    "ep_overlap": "1f1b",
    "zero_stage": "1",
    "optimizer_state_dtype": "bfloat16",
    "recompute_modules": "norm+mla_up_proj+moe_act",
}
"""DeepSeek-V3 (arXiv 2412.19437, sections 3.2, 3.3 and 4.2), which does not say how many blocks a stage has.

Blocks are spread evenly here; with fewer on the stages of the embedding and the head the model has it faster.
"""

LLAMA_8B = {
    "edition": "corrected",
    "preset": "megatron-lm",
    "num_procs": 32,
    "tensor_par": 2,
    "pipeline_par": 1,
    "context_par": 16,
    "batch_size": 1,
    "microbatch_size": 1,
    "seq_length": 2**20,
    "datatype": "bfloat16",
    "activation_recompute": "full",
}
"""Llama 3 8B on four nodes, a sequence at a time."""


def errors(name):
    """Return the errors of time of a study by row, in percent."""
    one = compared(name, "corrected").own.comparisons[0]
    return dict(zip((row.label for row in one.rows), one.errors, strict=True))


def test_llama_405b_with_sequences_of_131072_tokens():
    """Table 4 of arXiv 2407.21783, TP 8, CP 16, PP 16, DP 8."""
    assert abs(errors("llama3")["16384 H100, 131072 tokens"]) <= 11


@pytest.mark.parametrize(
    ("blocks", "low", "high"), [("", 0.88, 1.12), ("4-" * 15 + "1", 0.8, 0.88)]
)
def test_deepseek_v3_takes_days_for_a_trillion_tokens(blocks, low, high):
    """*Each trillion tokens requires only 180K H800 GPU hours, i.e., 3.7 days on our cluster with 2048* (section 1).

    With even stages, or one block beside the head and the module of further tokens. By the model neither fits 80 GB.
    """
    plan = DEEPSEEK_V3 | {"stage_blocks": blocks}
    with pytest.raises(calculon.Infeasible, match="memory of"):
        calculon.estimate("deepseek-v3", plan, "h800_80g_sxm")
    roomy = {"base": "h800_80g_sxm", "mem1": {"GiB": 200}}
    step = calculon.estimate("deepseek-v3", plan, roomy).stats["total_time"]
    tokens = plan["batch_size"] * plan["seq_length"]
    assert low <= 1e12 / tokens * step / 86400 / 3.7 <= high


def test_a_sequence_of_a_million_tokens_fits_four_nodes():
    """On one rank of tensor parallelism it lacks 4 GiB, by the model, and fits with less than a half."""
    one = LLAMA_8B | {"tensor_par": 1, "context_par": 32}
    for plan, fits in ((LLAMA_8B, True), (one, False)):
        found = calculon.estimate("llama3-8B", plan, "h100_80g_sxm")
        assert (found.stats["proc_mem_tier1_cap_req"] <= found.system.usable[0]) is fits
        assert (found.stats["fits"] > 0.5) is fits


def test_runs_of_mlperf_are_ordered_as_measured():
    """By how many processors share a sequence: 1, 2 and 4 of GB200 and of GB300."""
    one = compared("mlperf/llama31_8b", "corrected").own.comparisons[0]
    for gpu in ("GB200", "GB300"):
        rows = [i for i, row in enumerate(one.rows) if f" {gpu} " in row.label]
        parts = [one.rows[i].label.split("cp ")[1][0] for i in rows]
        for times in (one.measured[rows], one.estimated[rows]):
            means = [
                sum(t for t, c in zip(times, parts, strict=True) if c == n) / parts.count(n)
                for n in "124"
            ]
            assert means == sorted(means, reverse=True)
