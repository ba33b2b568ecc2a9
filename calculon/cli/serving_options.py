"""Options of commands about deployments that serve: the workload, and what is served by what."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from calculon.base.errors import Infeasible
from calculon.cli.changes import add_changes, parsed
from calculon.cli.field_options import Option, add_tried, processors_in_place, stated_by
from calculon.cli.options import Parser, check_inputs
from calculon.cli.streams import tell
from calculon.declarations.result_selection import split

if TYPE_CHECKING:
    from calculon.serving.serve import Served

MEMORY = "mem1_capacity"
"""Why a deployment has no room."""

_SMALLER = (
    "narrower weights (--set weights_dtype=float8), more processors, or calculon serve-optimal, "
    "which tries every split"
)

KINDS = ("deployment", "workload", "model", "system")
"""What ``--set`` changes."""

FRONTIER_KINDS = ("workload", "model", "system")
"""What it changes of a search for deployments, whose fields are those of ``--fix`` and ``--add``."""

OPTIONS = (
    Option("--prompt", "prompt", "N", "tokens of a prompt (2000, 8k)"),
    Option("--output", "output", "N", "tokens that are generated for it (500)"),
    Option("--rate", "rate", "N", "requests in a second, which come at random"),
    Option("--users", "users", "N", "users, each with one request at a time"),
    Option("--ttft", "ttft_limit", "TIME", "longest time to the first token, in s (1, 500ms)"),
    Option("--tpot", "tpot_limit", "TIME", "longest time per token after that, in s (0.05, 50ms)"),
    Option(
        "--percentile", "percentile", "P", "requests of a --rate that keep both: a share (0.99)"
    ),
    Option("--prefix-hit", "prefix_hit", "SHARE", "share of prompts that the cache has (0.5)"),
    Option("--requests", "requests", "N", "requests of a finite run, whose time is told"),
)
"""Options of the workload; ``--set workload.FIELD=VALUE`` states any other field."""


def add_workload(parser: argparse._ActionsContainer, output: str = "--output") -> None:
    """Declare what is asked of a deployment; `output` is the option of generated tokens, of which files take that."""
    parser.add_argument(
        "--workload",
        metavar="NAME|FILE",
        help="what is asked of it (calculon catalog workloads); options count more",
    )
    for one in OPTIONS:
        name = output if one.key == "output" else one.name
        parser.add_argument(name, dest=one.key, metavar=one.metavar, help=one.help)


USUAL_WORKLOAD = "chat"
"""The workload of a question that states none, and no lengths."""


def assume_workload(arguments: argparse.Namespace) -> None:
    """Take the usual workload where neither arguments nor the file of a result state one, and say so."""
    stated = (arguments.workload, arguments.prompt, arguments.output)
    changed = any(one.startswith("workload.") for one in arguments.changes)
    file = split(getattr(arguments, "deployment", ""))[0]
    if stated == (None, None, None) and not changed and not Path(file).is_file():
        arguments.workload = USUAL_WORKLOAD
        tell(f"assumed: --workload {USUAL_WORKLOAD}; --prompt 2k --output 500 state other lengths")


def add_deployment(parser: Parser) -> None:
    """Declare a model, a deployment, a system, a workload, and changes of them."""
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument(
        "DEPLOYMENT",
        'how it is served: words ("tp=2 dp=4"), a number of processors, a name, a file, a script or a quoted command '
        "of an engine (import-flags)",
    )
    parser.argument("SYSTEM", "the machine: a name, or a file")
    add_workload(parser)
    add_changes(parser, *KINDS)


def add_fields(parser: Parser) -> None:
    """Declare which values of fields of deployments a search tries."""
    add_tried(
        parser,
        fix="try only these values of a field (calculon describe deployment); may be repeated",
        add="also try these values: weights_dtype=float8, kv_dtype=float8, tensor_par=16, token_budget=32768",
    )
    parser.switch(
        "--apart",
        "also try pools of their own that prefill, of every number of replicas and every split",
    )


def specs_of(arguments: argparse.Namespace) -> list[str]:
    """Return the sources of :func:`add_deployment`; SpecError where two of them are standard input."""
    given = [] if arguments.workload is None else [arguments.workload]
    specs = [arguments.model, arguments.deployment, arguments.system, *given]
    check_inputs(specs)
    return specs


def asked_served(arguments: argparse.Namespace) -> "Served":
    """Return the deployment that the arguments of :func:`add_deployment` ask for."""
    return served(arguments, arguments.model, arguments.deployment, arguments.system)


def served(
    arguments: argparse.Namespace,
    model: str,
    deployment: str,
    system: str,
    workload: str | None = None,
) -> "Served":
    """Return a deployment with the changes of arguments, under their workload, or under one over which they count."""
    from calculon.inputs import Changed
    from calculon.serving.serve import serve

    changes = parsed(arguments.changes, KINDS)
    count = processors_in_place(deployment)
    try:
        return serve(
            Changed.of(model, changes["model"]),
            deployment if count is None else count,
            Changed.of(system, changes["system"]),
            arguments.workload if workload is None else workload,
            changes=changes["deployment"],
            **stated_by(OPTIONS, arguments) | changes["workload"],
        )
    except Infeasible as error:
        if error.reason != MEMORY:
            raise
        message = f"{error}. Hint: {_SMALLER}"
        raise Infeasible(MEMORY, message, error.needed, error.available, error.tier) from None
