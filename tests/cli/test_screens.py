"""Recorded screens: what the commands print, at 80 and at 160 columns.

``./scripts/test --refresh`` records them anew; read `git diff` then, as a user would see it.
"""

import re

import pytest

from calculon.cli.main import COMMANDS, main
from tests.helpers import ROOT

EXAMPLE = "megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g"
TODAY = "llama3-8B llama3-8B_h100x64_p4 h100_80g_sxm"
SERVED = "llama3-8B 1 h100_80g_sxm --prompt 1000 --output 200"
SCREENS = {
    "llm": f"llm {EXAMPLE} -",
    "llm_today": f"llm {TODAY} -",
    "llm_infeasible": "llm gpt3-13B-hf gpt3-13B_a100x2_fsdp a100_40g_sxm -",
    "llm_mistyped": "llm megatron-1T 3072_t4_p64_d12_mbs4_ful a100_80g -",
    "why": f"why {EXAMPLE} -v",
    "plan_short": "plan llama3-8B 8 h100 --batch 64 --fix tp=2,4",
    "estimate_short": "estimate llama-3.1-8b tp=4,dp=16 h100",
    "explain_short": "explain llama-3.1-8b tp=4,dp=16 h100",
    "serve_short": "serve llama-3.1-8b 1 h100",
    "campaign_short": "campaign llama-3.1-8b 64 h100 --tokens 1T",
    "why_misfit": f"why {EXAMPLE} --set activation_recompute=none",
    "why_malformed": f"why {EXAMPLE} --set tensor_par=5 --set batch_size=1000",
    "block": "block nanogpt-mlp nanogpt-mlp_t4 a100_80g_sxm",
    "block_whole": f"block {TODAY}",
    "search": "loe megatron-22B 8:16:x2 16 float16 a100_80g - -t 3 --quiet",
    "compare": f"compare a={EXAMPLE.replace(' ', ',')} --edition sc23,corrected",
    "sensitivity": f"sensitivity {EXAMPLE}",
    "campaign": f"campaign {TODAY} --tokens 1T --deadline 10d --pue 1.2 --carbon 400 -v",
    "serve": f"serve {SERVED} --tpot 20ms -v",
    "serve_at_a_rate": f"serve {SERVED} --rate 200 --set token_budget=0 -v",
    "batch": f"plot batch {SERVED} --tpot 20ms",
    "frontier": f"plot frontier {SERVED} --tpot 20ms --fix token_budget=2048",
    "collective": "collective all_reduce 1GB 128 h100_80g_sxm",
    "validation": "lv --study megatron_2020 --edition corrected",
    "catalog": "catalog systems",
    "parameters": "lpc models/gpt3-175B.json",
}
"""What people read, by the name of its record."""

SEARCH = "llama3-8B 8 64 bfloat16 h100_80g_sxm - --preset common"
FEW = "--fix tensor_par=2 --fix attn_impl=flash"
KEPT = "--fix weight_offload=false --fix activations_offload=false --fix optimizer_offload=false"
WHERE = "loe megatron-22B 8 4 float16 a100_80g - --fix tensor_par=8 --fix activation_recompute=full"
LONGER = {
    "search_today": f"loe {SEARCH} {FEW} -t 9",
    "search_every_plan": f"loe {SEARCH} {FEW} -t 9 -v",
    "search_front": f"loe {SEARCH} {FEW} --pareto total_time,proc_mem_tier1_cap_req",
    "search_counts": f"loe {SEARCH.replace(' 8 ', ' 4,8,16 ')} {FEW}",
    "search_of_nothing": "loe turing-530B 8 8 float16 a100_80g -",
    "search_without_offloading": f"loe megatron-22B 1,8 4 float16 a100_80g - {KEPT}",
    "search_where_none": f"{WHERE} --where total_time<0",
    "search_where_some": f"{WHERE} --where batch_size==4 --where total_time<100",
    "why_interleaving": f"why {TODAY.replace('_p4', '')} --set pipeline_interleaving=9",
    "compare_machines": f"compare {','.join(EXAMPLE.split())} {','.join(EXAMPLE.split())[:-1]}e",
    "compare_same": f"compare {','.join(TODAY.split())} {','.join(TODAY.split())}",
    "compare_same_published": f"compare {','.join(EXAMPLE.split())} {','.join(EXAMPLE.split())}",
    "break_even": f"sensitivity {EXAMPLE} --against-system h100_80g_sxm",
    "largest_model": "campaign any 64 h100 --deadline 30d --price 2.5",
    "fleets": "plan gpt2-124M 2,4 h100 --tokens 1T --batch 64 --fix tensor_par=1 --deadline 60d",
    "collective_of_one": "collective all_reduce 1GB 1 h100_80g_sxm",
    "export_flags": "export-flags megatron-lm llama3-8B_h100x64",
    "export_engine": "export-flags vllm 8 llama3-70B --system h100",
    "parameters_long": "llm-parameter-calculator megatron-1T",
    "parameters_aligned": "lpc gpt3-175B --aligns 20",
    "parameters_narrow": "lpc gpt3-175B -a -3",
    "matmul": "matmul 16384 16384 16384 h100_80g_sxm --copy 1GiB",
    "dispatch": "dispatch qwen3-235B-a22B 32 h800_80g_sxm -t 1024",
    "validation_fig1": "lv --study fig1",
    "validation_fig7": "lv --study fig7",
    "validation_editions": "lv --study tab5 --edition sc23,corrected",
    "catalog_system": "catalog show h100",
    "catalog_overlay": "catalog show a100-pcie",
    "catalog_published": "catalog show a100_80e",
    "catalog_model": "catalog show meta-llama/Llama-3.3-70B",
}
"""More of them, which take longer or change more often."""

RATE = re.compile(r"[\d.]+ calcs/sec")
"""Depends on the machine."""


def screen(command: str, capsys) -> str:
    """Return what a command prints, and how it ends."""
    code = main(command.split())
    printed = capsys.readouterr()
    text = RATE.sub("... calcs/sec", printed.out).replace(f"{ROOT}/", "")
    return f"$ calculon {command}\n{text}{printed.err}[exit code {code}]\n"


WIDE = ("llm", "llm_today", "why", "why_misfit", "block", "compare", "sensitivity", "collective")
"""Screens whose layout depends on the width of the terminal, of commands that take little time."""


def set_columns(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.quick
@pytest.mark.usefixtures("catalog_once")
@pytest.mark.parametrize(
    ("width", "name"), [*((80, name) for name in SCREENS), *((160, name) for name in WIDE)]
)
def test_screen(width, name, monkeypatch, capsys, snapshot):
    set_columns(monkeypatch, width)
    assert screen(SCREENS[name], capsys) == snapshot


@pytest.mark.parametrize("name", LONGER)
def test_longer_screen(name, monkeypatch, capsys, snapshot):
    set_columns(monkeypatch, 80)
    assert screen(LONGER[name], capsys) == snapshot


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_help(command, monkeypatch, capsys, snapshot):
    set_columns(monkeypatch, 80)
    shown = screen(f"{command} --help", capsys)
    assert shown == snapshot
    lines = shown.splitlines()
    assert all(len(line) <= 80 for line in lines if not line.startswith("  calculon "))
