"""``calculon sensitivity``: elasticities of a plan with respect to the machine, and the value of upgrades."""

import argparse
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from calculon.base.errors import Problem, SpecError
from calculon.cli.campaign_options import (
    add_campaign,
    asks_for_a_run,
    campaign_of,
    campaign_source,
)
from calculon.cli.changes import add_changes, with_changes
from calculon.cli.field_options import processors_in_place
from calculon.cli.options import (
    STDOUT,
    Log,
    Parser,
    add_edition,
    add_format,
    add_preset,
    check_inputs,
    check_outputs,
    naming,
)
from calculon.cli.pictures import PICTURES, check_picture, write_picture
from calculon.cli.requested_run import add_plan
from calculon.declarations.files import document_suffix
from calculon.declarations.result_selection import split
from calculon.render.text_tables import FORMATS

if TYPE_CHECKING:
    from calculon.advise.sensitivity_result import Sensitivity

_KINDS = ("model", "execution", "system", "campaign")

LIMITS = ("--deadline", "--budget-usd", "--budget-mwh")
"""Limits of a campaign, which do not change any figure of its run."""

OUTPUTS = (".json", ".csv", *PICTURES)


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.explain(
        "Find the sensitivity of a plan: for every figure of the machine the elasticity of the step time (the "
        "percent change of the time per percent of the figure), and the time with the figure a quarter lower and "
        "higher. With --replan the plan is searched again on each changed machine, and the value of more memory is "
        "found; with --against, the figures at which another plan or machine is as fast. For a whole run (--tokens, "
        "--campaign), the sensitivity of days, money or energy, also to price, failures and checkpoints.",
        "calculon sensitivity megatron-1T 3072_t4_p64_d12_mbs4_full a100_80g\n"
        "calculon sensitivity llama-3.1-70b 1024 h100 --replan\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm --of dp_comm_exposed_time --range 50%\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm --against llama3-8B_h100x64_p4\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm --against-system b200_sxm\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm -o tornado.png -o figures.csv\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens 15T --of usd\n"
        "calculon sensitivity llama3-8B llama3-8B_h100x64 h100_80g_sxm --tokens 15T --of usd --price 2.5 "
        "--against-system b200_sxm",
    )
    add_plan(parser)
    parser.option(
        "--of STAT",
        "the statistic (default total_time): calculon describe stats; for a whole run days (default), usd, ...",
    )
    parser.option(
        "--range SHARE",
        "relative change of each figure in both directions (default 25%%); calibrated takes the interval of each part "
        "of a calibrated system",
        default="25%",
    )
    parser.switch("--replan", "search the plan again on each changed machine")
    _add_rivals(parser)
    _add_outputs(parser)
    add_campaign(parser, without=LIMITS)
    add_changes(parser, *_KINDS)
    add_edition(parser)
    add_preset(parser)
    parser.show_first(
        "--of",
        "--range",
        "--replan",
        "--against",
        "--against-system",
        "--tokens",
        "--price",
        "--preset",
        "--format",
        "--output",
    )


def _add_rivals(parser: Parser) -> None:
    rival = parser.add_mutually_exclusive_group()
    rival.add_argument(
        "--against", metavar="EXECUTION", help="find the figures at which another plan is as fast"
    )
    rival.add_argument(
        "--against-system",
        metavar="SYSTEM",
        help="find the figures at which this machine is as fast as another with this plan (--replan: with its best)",
    )


def _add_outputs(parser: Parser) -> None:
    parser.option(
        "-o, --output FILE",
        "also write everything (.json), a table (.csv) or a tornado (.png, .svg, .pdf); may be repeated",
        action="append",
        default=[],
    )
    parser.switch("-q, --quiet", "no progress on standard error")
    printed = "a page (text, default), a table of all figures (markdown, csv), or everything (json)"
    add_format(parser, FORMATS, f"format of the printed output: {printed}")


def run(arguments: argparse.Namespace, log: Log) -> int:
    """Analyze the sensitivity of the plan, then print the page and write the files."""
    specs = [arguments.model, arguments.execution, arguments.system]
    others = arguments.against, arguments.against_system, arguments.campaign
    given = [one for one in others if one is not None]
    check_inputs([*specs, *given])
    # Several outputs may be given, and only one of them could be standard output.
    if STDOUT in arguments.output:
        hint = "-f json, csv or markdown selects the printed format"
        raise SpecError("--output", Problem("", "the name of a file", "'-'", hint))
    check_outputs(arguments.output, [split(one)[0] for one in (*specs, *given)], OUTPUTS)
    for path in arguments.output:
        if document_suffix(path) in PICTURES:
            check_picture(path, ())
    found = _found(arguments, specs)
    document = found.to_dict()
    from calculon.documents.sensitivity_page import figures_table, sensitivity_page

    if arguments.format == "text":
        log.show(sensitivity_page(found))
    elif arguments.format == "json":
        log.write(document, STDOUT)
    else:
        log(figures_table(found).written(arguments.format))
    for path in arguments.output:
        if document_suffix(path) in PICTURES:
            from calculon.documents.charts.tornado_chart import tornado

            write_picture(tornado(document), path, log)
        else:
            log.write(document, path, figures_table(found))
    return 0


class Searches(contextlib.ExitStack):
    """Progress of several searches; starts with the first one, which reports the total."""

    def __init__(self, *, quiet: bool):
        super().__init__()
        self._quiet, self._advance = quiet, cast("Callable[[int], None] | None", None)

    def __call__(self, count: int) -> None:
        """Count one finished search out of `count`."""
        if self._advance is None:
            from calculon.cli.progress import progress

            self._advance = self.enter_context(progress(count, quiet=self._quiet))
        self._advance(1)


def _found(arguments: argparse.Namespace, specs: list[str]) -> "Sensitivity":
    from calculon.advise.sensitivity import sensitivity

    kinds = dict(zip(_KINDS, (*specs, campaign_source(arguments)), strict=False))
    changed = with_changes(arguments.changes, **kinds)
    asked = changed.pop("campaign")
    if asks_for_a_run(arguments, asked):
        changed["campaign"] = campaign_of(arguments, asked)
    if (count := processors_in_place(specs[1])) is not None:
        changed["execution"] = count
    named = arguments.campaign or "campaign"
    with naming(specs[1], campaign=named), Searches(quiet=arguments.quiet) as searches:
        return sensitivity(
            **changed,
            of=arguments.of,
            spread=arguments.range,
            replan=arguments.replan,
            against=arguments.against,
            against_system=arguments.against_system,
            edition=arguments.edition,
            preset=arguments.preset,
            seen=searches,
        )
