"""The memory of every stage: the fullest is what an estimate needs, and kinds add up to it."""

import pytest

import calculon
from calculon.planner.stage_needs import stage_needs

LLAMA = ("llama3-8B", "llama3-8B_h100x64", "h100_80g_sxm")


@pytest.mark.parametrize(
    ("model", "execution", "system"),
    [
        LLAMA,
        ("llama3.1-405B", "llama3.1-405B_h100x16384", "h100_80g_sxm"),
        ("megatron-1T", "3072_t4_p64_d12_mbs4_full", "a100_80g"),
        ("gpt3-13B-hf", "gpt3-13B_a100x2_fsdp", "a100_80g_sxm"),
    ],
)
def test_the_fullest_stage_is_what_an_estimate_needs(model, execution, system):
    found = calculon.estimate(model, execution, system)
    stages = stage_needs(found.model, found.execution, found.system)
    assert len(stages) == found.execution.pipeline_par
    for tier in (0, 1):
        needed = found.stats[f"proc_mem_tier{tier + 1}_cap_req"]
        assert max(one.needed[tier] for one in stages) == pytest.approx(needed, rel=1e-9)
    for one in stages:
        assert sum(one.parts[0].values()) == pytest.approx(one.needed[0], rel=1e-6)
