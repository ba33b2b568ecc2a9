"""Options of the commands about whole training runs: a campaign and its most common fields."""

import argparse
import re
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calculon.base.errors import SpecError
from calculon.cli.field_options import Option, stated_by
from calculon.cli.options import Parser
from calculon.cli.streams import print_stderr

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign

OPTIONS = (
    Option("--tokens", "tokens", "N", "tokens of the run (15T), or per parameter (chinchilla)"),
    Option("--loss", "loss", "L", "loss to reach, instead of tokens"),
    Option("--steps", "steps", "N", "steps of the run, instead of tokens"),
    Option(
        "--deadline",
        "deadline",
        "TIME",
        "longest duration of the run in days (60), or with a unit (8w)",
    ),
    Option("--budget-usd", "budget_usd", "USD", "largest cost in US dollars (5M)"),
    Option("--budget-mwh", "budget_mwh", "MWH", "largest energy in MWh (900)"),
    Option(
        "--mtbf",
        "reliability.mtbf_processor",
        "TIME",
        "mean time between failures of one processor, in hours (50000), with a unit (400d), or never",
    ),
    Option(
        "--failures",
        "reliability.scenario",
        "NAME",
        "published failure rates: good, typical (default) or new cluster",
    ),
    Option(
        "--overhead",
        "overhead_factor",
        "X",
        "time over steps, failures and checkpoints (1.1); published runs took 1.01 to 1.46",
    ),
    Option("--spares", "reliability.spares", "NODES", "spare nodes on standby"),
    Option(
        "--interval",
        "checkpoints.interval",
        "TIME",
        "seconds between checkpoints (1800), or with a unit (30min)",
    ),
    Option("--price", "fleet.price", "USD", "US dollars for an hour of a processor (2.0)"),
    Option(
        "--price-kind",
        "fleet.price_kind",
        "KIND",
        "price of the system to use: on_demand, reserved, spot, own",
    ),
    Option("--pue", "fleet.pue", "X", "power usage effectiveness of the data center (1.2)"),
    Option(
        "--carbon",
        "fleet.g_co2_per_kwh",
        "G|GRID",
        "carbon intensity of the electricity in g/kWh (400), or its grid (france, us-va)",
    ),
)
"""Options of common fields; ``--set campaign.PATH=VALUE`` sets any other field."""


def add_campaign(parser: Parser, *, without: Collection[str] = ()) -> None:
    """Declare ``--campaign`` and the :data:`OPTIONS`.

    Args:
        without: Names of options that the command declares itself or does not accept.
    """
    parser.option(
        "--campaign NAME|FILE",
        "the whole run: ramps, failures, checkpoints, money (calculon catalog campaigns); options override it",
    )
    for one in OPTIONS:
        if one.name not in without:
            parser.option(f"{one.name} {one.metavar}", one.help)


def stated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the campaign fields that options set, by path, with the values as a file would state them."""
    return stated_by(OPTIONS, arguments)


def campaign_source(arguments: argparse.Namespace) -> Any:
    """Return the campaign source for ``with_changes(..., campaign=...)``; an empty object without ``--campaign``."""
    return {} if arguments.campaign is None else arguments.campaign


def asks_for_a_run(arguments: argparse.Namespace, source: Any) -> bool:
    """Return True if a whole run is asked for: by a campaign, an option of it, or a `source` changed by ``--set``."""
    from calculon.inputs import Changed

    return arguments.campaign is not None or bool(stated(arguments)) or isinstance(source, Changed)


def campaign_of(arguments: argparse.Namespace, source: Any = None) -> "Campaign":
    """Return the campaign that the arguments describe.

    Args:
        arguments: Arguments declared by :func:`add_campaign`.
        source: :func:`campaign_source` including the changes of ``--set``; by default without changes.

    Raises:
        SpecError: If no such campaign exists or a field is invalid; the error names the option that set the field.
    """
    from calculon.campaign.read import read_campaign

    fields = stated(arguments)
    _note_few_tokens(getattr(arguments, "tokens", None))
    try:
        return read_campaign(campaign_source(arguments) if source is None else source, fields)
    except SpecError as error:
        raise _by_option(error, fields) from None


_FEW_TOKENS = 10_000
"""Tokens below which a plain number was probably meant in trillions or billions."""


def _note_few_tokens(text: str | None) -> None:
    """Say that a small number without a unit counts tokens."""
    if text and re.fullmatch(r"\d+(\.\d+)?", text) and float(text) < _FEW_TOKENS:
        print_stderr(
            f"calculon: note: --tokens {text} is {text} tokens; write {text}T for trillions, {text}B for billions."
        )


def _by_option(error: SpecError, fields: Collection[str]) -> SpecError:
    """Return the error with the name of the option in place of the field, if an option set that field."""
    names = {one.path: one.name for one in OPTIONS if one.path in fields}
    if len(error.problems) != 1 or error.field not in names:
        return error
    return SpecError(names[error.field], replace(error.problems[0], field=""))
