"""Everyday questions, from 1B to 1T parameters on eight machines: no recommended plan exceeds its stated risk."""

import pytest

from calculon.advise.planning import plan
from calculon.declarations.statistics import FITS, RISK
from calculon.documents.plan_page import plan_page
from tests.documents.drawing import drawn, flat
from tests.draws import some

QUESTIONS = [
    ("llama3.2-1B", 1, "rtx4090"),
    ("llama3.2-1B", 8, "a100_40g_sxm"),
    ("llama3.2-3B", 8, "a100_80g_sxm"),
    ("qwen2.5-7B", 8, "h100_80g_sxm"),
    ("qwen2.5-7B", 32, "a100_80g_sxm"),
    ("llama3-8B", 4, "rtx4090"),
    ("llama3-8B", 8, "a100_40g_sxm"),
    ("llama3-8B", 8, "h100_80g_sxm"),
    ("llama3-8B", 8, "mi300x"),
    ("llama3-8B", 8, "mi355x"),
    ("llama3-8B", 16, "tpu_v6e"),
    ("llama3-8B", 64, "h100_80g_sxm"),
    ("llama3-8B", 64, "h200_141g_sxm"),
    ("llama3-8B", 64, "b200_sxm"),
    ("llama3-8B", 256, "tpu_v6e"),
    ("gemma2-9B", 16, "h100_80g_sxm"),
    ("gpt3-13B", 32, "a100_80g_sxm"),
    ("gpt3-13B", 64, "mi300x"),
    ("qwen2.5-32B", 32, "h200_141g_sxm"),
    ("qwen2.5-32B", 64, "h100_80g_sxm"),
    ("llama3-70B", 16, "b200_sxm"),
    ("llama3-70B", 32, "h100_80g_sxm"),
    ("llama3-70B", 64, "h100_80g_sxm"),
    ("llama3-70B", 64, "h200_141g_sxm"),
    ("llama3-70B", 64, "mi355x"),
    ("llama3-70B", 128, "a100_80g_sxm"),
    ("llama3-70B", 256, "tpu_v6e"),
    ("llama3-70B", 512, "b200_sxm"),
    ("llama3-70B", 1024, "h100_80g_sxm"),
    ("qwen2.5-72B", 128, "h100_80g_sxm"),
    ("gpt3-175B", 512, "a100_80g_sxm"),
    ("gpt3-175B", 1024, "h100_80g_sxm"),
    ("llama3.1-405B", 1024, "h200_141g_sxm"),
    ("llama3.1-405B", 2048, "b200_sxm"),
    ("llama3.1-405B", 8192, "h100_80g_sxm"),
    ("mixtral-8x7B", 64, "h100_80g_sxm"),
    ("mixtral-8x7B", 128, "a100_80g_sxm"),
    ("qwen3-30B-a3B", 16, "h100_80g_sxm"),
    ("megatron-1T", 2048, "a100_80g_sxm"),
    ("megatron-1T", 4096, "h200_141g_sxm"),
]


@pytest.mark.parametrize(("model", "procs", "system"), some(QUESTIONS, 6))
def test_the_recommended_plan_is_within_the_risk_or_the_page_says_that_none_is(
    model, procs, system
):
    found = plan(model, (procs,), system)
    if not found.plans:
        assert "No plan fits" in drawn(plan_page(found))
        return
    within = found.plans[0].stats[FITS] >= 1 - RISK
    none = "No plan has a risk of running out of memory of at most 10 %."
    assert (none in flat(drawn(plan_page(found)))) is not within
    if found.fastest is not None:
        assert found.fastest.time <= found.plans[0].time
        assert found.fastest.stats[FITS] < 1 - RISK
