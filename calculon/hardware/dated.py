"""Numbers that are as good as where and when they were seen: each is stated with its source and its date."""

import re
from typing import Protocol

from calculon.base.errors import Problem, SpecError
from calculon.declarations.fields import check_record, shown

DATE = re.compile(r"(19|20)\d\d(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?")
"""A year, a month or a day, as ``2025``, ``2025-06``, ``2025-06-05``."""

SOURCE = "who says so; 'recalled' where it was not looked up"
DAY = "when it was so: year, year-month or year-month-day"
"""Help of the fields ``source`` and ``date``."""


class Dated(Protocol):
    """A record with a source and a date."""

    @property
    def source(self) -> str:
        """Who says so."""

    @property
    def date(self) -> str:
        """When it was so."""


def check_dated(record: Dated) -> None:
    """Check the plain fields of a record, that it has a source, and that its date is one.

    Raises:
        SpecError: With every field that is wrong.
    """
    check_record(record)
    problems = []
    if not record.source.strip():
        hint = "a price, or a power, is worth what its source is"
        problems.append(Problem("source", "who says so", shown(record.source), hint))
    if DATE.fullmatch(record.date) is None:
        problems.append(
            Problem("date", "a date such as 2025, 2025-06 or 2025-06-05", shown(record.date))
        )
    if problems:
        raise SpecError(type(record).__name__, problems)
