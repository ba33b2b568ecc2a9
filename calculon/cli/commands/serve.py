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
        "calculon serve gpt-oss-120b 1 h100 --prompt 1k --output 1k --set experts_dtype=mxfp4 -o served.json",
        "A processor count means its best deployment, as found by calculon serve-optimal; --set restricts the search.",
    )
    add_deployment(parser)
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
        *("--set", "--verbose", "--format", "-o"),
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the deployment, then print the page or write the file; exit code 1 if a limit is missed."""
    assume_workload(arguments)
    check_answer(arguments, specs_of(arguments))
    found = requested_deployment(arguments)
    from calculon.documents.serving_page import serving_page

    note = note_on(found.system)
    log.answer(arguments, lambda: serving_page(found.record, note), found.to_dict, parts=1)
    if not all(one.met for one in found.limits):
        raise found.infeasible("it misses")
    return 0
