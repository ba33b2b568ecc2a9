"""Options of a question about a training run, including the user's own plan."""

import argparse
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.cli.campaign_options import campaign_of, campaign_source
from calculon.cli.changes import with_changes
from calculon.cli.options import Parser, Suggested
from calculon.declarations.spellings.precisions import PRECISIONS


def add_question_options(parser: Parser) -> None:
    """Declare ``--batch``, ``--seq``, ``--dtype`` and ``--mine``."""
    parser.option(
        "--batch N",
        "global batch, in sequences (512) or tokens (4M); default: 4M tokens, within 1k to 64k per processor",
    )
    parser.option("--seq N", "tokens of a sequence (8192, 8k); default: the model's, at most 8k")
    parser.option(
        "--dtype TYPE",
        "precision: bf16 (default), fp16, fp32, fp8, mxfp8, nvfp4",
        "; recipes store 16 bits and multiply 8: fp8, fp8-tensorwise, fp8-blockwise, mxfp8; or 4: nvfp4",
        choices=Suggested(PRECISIONS),
    )
    parser.option(
        "--mine PLAN",
        'your own plan for comparison: "tp=8 pp=4 mbs=1", the file of an execution, or your launch file',
        "; its batch, sequence length, precision and framework apply unless options override them",
        action="append",
    )


def set_in_order(arguments: argparse.Namespace, processors: str = "num_procs") -> None:
    """Swap processors and machine if they were given in the other order, recognized by the count.

    Args:
        arguments: Arguments of the command.
        processors: Name of the argument that states processors.
    """
    from calculon.advise.runs.fleet_search import ANY
    from calculon.declarations.spellings import is_counts

    # A file may be named like a count, so an existing path is never one.
    def counts(text: str) -> bool:
        return (text == ANY or is_counts(text)) and not Path(text).exists()

    stated = getattr(arguments, processors)
    if counts(arguments.system) and not counts(stated):
        setattr(arguments, processors, arguments.system)
        arguments.system = stated


def only_plan(plans: list[str] | None) -> str | None:
    """Return the user's single plan; raise SpecError if there are several."""
    if plans and len(plans) > 1:
        hint = "compare sets any number of them side by side"
        raise SpecError("--mine", Problem("", "one plan", f"{len(plans)} of them", hint))
    return plans[0] if plans else None


def machines_in(text: str) -> list[str]:
    """Return the requested machines: one, or several separated by commas."""
    if Path(text).exists():
        return [text]
    return list(dict.fromkeys(one.strip() for one in text.split(",") if one.strip())) or [text]


def requested_question(arguments: argparse.Namespace) -> tuple[Any, list[Any], dict[str, Any]]:
    """Return model, machines and further arguments of a question, as :func:`calculon.plan` accepts them."""
    from calculon.search.overrides import parse

    source = campaign_source(arguments)
    changed = [
        with_changes(arguments.changes, model=arguments.model, system=system, campaign=source)
        for system in machines_in(arguments.system)
    ]
    words = {name: getattr(arguments, name) for name in ("preset", "batch", "seq", "dtype")}
    words |= {name: parse(name, getattr(arguments, name)) for name in ("fix", "add")}
    words["campaign"] = campaign_of(arguments, changed[0]["campaign"])
    return changed[0]["model"], [one["system"] for one in changed], words
