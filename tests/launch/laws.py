"""Laws of all dialects: nothing of a file is lost, and what was written is read again."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import calculon
from calculon import inputs
from calculon.errors import SpecError
from calculon.launch.dialect import Dialect, Launch, read, settings_of, write
from calculon.launch.dialects import ENGINES, read_launch
from calculon.search.driver import feasible_numbers
from calculon.search.request import make_space
from calculon.spec.execution import Execution
from tests.store import cache

SCRIPTS = Path(__file__).parent / "scripts"


PROCESSORS = {
    "accelerate": {"slurm_fsdp1": 16},
    "deepspeed": {"megatron_deepspeed_zero3": 4, "": 64},
    "megatron_bridge": {
        **{"kimi_k2_8_layers": 8, "llama3_8b_megatron_fsdp": 8, "llama3_8b_override": 16},
        **{"llama31_405b_perf": 1024, "llama31_405b": 4096},
    },
    "megatron_lm": {
        **{"gpt3_175b": 128, "deepspeed_gpt_1.3b_moe": 128, "qwen3_30b_slime": 128},
        "rocm_llama3": 8,
    },
    "torchtitan": {
        **{"405b": 128, "671b": 128, "8xb200": 8, "32b": 8, "fsdp2_tp2": 8, "transformers": 8},
        "": 64,
    },
}
"""Processors of public files that do not say them, or too few for their degrees, by folder and a part of the name."""

_OF_PAI = "dsw 70B 1 128 1e-5 1e-6 4096 4096 bf16 4 2 1 true true true false sel false 100000 data data none"
VARIABLES = {
    "deepseek_v3_2026_05": {"recipe": "deepseek_v3_671b"},  # the larger of its models
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
    """List the settings of a public file that are unknown, or not used, ignored, not modelled or open, once each."""
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


def refusal(call: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    """Return the message with which a call is refused; nothing if it is not."""
    try:
        call(*args, **keywords)
    except SpecError as error:
        return str(error)
    return ""


def refused_by_field(
    dialect: Dialect, plain: Mapping[str, Any], rows: Iterable[tuple[dict[str, Any], str, str]]
) -> None:
    """Check that changes of an execution are refused by a field, each with a word of what can be said."""
    for changes, field, near in rows:
        one = inputs.execution({**plain, **changes})
        with pytest.raises(SpecError) as caught:
            settings_of(dialect, one.to_dict(), inputs.model("llama3-8B"))
        (problem,) = caught.value.problems
        assert problem.field == field
        assert near in f"{problem.expected} {problem.hint}"


def sampled(
    model: str, num_procs: int, most_batch: int, preset: str, **options: Any
) -> tuple[calculon.System, list[Execution]]:
    """Return a system, and some of the feasible executions of a space, drawn evenly from all of them."""
    most = options.pop("most", 8)
    space = make_space(
        model, "h100_80g_sxm", num_procs, most_batch, "bfloat16", preset=preset, **options
    )
    numbers = np.concatenate(list(feasible_numbers(space)))
    chosen = np.random.default_rng(1).choice(numbers, min(most, len(numbers)), replace=False)
    plan = space.plan(chosen)
    return space.system, [plan.row(row) for row in range(len(chosen))]


def round_trips(dialect: Dialect, model: str, system: Any, executions: list[Execution]) -> int:
    """Hold that what is written is read as it was, statistics to the last bit; return how many could be written."""
    shape, written = inputs.model(model), 0
    for one in executions:
        fields = one.to_dict()
        text = _text(dialect, fields, shape)
        if not text:
            continue
        written += 1
        launch = read(dialect, text, f"plan{dialect.suffix}", num_procs=one.num_procs)
        assert not launch.unknown
        assert not launch.not_modelled
        again = inputs.execution(launch.execution)
        length = {"seq_length": fields["seq_length"] or shape.seq_size}
        expected = fields | (length if "seq_length" in dialect.fields else {})
        read_again = {name: getattr(again, name) for name in dialect.fields}
        assert read_again == {name: expected[name] for name in dialect.fields}
        before, after = (calculon.estimate(shape, each, system) for each in (one, again))
        assert after.stats == before.stats
    return written


def _text(dialect: Dialect, fields: dict[str, Any], shape: Any) -> str:
    """Return a file; empty for an execution that the launcher cannot express."""
    try:
        return write(dialect, fields, shape)
    except SpecError:
        return ""
