"""Options that each set one field of a record, and processor counts in place of a file."""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.options import Parser

COUNT = r"\d+[kK]?"
"""Pattern of a processor count in place of a plan or deployment."""

_NUMBER = r"[+-]?(\d[\d_,]*\.?\d*|\.\d+)([eE][+-]?\d+)?"
"""Pattern of texts that look like a number and are therefore neither a name nor a file."""


@dataclass(frozen=True, slots=True)
class Option:
    """Option that sets one field of a record: its name, the path of the field, and its help."""

    name: str
    path: str
    metavar: str
    help: str

    @property
    def key(self) -> str:
        """Attribute name of the parsed argument."""
        return self.name.removeprefix("--").replace("-", "_")


def add_tried(parser: Parser, **helps: str) -> None:
    """Declare options that list candidate values of fields for a search, with their help texts."""
    for name, text in helps.items():
        parser.option(f"--{name} FIELD=VALUE[,VALUE...]", text, action="append", default=[])


def stated_by(options: Iterable[Option], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields set by options, by path, with values as a file would state them."""
    from calculon.declarations.parse import parse_value

    result = {}
    for one in options:
        text = getattr(arguments, one.key, None)
        if text is None:
            continue
        try:
            result[one.path] = parse_value(text)
        except SpecError as error:
            raise SpecError(one.name, Problem("", error.expected, error.found)) from None
    return result


def processors_in_place(text: str) -> int | None:
    """Return the processor count that a text gives in place of a name or file; None for other texts.

    Raises:
        SpecError: For a number that is no valid processor count.
    """
    # An existing file named like a number takes precedence over a processor count.
    counted = re.fullmatch(COUNT, text)
    if not (counted or re.fullmatch(_NUMBER, text)) or Path(text).exists():
        return None
    if not counted:
        wanted = "a whole number of processors, such as 8 or 1k"
        raise SpecError("num_procs", Problem("", wanted, repr(text)))
    from calculon.declarations.spellings import processor_counts

    (count,) = processor_counts(text)
    return count
