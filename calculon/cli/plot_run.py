"""``calculon plot campaign`` and ``plot goodput``: pictures of a whole training run."""

import argparse
from typing import Any

from calculon.cli.asked_run import asked_run
from calculon.declarations.parse import parse_value
from calculon.documents.charts.run_days_chart import RunDays
from calculon.documents.run_pictures import run_days


def days(arguments: argparse.Namespace) -> RunDays:
    """Return where the days of the run go, and when it ends."""
    return run_days(asked_run(arguments))


def goodput(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the goodput of the run on other numbers of processors."""
    from calculon.advise.runs.goodput_by_size import goodput_by_size

    texts = [] if arguments.mtbfs is None else arguments.mtbfs.split(",")
    mtbf: list[Any] | None = [parse_value(text.strip()) for text in texts] or None
    return goodput_by_size(asked_run(arguments), arguments.procs, mtbf).to_dict()
