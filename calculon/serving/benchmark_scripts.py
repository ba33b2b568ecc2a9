"""Benchmark commands that send the requests of a workload to a running deployment.

Sources: docs.vllm.ai 0.11, ``vllm bench serve``; docs.sglang.io, *Bench Serving Guide*; nvidia.github.io/TensorRT-LLM
1.0, *Run benchmarking with trtllm-serve* (its ``benchmark_serving``). vLLM draws lengths from ``mean * (1 - r)`` to
``mean * (1 + r)``, SGLang from ``ratio * largest`` to the largest: for a uniform distribution with the coefficient of
variation `c`, ``r = sqrt(3) c``.
"""

import math
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from calculon.launch.engines.engine_files import words_of
from calculon.serving.records.load import Workload

RESULTS = {"vllm": "bench.json", "sglang": "bench.jsonl", "tensorrt-llm": "bench.json"}
"""Result file of the benchmark of each engine."""

_FEWEST, _ROUNDS, _SECONDS = 100, 10, 120
"""Requests of a benchmark: at least 100, 10 of each concurrent user, or two minutes of arrivals."""

_MOST_VARIED = 0.99
"""Largest range of lengths that tools accept, relative to their mean."""

Flags = dict[str, Any]


def unlike(engine: str, load: Workload) -> list[str]:
    """Return the properties of a workload that its benchmark does not reproduce."""
    result = []
    if load.think:
        result.append("think time between requests: the benchmark sends the next request at once")
    if load.turns > 1:
        result.append("conversations: every prompt starts with the same cached tokens instead")
    if load.prompt_cv != load.output_cv and engine == "vllm":
        result.append("different variation of prompts and outputs: one range is used for both")
    if max(load.prompt_cv, load.output_cv) * math.sqrt(3) > _MOST_VARIED and engine == "vllm":
        result.append("lengths that vary more than a uniform distribution can")
    if (load.prompt_cv or load.output_cv) and engine != "vllm":
        result.append("varying lengths: all requests have the mean length")
    if load.arrival_cv != 1 and load.rate is not None and engine != "vllm":
        result.append("arrivals other than Poisson")
    return result


def benchmark_text(engine: str, checkpoint: str, load: Workload, concurrency: int) -> str:
    """Return the script that runs the benchmark of an engine.

    Args:
        engine: Name of the engine.
        checkpoint: Checkpoint, whose tokenizer makes the prompts.
        load: Workload.
        concurrency: Concurrent requests of a saturating load.
    """
    program, flags = _TOOLS[engine](load)
    if load.rate is not None:
        flags["--request-rate"] = f"{load.rate:g}"
    else:
        flags["--max-concurrency"] = load.users or concurrency
    flags["--num-prompts"] = _count(load, concurrency)
    lines = [
        "#!/bin/bash",
        "# Sends the predicted workload to a running deployment: bench.sh [HOST [PORT]].",
        f"# Then: calculon check {RESULTS[engine]}",
        'cd -- "$(dirname -- "$0")" || exit 1',
        f"CHECKPOINT={shlex.quote(checkpoint)}",
        "HOST=${1:-localhost}",
        "PORT=${2:-8000}",
        "",
    ]
    start = f'{program} --host "$HOST" --port "$PORT" --model "$CHECKPOINT"'
    words = [start, *(shlex.join(words_of(name, value)) for name, value in flags.items())]
    return "\n".join([*lines, " \\\n    ".join(words), ""])


def _count(load: Workload, concurrency: int) -> int:
    if load.requests is not None:
        return load.requests
    if load.rate is not None:
        return max(_FEWEST, math.ceil(_SECONDS * load.rate))
    return max(_FEWEST, _ROUNDS * (load.users or concurrency))


def _saved(file: str) -> Flags:
    return {"--save-result": True, "--result-dir": ".", "--result-filename": file}


def _lengths(load: Workload) -> Flags:
    """Return the lengths for vLLM and TensorRT-LLM, which add a common prefix to random prompts."""
    return {
        "--dataset-name": "random",
        "--random-input-len": load.prompt - load.cached,
        "--random-output-len": load.output,
        "--random-prefix-len": load.cached,
    }


def _vllm(load: Workload) -> tuple[str, Flags]:
    flags: Flags = {"--backend": "vllm", **_lengths(load)}
    if varied := max(load.prompt_cv, load.output_cv):
        flags["--random-range-ratio"] = f"{min(_MOST_VARIED, math.sqrt(3) * varied):.3g}"
    if load.rate is not None and load.arrival_cv != 1:
        # Shape of a gamma distribution: 1 for Poisson arrivals.
        flags["--burstiness"] = f"{1 / max(load.arrival_cv, 1e-3) ** 2:.4g}"
    flags |= {"--ignore-eos": True, "--percentile-metrics": "ttft,tpot,itl,e2el"}
    return "vllm bench serve", flags | _saved(RESULTS["vllm"])


def _tensorrt_llm(load: Workload) -> tuple[str, Flags]:
    flags: Flags = {"--backend": "openai", **_lengths(load), "--random-ids": True}
    flags |= {"--ignore-eos": True, "--percentile-metrics": "ttft,tpot,itl,e2el"}
    program = "python3 -m tensorrt_llm.serve.scripts.benchmark_serving"
    return program, flags | _saved(RESULTS["tensorrt-llm"])


def _sglang(load: Workload) -> tuple[str, Flags]:
    flags: Flags = {"--backend": "sglang"}
    if load.cached:
        flags |= {
            "--dataset-name": "generated-shared-prefix",
            "--gsp-num-groups": 1,
            "--gsp-prompts-per-group": _count(load, load.users or 1),
            "--gsp-system-prompt-len": load.cached,
            "--gsp-question-len": load.prompt - load.cached,
            "--gsp-output-len": load.output,
        }
    else:
        flags |= {
            "--dataset-name": "random-ids",
            "--random-input-len": load.prompt,
            "--random-output-len": load.output,
            "--random-range-ratio": "1.0",
        }
    return "python3 -m sglang.bench_serving", flags | {"--output-file": RESULTS["sglang"]}


_TOOLS: Mapping[str, Callable[[Workload], tuple[str, Flags]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
}
