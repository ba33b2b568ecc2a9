"""``calculon explain`` (``why``): explain why an execution is infeasible, or how a feasible one spends its time."""

import argparse
from pathlib import Path
from typing import Any

from calculon.base.errors import Infeasible
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.commands.estimate import MODEL, PLAN, SYSTEM
from calculon.cli.options import (
    Log,
    Parser,
    add_answer,
    add_edition,
    add_preset,
    check_answer,
    check_inputs,
    naming,
)
from calculon.cli.streams import print_stderr
from calculon.declarations.spellings import is_counts


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Explain why an execution cannot run: every violated rule with both values, memory by stage "
        "and category, and the smallest set of changes that makes it run. For one that runs: time by part, free "
        "memory, the best change of one and of two fields, and the saving of each option. Exit code 1 if "
        "it cannot run.",
        'calculon explain llama-3.1-70b "tp=2 procs=64" h100\n'
        "calculon explain llama-3.1-8b 64 h100\n"
        "calculon explain llama3-8B llama3-8B_h100x64 h100_80g_sxm --set microbatch_size=32 --set tensor_par=1 "
        "--set data_par=64\n"
        "calculon explain megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g --set activation_recompute=none -o why.json",
    )
    parser.argument("MODEL", MODEL)
    parser.argument(
        "PLAN", f"{PLAN}; or a number of processors, whose best plan is explained", "execution"
    )
    parser.argument("SYSTEM", SYSTEM)
    parser.switch("-v, --verbose", "print everything, including the saving of each option")
    add_answer(parser, "write everything, with the whole execution of each proposal")
    add_changes(parser, "model", "execution", "system")
    add_edition(parser)
    add_preset(parser)


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Explain the execution, then print the page or write the file; exit code 1 if it cannot run."""
    specs = [arguments.model, arguments.execution, arguments.system]
    check_inputs(specs)
    check_answer(arguments, specs)
    from calculon.advise.why import why

    if is_counts(arguments.execution) and not Path(arguments.execution).exists():
        specs[1] = _best_plan(arguments)
    changed = with_changes(arguments.changes, model=specs[0], execution=specs[1], system=specs[2])
    with naming(arguments.execution):
        found = why(**changed, edition=arguments.edition, preset=arguments.preset)
    from calculon.documents.why_page import why_page

    parts = 3 if found.runs else 0
    log.answer(arguments, lambda: why_page(found), found.to_dict, parts=parts)
    if not found.runs:
        raise Infeasible("cannot_run", f"it cannot run: {found.problem}")
    return 0


def _best_plan(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of the best plan for a number of processors, with a note."""
    from calculon.advise.planning import plan

    a = arguments
    specs = with_changes(a.changes, model=a.model, execution={}, system=a.system)
    answer = plan(specs["model"], a.execution, specs["system"], preset=a.preset)
    if answer.best is None:
        raise Infeasible("nothing", f"no plan for {a.execution} processors fits: see calculon plan")
    print_stderr(
        f"calculon: note: explains the best plan for {a.execution} processors, as calculon plan finds it"
    )
    return answer.best.execution.to_dict()
