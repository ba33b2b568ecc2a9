"""``calculon estimate``: estimate one plan."""

import argparse
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import (
    Log,
    Parser,
    add_answer,
    add_edition,
    add_preset,
    check_answer,
    check_inputs,
    naming,
    whole_page,
)

if TYPE_CHECKING:
    from calculon.estimate.estimate import Estimate

MODEL = "the model: a name as people write it, a file, or a config.json"
PLAN = (
    'the plan: words ("tp=4 pp=2 mbs=1 batch=4M"; default: one replica and the batch of calculon plan), '
    "the file of an execution, a result (best.json#0), a launch script, or a name of the catalog"
)
SYSTEM = "the machine: a name (h100), or a file"


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Estimate one plan of a model on a system: time, memory, communication, efficiency and their intervals.",
        'calculon estimate llama-3.1-8b "tp=4 dp=16" h100\n'
        'calculon estimate llama-3.1-70b "tp=8 pp=4 procs=256 dtype=fp8" h100 -o estimate.json\n'
        "calculon estimate llama3-8B llama3-8B_h100x64 h100_80g_sxm --set microbatch_size=2",
    )
    parser.argument("MODEL", MODEL)
    parser.argument("PLAN", PLAN, "execution")
    parser.argument("SYSTEM", SYSTEM)
    parser.switch(
        "-v, --verbose", "print everything: memory, traffic, groups of ranks, nearest runs"
    )
    parser.switch("--layers", "include every layer of a block")
    add_changes(parser, "model", "execution", "system")
    add_edition(parser)
    add_preset(parser)
    add_answer(parser, "write all statistics")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Estimate, then print the page or write the file."""
    specs = [arguments.model, arguments.execution, arguments.system]
    check_inputs(specs)
    check_answer(arguments, specs)
    found = estimated(arguments, *specs)
    from calculon.documents.estimate_result import result_of
    from calculon.documents.page import estimate_page, short_estimate_page

    # Without a prediction interval (edition sc23) there is no short page.
    whole = whole_page(arguments) or found.belief is None
    page = estimate_page if whole else short_estimate_page
    log.answer(arguments, lambda: page(result_of(found)), found.to_dict)
    return 0


def estimated(arguments: argparse.Namespace, model: str, execution: str, system: str) -> "Estimate":
    """Return the estimate of the arguments; the error of an infeasible plan has a hint that would make it fit."""
    from calculon import inputs
    from calculon.estimate.estimate import estimate

    changed = with_changes(arguments.changes, model=model, execution=execution, system=system)
    terms: dict[str, Any] = {"edition": arguments.edition, "preset": arguments.preset}
    with naming(execution):
        try:
            return estimate(**changed, layers=arguments.layers, **terms)
        except Infeasible as error:
            from calculon.advise.fixes import hint

            terms |= {"system": inputs.system(changed["system"])}
            terms |= {"model": inputs.model(changed["model"])}
            asked = inputs.execution(changed["execution"], **terms)
            text = hint(terms["model"], asked, terms["system"])
            message = f"{error}. Hint: {text}" if text else str(error)
            given = error.needed, error.available, error.tier
            raise Infeasible(error.reason, message, *given) from None
