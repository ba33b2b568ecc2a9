"""``calculon report``: results as one self-contained HTML page."""

import argparse

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.campaign_options import add_campaign, campaign_of, stated
from calculon.cli.options import STDOUT, Log, Parser, check_outputs
from calculon.cli.result_arguments import add_result_arguments
from calculon.cli.serving_options import add_workload


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Write one HTML file to send to a colleague: inputs with hashes and versions, key figures, time "
        "and memory by part, every layer, the best executions of a search, the errors of the cost model against "
        "measurements on the system, and its assumptions; with --tokens or --campaign, or for a result of calculon "
        "plan that has one, also the whole training run (exit code 1 if it misses a limit). "
        "Deployments that serve a model also have a page: files of serve, or MODEL,DEPLOYMENT,SYSTEM with a "
        "workload. The page works offline.",
        "calculon report megatron-1T,3072_t4_p64_d12_mbs4_full,a100_80g -o report.html\n"
        "calculon loe megatron-22B 64 64 float16 a100_80g best.json -t 10 --quiet\n"
        "calculon report best.json --model megatron-22B --system a100_80g -o search.html\n"
        "calculon report best=best.json#0 tenth=best.json#9 -o both.html\n"
        "calculon report llama3-8B,llama3-8B_h100x64,h100_80g_sxm --tokens 1T --deadline 20d -o run.html\n"
        "calculon report llama3-70B,8,h100 --prompt 2k --output-tokens 500 --tpot 50ms -o served.html",
    )
    add_result_arguments(parser)
    add_campaign(parser)
    add_workload(parser.add_argument_group("workload of deployments"), output="--output-tokens")
    parser.option("-o, --output FILE", "NAME.html; - prints the page", dest="file", required=True)
    parser.show_first(
        "--model",
        "--system",
        "--edition",
        "--preset",
        "--tokens",
        "--deadline",
        "--workload",
        "--prompt",
        "--users",
        "--output",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Read the results, validate their systems, and write the page; exit code 1 if a run misses a limit."""
    from calculon.cli.served_results import requested_served_results
    from calculon.documents.report_file import PAGES, served_report_text, write_page

    output = arguments.file
    if output != STDOUT:
        check_outputs([output], [text.partition("#")[0] for text in arguments.results], PAGES)
    # Deployments serve requests and have no training run, so run options are an error for them.
    if deployments := requested_served_results(arguments):
        if stated(arguments) or arguments.campaign is not None:
            wanted = "executions, which are trained"
            raise SpecError("--campaign", Problem("", wanted, "deployments, which serve"))
        text, missed = served_report_text(deployments)
    else:
        text, missed = _executions(arguments)
    if output == STDOUT:
        log(text.rstrip("\n"))
    else:
        write_page(text, output)
        log(f"Output: {output}")
    if missed:
        raise Infeasible("limits", "; ".join(missed))
    return 0


def _executions(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the page of executions, and the limits that their runs miss."""
    from calculon.cli.results import requested_results
    from calculon.documents.report_file import report_text

    whole = arguments.campaign is not None or stated(arguments)
    asked = campaign_of(arguments) if whole else None
    return report_text(requested_results(arguments), asked)
