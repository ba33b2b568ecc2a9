"""Headline of a plan: utilization, time, days and dollars with their intervals, and memory with its risk."""

from calculon.base.records import Plain
from calculon.documents.result import Result
from calculon.documents.run_defaults import run_rows
from calculon.documents.setup import Row, memory_row, speed_rows
from calculon.render.texts import token_count

_SPEEDS = ("time per iteration", "MFU")
"""Prefixes of the labels of speeds in a headline."""


def headline(result: Result, training: Plain) -> tuple[Row, ...]:
    """Return the rows of a headline: label, value, and interval; the last row is memory and its risk.

    Args:
        result: The plan.
        training: The training run with this plan (:func:`calculon.advise.candidate.trainings`).
    """
    speeds = (row for row in speed_rows(result) if str(row[0]).startswith(_SPEEDS))
    labels = {f"days for {token_count(training['tokens'])} tokens": "days", "USD": "usd"}
    return (*speeds, *run_rows(training["campaign"], labels, result.digits), memory_row(result))
