"""``calculon plot budget``: days against money, over numbers of processors and machines."""

import argparse
from typing import Any

from calculon.cli.campaign_options import add_campaign
from calculon.cli.changes import add_changes
from calculon.cli.options import Parser, add_preset
from calculon.cli.question_options import asked_question, set_in_order
from calculon.cli.search_options import add_values


def configure(parser: Parser) -> None:
    """Declare the question, as of ``calculon plan``."""
    parser.add_argument("model", metavar="MODEL", help="the model: a name, or a file")
    parser.add_argument(
        "num_procs",
        metavar="PROCS",
        help="processors: a list (512,1024), a range of doublings (512-4096), or any: those that could meet the "
        "deadline",
    )
    parser.add_argument(
        "system", metavar="SYSTEM[,SYSTEM]", help="the machines: names, or files, a mark each"
    )
    parser.add_argument(
        "--objective",
        metavar="FIGURE",
        default="usd",
        help="the figure of the run by which one is the best: usd (default), days, processor_hours, mwh, ...",
    )
    for name, words in (
        ("batch", "global batch, in sequences (512) or tokens (4M)"),
        ("seq", "tokens of a sequence (8192, 8k)"),
        ("dtype", "precision: bf16, fp8, ..."),
    ):
        parser.add_argument(f"--{name}", metavar="N", help=f"{words}, as of calculon plan")
    add_campaign(parser)
    add_values(parser)
    add_changes(parser, "campaign", "model", "system")
    add_preset(parser)


def budget(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the best plans of all machines and counts, with what their whole runs take."""
    from calculon.advise.planning import plan

    set_in_order(arguments)
    model, machines, words = asked_question(arguments)
    found = plan(model, arguments.num_procs, machines, objective=arguments.objective, **words)
    return found.to_dict()
