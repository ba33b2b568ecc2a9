"""What the commands that search share: the arguments of a space, and the lines that report it."""

import argparse
from typing import TYPE_CHECKING

from calculon.cli.options import Log, Parser
from calculon.spec.execution import DATATYPE_BYTES

if TYPE_CHECKING:
    from calculon.sweep.task import Search

FUSED = {
    **dict.fromkeys(("t", "true", "T", "True", "1"), (True,)),
    **dict.fromkeys(("f", "false", "F", "False", "0"), (False,)),
    **dict.fromkeys(("both", "all", "*"), (False, True)),
}
"""Spellings of the candidates for fused activation."""


def add_space_arguments(parser: Parser, counts_help: str, output_help: str) -> None:
    """Declare the positional arguments and the options that make a space."""
    parser.add_argument("application", metavar="APP", help="the model: its shape")
    parser.add_argument("num_procs", metavar="NUM_PROCS", help=counts_help)
    parser.add_argument(
        "max_batch_size", metavar="MAX_BATCH", type=int, help="largest global batch, in sequences"
    )
    parser.add_argument("datatype", metavar="DATATYPE", help="one of " + ", ".join(DATATYPE_BYTES))
    parser.add_argument("system", metavar="SYS", help="the machine: processors, memory, networks")
    parser.add_argument("output", metavar="OUTPUT", help=output_help)
    parser.add_argument(
        "-d", "--debug", action="store_true", help="only count; evaluate and write nothing"
    )
    parser.add_argument(
        "-n",
        "--noneok",
        action="store_true",
        help="finding nothing is fine: exit code 0 and an empty result",
    )
    add_choice_options(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")


def add_choice_options(parser: Parser) -> None:
    """Declare the options that narrow or widen a space."""
    parser.add_argument(
        "-f",
        "--fused-activation",
        "--fused_activation",
        default="true",
        type=_fused,
        metavar="WHICH",
        help="fused activation to try: true, false or all (default true)",
    )
    parser.add_argument(
        "--fix",
        action="append",
        default=[],
        metavar="FIELD=VALUE[,VALUE...]",
        help="try only these values of an execution field; may be repeated",
    )
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="FIELD=VALUE[,VALUE...]",
        help="also try values that are left out: attention_type=multiquery, batch_size=..., "
        "pipeline_par=... (uneven stages), activations_offload=true (with full recomputation)",
    )
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="keep only executions that meet a condition on statistics and execution fields, "
        "such as 'total_time < 60 and tensor_par <= 8'",
    )


def _fused(text: str) -> tuple[bool, ...]:
    if text not in FUSED:
        message = f"{text!r} is none of {', '.join(FUSED)}"
        raise argparse.ArgumentTypeError(message)
    return FUSED[text]


def searches(arguments: argparse.Namespace) -> "list[Search]":
    """Return one search for every processor count that was asked for, everything checked.

    Raises
    ------
    SpecError
        For anything malformed.
    """
    from calculon import inputs
    from calculon.search.counts import parse_counts
    from calculon.search.restrict import parse
    from calculon.sweep.task import Search

    model, system = inputs.model(arguments.application), inputs.system(arguments.system)
    pareto = getattr(arguments, "pareto", None)
    fix, add = parse("fix", arguments.fix), parse("add", arguments.add)
    asked = [
        Search(
            number=number,
            model=model,
            system=system,
            num_procs=count,
            max_batch_size=arguments.max_batch_size,
            datatype=arguments.datatype,
            top=getattr(arguments, "top_n", 1),
            objective=getattr(arguments, "objective", "sample_rate"),
            pareto=tuple(pareto.split(",")) if pareto else (),
            where=arguments.where,
            mbs_break=getattr(arguments, "mbs_break", False),
            fused=arguments.fused_activation,
            tensor_overlap=not getattr(arguments, "no_tp_overlap", False),
            data_overlap=not getattr(arguments, "no_dp_overlap", False),
            fix=fix,
            add=add,
        )
        for number, count in enumerate(parse_counts(arguments.num_procs, "NUM_PROCS"))
    ]
    for search in asked:
        search.space()
        search.ranking()
    return asked


def log_outcome(log: Log, good: int, bad: int, total: int, seconds: float) -> None:
    """Print the outcome of a search in the words of the published tool."""
    log(f"Good executions: {good}")
    log(f"Bad executions: {bad}")
    log(f"Calculation rate: {total / max(seconds, 1e-9):.2f} calcs/sec")
