"""Options of serving commands: the workload, and the model, deployment and system."""

import argparse
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.cli.changes import add_changes, parsed
from calculon.cli.field_options import Option, add_tried, processors_in_place, stated_by
from calculon.cli.options import Parser, Suggested, check_inputs
from calculon.cli.streams import print_stderr
from calculon.declarations.serving_classes import PRESET_ENGINES

if TYPE_CHECKING:
    from calculon.serving.serve import Served

KINDS = ("deployment", "workload", "model", "system")
"""Specs that ``--set`` can change."""

FRONTIER_KINDS = ("workload", "model", "system")
"""Specs that ``--set`` can change in a search for deployments, whose own fields use ``--fix`` and ``--add``."""

OPTIONS = (
    Option("--prompt", "prompt", "N", "tokens of a prompt (2000, 8k)"),
    Option("--output", "output", "N", "generated tokens per request (500)"),
    Option("--rate", "rate", "N", "requests per second, arriving at random"),
    Option("--users", "users", "N", "concurrent users, each with one request at a time"),
    Option("--ttft", "ttft_limit", "TIME", "longest time to the first token, in s (1, 500ms)"),
    Option("--tpot", "tpot_limit", "TIME", "longest time per token after that, in s (0.05, 50ms)"),
    Option(
        "--percentile",
        "percentile",
        "P",
        "share of the requests of a --rate that meet both limits (0.99)",
    ),
    Option(
        "--prefix-hit", "prefix_hit", "SHARE", "share of prompt tokens in the prefix cache (0.5)"
    ),
    Option("--requests", "requests", "N", "requests of a finite run, whose duration is reported"),
)
"""Options of the workload; ``--set workload.FIELD=VALUE`` sets any other field."""


def add_workload(parser: argparse._ActionsContainer, output: str = "--output") -> None:
    """Declare the workload of a deployment; `output` is the option of generated tokens if ``--output`` names a file."""
    parser.add_argument(
        "--workload",
        metavar="NAME|FILE",
        help="the workload (calculon catalog workloads); options override it",
    )
    for one in OPTIONS:
        name = output if one.key == "output" else one.name
        parser.add_argument(name, dest=one.key, metavar=one.metavar, help=one.help)


def assume_workload(arguments: argparse.Namespace) -> None:
    """Use the default workload if neither the arguments nor a result file state one, and report it."""
    from calculon.serving.records.read_records import names_file, usual_workload  # only if needed

    changed = any(one.startswith("workload.") for one in arguments.changes)
    if (
        arguments.workload is not None
        or changed
        or names_file(getattr(arguments, "deployment", ""))
    ):
        return
    arguments.workload = usual_workload(None, vars(arguments))
    if arguments.workload is not None:
        print_stderr(
            f"assumed: --workload {arguments.workload}; --prompt and --output set other lengths"
        )


def add_deployment(parser: Parser) -> None:
    """Declare a model, a deployment, a system, a workload, and changes of them."""
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument(
        "DEPLOYMENT",
        'the deployment: words ("tp=2 dp=4"), a number of processors, a name, a file, a script or a quoted command '
        "of an engine (import-flags)",
    )
    parser.argument("SYSTEM", "the machine: a name, or a file")
    add_engine(parser)
    add_workload(parser)
    add_changes(parser, *KINDS)


def add_engine(parser: Parser) -> None:
    """Declare the engine of a deployment."""
    names = ", ".join(PRESET_ENGINES)
    parser.option(
        "--engine NAME[@RELEASE]",
        f"the inference engine, whose defaults fill in what is not stated: {names}, or vllm@0.9",
        " (calculon catalog engines)",
        choices=Suggested(PRESET_ENGINES),
    )


def with_engine(arguments: argparse.Namespace, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes of a deployment with the engine of the arguments, if they name one.

    Raises:
        SpecError: If the changes state an engine, too.
    """
    engine = getattr(arguments, "engine", None)
    if engine is None:
        return dict(stated)
    if "engine" in stated:
        raise SpecError("--engine", Problem("", "one engine", f"{engine}, and one among fields"))
    return {**stated, "engine": engine}


def add_fields(parser: Parser) -> None:
    """Declare the candidate values of deployment fields for a search."""
    add_tried(
        parser,
        fix="try only these values of a field (calculon describe deployment); may be repeated",
        add="also try these values: weights_dtype=float8, kv_dtype=float8, tensor_par=16, token_budget=32768",
    )
    parser.switch(
        "--apart",
        "also try separate prefill pools (disaggregated serving) with every number of replicas and every split",
    )


def specs_of(arguments: argparse.Namespace) -> list[str]:
    """Return the sources of :func:`add_deployment`; raise SpecError if two of them are standard input."""
    given = [] if arguments.workload is None else [arguments.workload]
    specs = [arguments.model, arguments.deployment, arguments.system, *given]
    check_inputs(specs)
    return specs


_LONG_LIMITS = {"ttft": 60, "tpot": 5}
"""Limits in seconds from which a plain number was probably meant in milliseconds."""


def note_long_limits(arguments: argparse.Namespace) -> None:
    """Say that a large limit without a unit is in seconds."""
    for name, seconds in _LONG_LIMITS.items():
        text = getattr(arguments, name, None)
        if text and re.fullmatch(r"\d+", text) and int(text) >= seconds:
            print_stderr(
                f"calculon: note: --{name} {text} is in seconds; write {text}ms for milliseconds"
            )


def requested_deployment(arguments: argparse.Namespace) -> "Served":
    """Return the deployment described by the arguments of :func:`add_deployment`."""
    note_long_limits(arguments)
    return served(arguments, arguments.model, arguments.deployment, arguments.system)


def served(
    arguments: argparse.Namespace,
    model: str,
    deployment: str,
    system: str,
    workload: str | None = None,
) -> "Served":
    """Return a deployment with the changes of the arguments, under `workload` or their own, and their options."""
    from calculon.inputs import Changed
    from calculon.search.deployments.best_deployment import serve

    changes = parsed(arguments.changes, KINDS)
    stated = with_engine(arguments, changes["deployment"])
    count = processors_in_place(deployment)
    asked = (
        Changed.of(model, changes["model"]),
        deployment if count is None else count,
        Changed.of(system, changes["system"]),
        arguments.workload if workload is None else workload,
    )
    options = stated_by(OPTIONS, arguments) | changes["workload"]
    try:
        return serve(*asked, changes=stated, **options)
    except Infeasible as error:
        from calculon.advise.serving_fixes import fixes_of, with_fixes  # takes several searches

        raise with_fixes(error, fixes_of(*asked, stated, options)) from None
