"""Public files of all dialects, and what tests of a dialect share."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from calculon import inputs
from calculon.declarations.execution import Execution
from calculon.launch.dialect import Launch
from calculon.launch.dialects import DIALECTS, ENGINES, read_launch
from tests.helpers import refusal
from tests.store import cache

SCRIPTS = Path(__file__).parent / "scripts"


PROCESSORS = {
    "accelerate": {"slurm_fsdp1": 16},
    "deepspeed": {"megatron_deepspeed_zero3": 4, "": 64},
    "megatron_bridge": {
        **{"kimi_k2_8_layers": 8, "llama3_8b_megatron_fsdp": 8, "llama3_8b_override": 16},
        "llama31_405b_perf": 1024,
    },
    "megatron_lm": {
        **{"gpt3_175b": 128, "deepspeed_gpt_1.3b_moe": 128, "qwen3_30b_slime": 128},
        **{"rocm_llama3": 8, "mixtral_8x22b_functional_test": 128},
    },
    "torchtitan": {
        **{"405b": 128, "671b": 128, "8xb200": 8, "32b": 8, "fsdp2_tp2": 8, "transformers": 8},
        "": 64,
    },
}
"""Processors of public files that do not say them, or too few for their degrees, by folder and a part of the name."""

_OF_PAI = "dsw 70B 1 128 1e-5 1e-6 4096 4096 bf16 4 2 1 true true true false sel false 100000 data data none"
VARIABLES = {
    "pai_llama3_1": {
        str(place): word
        for place, word in enumerate(f"{_OF_PAI} 10000000000 1000000 out".split(), 1)
    },
}
"""Arguments of public files that ask for them."""

OF_ENGINES = {
    **{"TP": "8", "CONC": "64", "EP_SIZE": "4", "DP_ATTENTION": "false", "MODEL": "some/model"},
    **{"MAX_MODEL_LEN": "10240", "ISL": "1024", "OSL": "8192"},
}
"""Variables of the scripts of engines."""


def collected(folder: str) -> list[Path]:
    """List the public files of a dialect."""
    return sorted(path for path in (SCRIPTS / folder).iterdir() if path.is_file())


def variables_of(path: Path) -> dict[str, str]:
    """Return the variables with which a public file is read."""
    engine = path.parent.name.replace("_", "-") in ENGINES
    return OF_ENGINES if engine else VARIABLES.get(path.stem, {})


@cache
def launch_of(path: Path) -> Launch:
    """Return what a public file says."""
    parts = PROCESSORS.get(path.parent.name, {})
    processors = next((count for part, count in parts.items() if part in path.stem), None)
    text, variables = path.read_text(), variables_of(path)
    return read_launch(text, str(path), num_procs=processors, variables=variables)


def execution_of(path: Path) -> Execution:
    """Return the execution of a public file."""
    return inputs.execution(dict(launch_of(path).execution))


def lost(path: Path) -> list[str]:
    """List the settings of a public file that are unknown, or not used, ignored, not modeled or open, once each."""
    launch = launch_of(path)
    parsed = launch.dialect.parse(path.read_text(), str(path), variables_of(path))
    told = Counter(
        one.name
        for one in (
            *(*launch.used, *launch.ignored, *launch.unknown, *launch.unresolved),
            *(setting for setting, effect in launch.not_modelled if effect),
        )
    )
    stated = Counter(one.name for one in parsed.settings.values())
    wrong = {*(told - stated), *(stated - told), *(one.name for one in launch.unknown)}
    return [f"{path.name}: {name}" for name in sorted(wrong)]


PLAIN: dict[str, dict[str, Any]] = {
    "accelerate": {"data_par": 16, "batch_size": 64, "microbatch_size": 2, "seq_length": 4096},
    "deepspeed": {
        **{"tensor_par": 2, "pipeline_par": 1, "data_par": 8, "batch_size": 64},
        **{"microbatch_size": 2, "activation_recompute": "full"},
    },
    "torchtitan": {
        **{"tensor_par": 2, "pipeline_par": 2, "data_par": 4, "batch_size": 64},
        **{"microbatch_size": 1, "seq_length": 8192},
    },
    "megatron-lm": {"tensor_par": 1, "pipeline_par": 1, "data_par": 16, "batch_size": 64},
}


def plain_execution(launcher: str, **changes: Any) -> Execution:
    """Return an execution of a launcher on 16 processors, with some changes."""
    base = {"base": DIALECTS[launcher].preset, "num_procs": 16}
    return inputs.execution(base | PLAIN[launcher] | changes)


def not_refused(call: Callable[..., Any], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """List the arguments with which a call is not refused in the words that follow them."""
    return [row[:-1] for row in rows if not re.search(row[-1], refusal(call, *row[:-1]))]
