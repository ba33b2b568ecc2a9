"""``calculon campaign``: a whole training run with failures, checkpointing, goodput, money and energy."""

import argparse
from functools import partial

from calculon.base.errors import Infeasible
from calculon.cli.options import Log, Parser, add_answer, check_answer, check_inputs
from calculon.cli.requested_run import ANY, add_run, requested_largest, requested_run
from calculon.declarations.result_selection import split


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate the whole training run of a plan: days including failures and checkpoints, lost time, cost of "
        "batch ramps, money, energy and carbon. Values not given have defaults, printed with their sources. Exit "
        "code 1 if the run misses its deadline or budget. With model any: the largest model that a fleet can train by "
        "its deadline, with the compute-optimal number of tokens.",
        "calculon campaign llama-3.1-70b 1024 h100 --tokens 15T\n"
        "calculon campaign llama3.1-405B llama3.1-405B_h100x16384 h100_80g_sxm_24k --campaign llama3-405B\n"
        "calculon campaign llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens chinchilla --price 2.5 --pue 1.2 "
        "--carbon 400\n"
        "calculon campaign llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens 1T --deadline 30d --mtbf 20000h "
        "--set campaign.reliability.restart=10min\n"
        "calculon campaign bloom-176B bloom-176B_a100x384 a100_80g_sxm --campaign bloom_366B --carbon france "
        "-o run.json\n"
        "calculon campaign any 1024 h100 --deadline 60d",
    )
    add_run(parser)
    parser.switch(
        "-v, --verbose",
        "print everything: days and money by cause, elasticities, all assumptions",
    )
    add_answer(parser)
    parser.show_first(
        "--tokens",
        "--deadline",
        "--budget-usd",
        "--mtbf",
        "--spares",
        "--price",
        "--carbon",
        "--preset",
        "--verbose",
        "--output",
    )


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate the run, then print the page or write the file; exit code 1 if it misses a limit."""
    specs = [arguments.model, arguments.execution, arguments.system]
    given = [] if arguments.campaign is None else [arguments.campaign]
    check_inputs([*specs, *given])
    check_answer(arguments, [split(one)[0] for one in (*specs, *given)])
    if arguments.model == ANY:
        _largest(arguments, log)
        return 0
    found = requested_run(arguments)
    from calculon.documents.campaign_page import campaign_page

    log.answer(
        arguments,
        lambda: campaign_page(found, elasticities=True, every=arguments.verbose),
        lambda: found.to_dict() | {"elasticities": found.largest_elasticities},
        parts=1,
    )
    if missed := [one for one in found.limits if not one.met]:
        text = " and ".join(one.in_words for one in missed)
        raise Infeasible("limits", f"the run misses {text}")
    return 0


def _largest(arguments: argparse.Namespace, log: Log) -> None:
    """Find the largest model for a fleet, then print the page or write the file."""
    from calculon.documents.largest_model_page import largest_model_page

    found = requested_largest(arguments)
    page = partial(largest_model_page, found, every=arguments.verbose)
    log.answer(arguments, page, found.to_dict)
