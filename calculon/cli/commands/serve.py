"""``calculon serve``: estimate an LLM serving deployment (prefill, decode, continuous batching, KV cache)."""

import argparse

from calculon.cli.options import Log, Parser, add_answer, check_answer
from calculon.cli.serving_options import (
    add_deployment,
    assume_workload,
    requested_deployment,
    specs_of,
)
from calculon.declarations.origin import note_on


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate a deployment that serves a model: time to the first token, time per token, tokens per second, price, "
        "limits and memory. Without a rate or users, the largest batch within the limits is used. Exit code 1 if a "
        "limit is missed.",
        "calculon serve llama-3.1-70b 8 h100 --prompt 2000 --output 500 --tpot 0.05\n"
        "calculon serve llama3-70B llama3.1-70B_h100x8_fp8 h100_80g_sxm --workload chat --users 64\n"
        "calculon serve llama3-8B 1 a100_80g_sxm --prompt 1k --output 200 --rate 4 --set max_batch=64\n"
        "calculon serve llama3-8B tp=1 h100 --prompt 1k --output 200 --users 64 --replay\n"
        "calculon serve gpt-oss-120b 1 h100 --prompt 1k --output 1k --set experts_dtype=mxfp4 -o served.json",
        "A processor count means its best deployment, as found by calculon serve-optimal; --set restricts the search.",
    )
    add_deployment(parser)
    parser.switch(
        "--replay",
        "also replay the scheduler, pass by pass: percentiles of latencies, goodput, and the highest rate within the "
        "limits; --requests states the number of requests",
    )
    parser.option(
        "--trace FILE",
        "replay the requests of a trace: JSON lines or CSV with arrival, prompt and output",
        "; also traces of Mooncake, Azure and BurstGPT, and detailed results of vllm bench. Without --prompt and "
        "--output, the trace states the workload; --rate changes the pace of its requests, and with --users only its "
        "lengths are used",
    )
    parser.option("--seed N", "seed of random arrivals and lengths in a replay (0)", type=int)
    parser.switch(
        "-v, --verbose", "print everything: limiting factors, memory, passes, improvements"
    )
    add_answer(parser, flags=("-o",))  # --output is the number of generated tokens
    parser.show_first(
        *(
            "--engine",
            "--workload",
            "--prompt",
            "--output",
            "--rate",
            "--users",
            "--ttft",
            "--tpot",
        ),
        *("--percentile", "--replay", "--trace", "--set", "--verbose", "--format", "-o"),
    )


def _use_trace(arguments: argparse.Namespace) -> None:
    """Use the means of a trace as the workload, unless the arguments state another one."""
    stated = [arguments.workload, arguments.prompt, arguments.output]
    if arguments.trace is None or any(one is not None for one in stated):
        return
    from calculon.serving.replay.traces import read_trace  # only if needed

    fields = read_trace(arguments.trace).workload
    if arguments.rate is not None or arguments.users is not None:
        fields.pop("rate", None)
    arguments.changes = [
        *(f"workload.{name}={value!r}" for name, value in fields.items()),
        *arguments.changes,
    ]


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the deployment, then print the page or write the file; exit code 1 if a limit is missed."""
    _use_trace(arguments)
    assume_workload(arguments)
    check_answer(arguments, specs_of(arguments))
    found = requested_deployment(arguments)
    if arguments.replay or arguments.trace or arguments.seed is not None:
        found = found.with_replay(arguments.trace, seed=arguments.seed or 0)
    from calculon.documents.serving_page import serving_page

    note = note_on(found.system)
    parts = 1 if found.replayed is None else 2
    log.answer(arguments, lambda: serving_page(found.record, note), found.to_dict, parts=parts)
    if not all(one.met for one in found.limits):
        raise found.infeasible("it misses")
    return 0
