"""What ``scripts/pictures`` draws: one picture of each kind, by the commands that the documentation shows."""

import os
import sys
from pathlib import Path

from calculon.apps.cli.main import main

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "pictures"

COMMANDS = (
    "plot breakdown example=megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g best=best.json --model megatron-1T "
    "--system a100_80g -o breakdown.png",
    "plot heatmap turing-530B 280 280 float16 a100_80g --fix weight_offload=false --fix optimizer_offload=false "
    "--fix activations_offload=false -o heatmap.png",
    "plot surface gpt3-175B 1024 1536 float16 a100_80g -o surface.png",
    "plot scaling a100.json h100.json -o scaling.png",
    "plot pareto gpt3-175B 1024 1536 float16 a100_80g -o pareto.png",
    "plot validation -o validation.png",
    "plot validation --study gpt2_ladder --edition corrected -o gpt2_ladder.png",
    "plot schedule llama3-8B llama3-8B_h100x64_p4 h100_80g_sxm -o schedule.png",
    "calibrate h100_80g_sxm --kernels -o fitted.json --plot kernels.png",
)
"""The pictures; files beside them, that they are drawn from or made with, are thrown away."""

SEARCHES = (
    "loe megatron-1T 3072 3072 float16 a100_80g best.json --quiet",
    "loe gpt3-175B 64:4096:x2 4096 float16 a100_80g a100.json --quiet",
    "loe gpt3-175B 64:4096:x2 4096 float16 h100_80g_nvl8 h100.json --quiet",
)


def draw() -> int:
    """Run every command in the folder of the pictures."""
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)
    codes = [main(command.split()) for command in (*SEARCHES, *COMMANDS)]
    for search in SEARCHES:
        Path(search.split()[6]).unlink()
    Path("fitted.json").unlink()
    return max(codes)


if __name__ == "__main__":
    sys.exit(draw())
