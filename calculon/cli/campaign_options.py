"""Options of the commands that tell of whole runs: a campaign, and single fields of it."""

import argparse
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from calculon.base.errors import SpecError
from calculon.cli.field_options import Option, stated_by
from calculon.cli.options import Parser

if TYPE_CHECKING:
    from calculon.campaign.record import Campaign

OPTIONS = (
    Option(
        "--tokens", "tokens", "N", "tokens of the run (15T), or for each parameter (chinchilla)"
    ),
    Option("--loss", "loss", "L", "loss to reach, instead of tokens"),
    Option("--steps", "steps", "N", "steps of the run, instead of tokens"),
    Option("--deadline", "deadline", "TIME", "days that the run may take (60), or words (8w)"),
    Option("--budget-usd", "budget_usd", "USD", "US dollars that it may cost (5M)"),
    Option("--budget-mwh", "budget_mwh", "MWH", "energy that it may take, in MWh (900)"),
    Option(
        "--mtbf",
        "reliability.mtbf_processor",
        "TIME",
        "hours of one processor to an interruption of its job (50000), words (400d), or never",
    ),
    Option("--spares", "reliability.spares", "NODES", "nodes that stand by"),
    Option(
        "--interval",
        "checkpoints.interval",
        "TIME",
        "seconds between checkpoints (1800), or words (30min)",
    ),
    Option("--price", "fleet.price", "USD", "US dollars for an hour of a processor (2.0)"),
    Option(
        "--price-kind",
        "fleet.price_kind",
        "KIND",
        "which price of the system counts: on_demand, reserved, spot, own",
    ),
    Option("--pue", "fleet.pue", "X", "power usage effectiveness of the data centre (1.2)"),
    Option(
        "--carbon",
        "fleet.g_co2_per_kwh",
        "G|GRID",
        "carbon of the electricity, in g/kWh (400), or its grid (france, us-va)",
    ),
)
"""Options of single fields; ``--set campaign.PATH=VALUE`` states any other."""


def add_campaign(parser: Parser, *, without: Collection[str] = ()) -> None:
    """Declare ``--campaign`` and the :data:`OPTIONS`.

    Args:
        without: Options, by name, that the command declares itself or does not take.
    """
    parser.option(
        "--campaign NAME|FILE",
        "the whole run: ramps, failures, checkpoints, money (calculon catalog campaigns); options count more",
    )
    for one in OPTIONS:
        if one.name not in without:
            parser.option(f"{one.name} {one.metavar}", one.help)


def stated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a campaign that options state, by path, as a file would state them."""
    return stated_by(OPTIONS, arguments)


def campaign_source(arguments: argparse.Namespace) -> Any:
    """Return the source of the campaign, for ``with_changes(..., campaign=...)``; without one no fields."""
    return {} if arguments.campaign is None else arguments.campaign


def asks_for_a_run(arguments: argparse.Namespace, source: Any) -> bool:
    """Whether a command is asked about a whole run: by a campaign, an option, or `source` that ``--set`` changed."""
    from calculon.inputs import Changed

    return arguments.campaign is not None or bool(stated(arguments)) or isinstance(source, Changed)


def campaign_of(arguments: argparse.Namespace, source: Any = None) -> "Campaign":
    """Return the campaign that a command is asked for.

    Args:
        arguments: What :func:`add_campaign` declared.
        source: :func:`campaign_source` with what ``--set`` changes in it; by default that as it is.

    Raises:
        SpecError: When there is no such campaign, and for everything wrong with it, by the option where one states it.
    """
    from calculon.campaign.read import read_campaign

    fields = stated(arguments)
    try:
        return read_campaign(campaign_source(arguments) if source is None else source, fields)
    except SpecError as error:
        raise _by_option(error, fields) from None


def _by_option(error: SpecError, fields: Collection[str]) -> SpecError:
    """Return an error about one field that an option states with the name of the option."""
    names = {one.path: one.name for one in OPTIONS if one.path in fields}
    if len(error.problems) != 1 or error.field not in names:
        return error
    return SpecError(names[error.field], replace(error.problems[0], field=""))
