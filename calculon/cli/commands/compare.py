"""``calculon compare``: results side by side, and the steps between them."""

import argparse
from typing import TYPE_CHECKING

from calculon.cli.options import Log, Parser, add_format
from calculon.cli.result_arguments import add_result_arguments
from calculon.cli.serving_options import add_workload
from calculon.declarations.files import json_text
from calculon.render.text_tables import FORMATS

if TYPE_CHECKING:
    from calculon.documents.comparison import Comparison
    from calculon.documents.served_comparison import ServedComparison

MOST = 10
"""Number of statistics listed by default."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Compare two or more plans, results or deployments side by side: inputs that differ, parts of time and "
        "memory, and all statistics. The first is the reference.",
        'calculon compare llama-3.1-8b "tp=4 dp=16" "tp=2 dp=32" h100\n'
        "calculon plan llama-3-8b 64 h100 -o plan.json\n"
        "calculon compare mine=run.sh best=plan.json\n"
        "calculon compare llama3-70B,8,h100 llama3-70B,8,h200 --prompt 2000 --output 500\n"
        "calculon compare best.json#0 best.json#9 --format csv --all\n"
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g before.json\n"
        "calculon llm megatron-1T 3072_t4_p64_d12_mbs4_full a100_80e after.json\n"
        "calculon compare before.json after.json\n"
        "calculon loe megatron-22B 64 64 float16 a100_80g best.json -t 10 --quiet\n"
        "calculon compare best.json#0 best.json#9 --model megatron-22B --system a100_80g\n"
        "calculon compare megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g "
        "megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80e\n"
        "calculon compare megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80e --edition sc23,corrected",
        "Parts and statistics have the largest difference first, with difference and ratio. In edition corrected the "
        "page says if measured runs confirm the order of the times. Between plans of one model on one system, the page "
        "changes one field at a time, the largest saving first, if each change is valid alone. "
        "Deployments are results of serve and serve-optimal, or MODEL,DEPLOYMENT,SYSTEM with a workload.",
    )
    add_result_arguments(parser)
    add_workload(parser.add_argument_group("workload of deployments"))
    parser.option(
        "-d, --dialect NAME",
        "launcher whose option names the page uses for differences: megatron-lm, megatron-bridge, nemo, primus, "
        "mlperf, torchtitan, deepspeed, accelerate (default: the launcher of the first launch file)",
        default="",
    )
    values = "a line per value; ' before texts that begin with =, +, - or @"
    add_format(parser, FORMATS, f"text (default), markdown, csv ({values}), json")
    parser.switch(
        "-v, --verbose", f"list all statistics that differ, not the {MOST} that differ most"
    )
    parser.switch("-a, --all", "also list the statistics that are equal")
    parser.show_first(
        "--model",
        "--system",
        "--edition",
        "--preset",
        "--dialect",
        "--verbose",
        "--all",
        "--prompt",
        "--users",
        "--format",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Read the results and print their differences."""
    comparison = _comparison(arguments)
    if arguments.format == "json":
        log(json_text(comparison.to_dict()))
    elif arguments.format == "csv":
        log(comparison.values().csv())
    else:
        from calculon.documents.comparison_page import comparison_page

        most = None if arguments.verbose else MOST
        page = comparison_page(comparison, everything=arguments.all, most=most)
        log.document(page, arguments.format)
    return 0


def _comparison(arguments: argparse.Namespace) -> "Comparison | ServedComparison":
    """Compare the results or the deployments."""
    from calculon.cli.served_results import requested_served_results

    # Serving results have other statistics, so a mixture is refused there.
    if deployments := requested_served_results(arguments):
        from calculon.documents.served_documents import compared_served

        return compared_served(deployments)
    from calculon.cli.results import requested_results
    from calculon.documents.compared import compared

    return compared(requested_results(arguments), arguments.dialect)
