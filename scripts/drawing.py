"""Redraw the pictures in ``examples/pictures``, one of each kind, with the commands in the documentation."""

import argparse
import json
import os
import sys
from pathlib import Path

import calculon
from calculon.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "examples" / "pictures"

COMMANDS = (
    "plot breakdown mine=llama3-70B,mine.json,h100_80g_sxm best=best.json --model llama3-70B --system h100_80g_sxm "
    "-o breakdown.png",
    "plot waterfall mine=llama3-70B,mine.json,h100_80g_sxm best=best.json -o waterfall.png",
    "plot heatmap llama3-70B 512 512 bfloat16 h100_80g_sxm --preset megatron-lm -o heatmap.png",
    "plot surface llama3-70B 512 512 bfloat16 h100_80g_sxm --preset megatron-lm -o surface.png",
    "plot scaling h100.json h200.json -o scaling.png",
    "plot pareto llama3-70B 512 512 bfloat16 h100_80g_sxm --preset megatron-lm -o pareto.png",
    "plot validation -o validation.png",
    "plot validation --study gpt2_ladder --edition corrected -o gpt2_ladder.png",
    "plot schedule llama3-8B llama3-8B_h100x64_p4 h100_80g_sxm -o schedule.png",
    "plot campaign llama3.1-405B llama3.1-405B_h100x16384 h100_80g_sxm_24k --campaign llama3-405B -o campaign.png",
    "plot goodput llama3.1-405B llama3.1-405B_h100x16384 h100_80g_sxm_24k --campaign llama3-405B "
    "--procs 256:131072:x2 -o goodput.png",
    "plot budget llama-3-8b 64-512 h100,h200,mi300x --tokens 1T --deadline 7d -o budget.png",
    "plot batch llama-3.1-70b tp=8 h100 --prompt 2000 --output 500 --ttft 1 --tpot 0.05 -o batch.png",
    "plot frontier llama-3.1-70b 8 a100_80g_sxm h100 b200 --prompt 8k --output 1k -o frontier.png",
    "sensitivity llama-3.1-70b 1024 h100 --replan -o tornado.png",
    "calibrate h100_80g_sxm --kernels -o fitted.json --plot kernels.png",
)
"""The pictures. Files that they are drawn from are deleted afterwards."""

SEARCHES = (
    "loe llama3-70B 512 512 bfloat16 h100_80g_sxm best.json --preset megatron-lm --quiet",
    "loe llama3-70B 128:4096:x2 4096 bfloat16 h100_80g_sxm h100.json --preset megatron-lm --quiet",
    "loe llama3-70B 128:4096:x2 4096 bfloat16 h200_141g_sxm h200.json --preset megatron-lm --quiet",
)


MINE = {
    "base": "megatron-lm",
    "num_procs": 512,
    "tensor_par": 8,
    "pipeline_par": 8,
    "batch_size": 512,
    "microbatch_size": 1,
    "datatype": "bfloat16",
}
"""The plan of the README that a search is compared with."""


def draw() -> int:
    """Run every command in the folder of the pictures."""
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)
    Path("mine.json").write_text(json.dumps(MINE))
    codes = [main(command.split()) for command in (*SEARCHES, *COMMANDS)]
    for search in SEARCHES:
        Path(search.split()[6]).unlink()
    for made in ("fitted.json", "mine.json"):
        Path(made).unlink()
    return max(codes)


PAGE = {"preset": "megatron-lm", "mine": "tensor_par=8 pipeline_par=8 microbatch_size=1"}
"""The plan that the picture of the page compares with the best one."""

SIZE = {"width": 1280, "height": 1330}
"""Pixels of that picture."""


def photograph() -> int:
    """Take the picture of the page in the browser that is installed; without one it stays as it is."""
    from playwright.sync_api import sync_playwright

    from tests.explore.browsing import BUSY, executable, switches

    browser = executable()
    if browser is None:
        print("No Chromium is installed: the picture of the page stays as it is.")
        return 0
    with (
        calculon.explore("llama3-70B", "h100_80g_sxm", 1024, **PAGE) as page,
        sync_playwright() as driver,
    ):
        chromium = driver.chromium.launch(executable_path=browser, args=switches())
        window = chromium.new_page(viewport=SIZE, color_scheme="light")
        window.goto(page.url)
        window.wait_for_function(BUSY)
        window.reload()  # now that the best plan is known
        window.wait_for_function(BUSY)
        window.screenshot(path=FOLDER / "explore.png")
        chromium.close()
    return 0


def read_arguments() -> argparse.Namespace:
    """Read the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="scripts/pictures", description=__doc__)
    parser.add_argument("--page", action="store_true", help="redraw only the web page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(photograph() if read_arguments().page else draw() or photograph())
