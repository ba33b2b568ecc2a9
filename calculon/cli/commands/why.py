"""``calculon why``: explain why an execution is infeasible, or how a feasible one spends its time."""

import argparse

from calculon.base.errors import Infeasible
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.options import (
    Log,
    Parser,
    add_answer,
    add_edition,
    add_preset,
    add_specs,
    check_answer,
    check_inputs,
    naming,
)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Explain why an execution cannot run: every violated rule with both values, memory by stage "
        "and category, and the smallest set of changes that makes it run. For one that runs: time by part, free "
        "memory, the best change of one and of two fields, and the saving of each option. Exit code 1 if "
        "it cannot run.",
        "calculon why llama3-70B llama3-8B_h100x64 h100_80g_sxm\n"
        "calculon why llama3-8B llama3-8B_h100x64 h100_80g_sxm\n"
        "calculon why llama3-8B llama3-8B_h100x64 h100_80g_sxm --set microbatch_size=32 --set tensor_par=1 "
        "--set data_par=64\n"
        "calculon why megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g --set activation_recompute=none -o why.json",
    )
    add_specs(parser, "model", "MODEL")
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

    changed = with_changes(arguments.changes, model=specs[0], execution=specs[1], system=specs[2])
    with naming(arguments.execution):
        found = why(**changed, edition=arguments.edition, preset=arguments.preset)
    from calculon.documents.why_page import why_page

    parts = 3 if found.runs else 0
    log.answer(arguments, lambda: why_page(found), found.to_dict, parts=parts)
    if not found.runs:
        raise Infeasible("cannot_run", f"it cannot run: {found.problem}")
    return 0
