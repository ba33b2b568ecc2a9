"""``calculon serve``: a deployment that answers requests."""

import argparse

from calculon.apps.cli.changes import add_changes, parsed
from calculon.apps.cli.field_options import Option, processors_in_place, stated_by
from calculon.apps.cli.options import STDOUT, Log, Parser, check_inputs, check_outputs
from calculon.errors import Infeasible

FORMATS = ("text", "json")

KINDS = ("deployment", "workload", "model", "system")
"""What ``--set`` changes."""


OPTIONS = (
    Option("--prompt", "prompt", "N", "tokens of a prompt (2000, 8k)"),
    Option("--output", "output", "N", "tokens that are generated for it (500)"),
    Option("--rate", "rate", "N", "requests in a second, which come at random"),
    Option("--users", "users", "N", "users, each with one request at a time"),
    Option("--ttft", "ttft_limit", "TIME", "longest time to the first token, in s (1, 500ms)"),
    Option("--tpot", "tpot_limit", "TIME", "longest time per token after that, in s (0.05, 50ms)"),
    Option("--percentile", "percentile", "P", "share of the requests that keep both (0.99)"),
    Option("--prefix-hit", "prefix_hit", "SHARE", "share of prompts that the cache has (0.5)"),
    Option("--requests", "requests", "N", "requests of a finite run, whose time is told"),
)
"""Options of the workload; ``--set workload.FIELD=VALUE`` states any other field."""


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate a deployment that serves a model: time to the first token, time per token, tokens per second, price, "
        "what limits it, and what fits into memory. Without a rate or users, the largest batch that keeps the limits "
        "counts. A number of processors stands for replicas of a node each. Exit code 1 where a limit is missed.",
        "calculon serve llama-3.1-70b 8 h100 --prompt 2000 --output 500 --ttft 1 --tpot 0.05\n"
        "calculon serve llama3-70B llama3.1-70B_h100x8_fp8 h100_80g_sxm --workload chat --users 64\n"
        "calculon serve llama3-8B 1 a100_80g_sxm --prompt 1k --output 200 --rate 4 --set max_batch=64\n"
        "calculon serve gpt-oss-120b 1 h100 --prompt 1k --output 1k --set experts_dtype=mxfp4 -o served.json",
    )
    parser.add_argument("model", metavar="MODEL", help="the model: a name, or a file")
    parser.add_argument(
        "deployment",
        metavar="DEPLOYMENT",
        help="how it is served: a name, a file, or a number of processors",
    )
    parser.add_argument("system", metavar="SYSTEM", help="the machine: a name, or a file")
    parser.add_argument(
        "--workload",
        metavar="NAME|FILE",
        help="what is asked of it (calculon catalog workloads); options count more",
    )
    for one in OPTIONS:
        parser.add_argument(one.name, metavar=one.metavar, help=one.help)
    add_changes(parser, *KINDS)
    parser.add_argument(
        "-f",
        "--format",
        choices=FORMATS,
        default="text",
        help="what is printed: a page (text, default), or everything (json)",
    )
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="write everything (.json, .json.gz) instead of the page; - prints it",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the deployment, then print the page or write the file; 1 where a limit is missed."""
    from calculon.inputs import Changed
    from calculon.serving.serve import serve

    specs = [arguments.model, arguments.deployment, arguments.system]
    given = [] if arguments.workload is None else [arguments.workload]
    file = STDOUT if arguments.format == "json" and not arguments.file else arguments.file
    check_inputs([*specs, *given])
    if file not in (None, STDOUT):
        check_outputs([file], [*specs, *given])
    changes = parsed(arguments.changes, KINDS)
    count = processors_in_place(arguments.deployment)
    found = serve(
        Changed.of(arguments.model, changes["model"]),
        arguments.deployment if count is None else count,
        Changed.of(arguments.system, changes["system"]),
        arguments.workload,
        changes=changes["deployment"],
        **stated_by(OPTIONS, arguments) | changes["workload"],
    )
    document = found.to_dict()
    if file is None:
        from calculon.apps.report.serving_page import ServingPage

        log.show(ServingPage(document))
    else:
        log.write(document, file)
    if missed := [one for one in found.limits if not one.met]:
        raise Infeasible("limits", f"it misses {' and '.join(one.in_words for one in missed)}")
    return 0
