"""Arguments of the commands about one whole training run, and the run that they describe."""

import argparse
import re
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.base.errors import Problem, SpecError
from calculon.cli.campaign_options import (
    OPTIONS,
    add_campaign,
    campaign_of,
    campaign_source,
    stated,
)
from calculon.cli.changes import OPTION, add_changes, parsed, with_changes
from calculon.cli.field_options import COUNT, processors_in_place
from calculon.cli.options import Parser, add_preset, naming

if TYPE_CHECKING:
    from calculon.advise.runs.largest_model import LargestModel
    from calculon.advise.runs.training_run import TrainingRun

ANY = "any"
"""Placeholder for the model: find the largest model that a fleet can train."""


def add_plan(parser: Parser) -> None:
    """Declare a plan: a model, an execution or a processor count, and a system."""
    parser.argument("MODEL", "the model: a name, or a file")
    parser.argument(
        "EXECUTION",
        'the plan: words ("tp=4 pp=4 dp=64"), an execution, a result (best.json#0), or a number of processors, which '
        "is planned first",
    )
    parser.argument("SYSTEM", "the machine: a name, or a file")


def add_run(parser: Parser, *, without: Collection[str] = ()) -> None:
    """Declare the plan, the campaign and changes of both; `without` as in :func:`add_campaign`."""
    add_plan(parser)
    add_campaign(parser, without=without)
    add_changes(parser, "campaign", "model", "execution", "system")
    add_preset(parser)


def requested_run(arguments: argparse.Namespace) -> "TrainingRun":
    """Return the run that the arguments of :func:`add_run` describe."""
    from calculon.advise.runs.run_of_plan import campaign

    model, execution, system = arguments.model, arguments.execution, arguments.system
    source = campaign_source(arguments)
    changed = with_changes(
        arguments.changes, campaign=source, model=model, execution=execution, system=system
    )
    asked = campaign_of(arguments, changed["campaign"])
    # A number in place of an execution is planned first, so no execution exists yet for --set to change.
    if (count := processors_in_place(execution)) is not None:
        if any(one.startswith("execution.") for one in arguments.changes):
            hint = "calculon plan ... -o plan.json, then plan.json#0 here"
            found = f"{execution} processors, which are planned"
            raise SpecError("--set", Problem("execution", "an execution to change", found, hint))
        changed["execution"] = count
    with naming(execution, campaign=arguments.campaign or "campaign"):
        return campaign(
            changed["model"],
            changed["execution"],
            changed["system"],
            asked,
            preset=arguments.preset,
        )


def requested_largest(arguments: argparse.Namespace) -> "LargestModel":
    """Return the largest trainable model for the arguments of :func:`add_run`, which name no model."""
    from calculon.advise.runs.largest_model import largest_model, not_asked

    if not re.fullmatch(COUNT, arguments.execution):
        wanted, found = f"a number of processors, since the model is {ANY}", arguments.execution
        raise SpecError("EXECUTION", Problem("", wanted, found))
    source = campaign_source(arguments)
    changed = with_changes(arguments.changes, campaign=source, system=arguments.system)
    # Errors name the option that a user typed, not the path of its field.
    names = {one.path: one.name for one in OPTIONS}
    set_here = parsed(arguments.changes, ("campaign", "system"))["campaign"]
    for path in (*stated(arguments), *set_here):
        # A search for the model fixes some campaign fields itself; the error names the option or path that set one.
        if problem := not_asked(path):
            by_option = path not in set_here
            problem = replace(problem, field="") if by_option else problem
            raise SpecError(names[path] if by_option else OPTION, problem)
    asked = campaign_of(arguments, changed["campaign"])
    with naming(arguments.execution, campaign=arguments.campaign or "campaign"):
        return largest_model(
            arguments.execution, changed["system"], None, asked, preset=arguments.preset
        )
