"""Options of commands that each state a field of a record, and numbers of processors in place of a file."""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.cli.options import Parser

COUNT = r"\d+[kK]?"
"""A number of processors that stands for what runs on them."""

_NUMBER = r"[+-]?(\d[\d_,]*\.?\d*|\.\d+)([eE][+-]?\d+)?"
"""Texts that are meant as a number, of which no name and hardly a file consists."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that states a field of a record: its name, the path of the field, and its help."""

    name: str
    path: str
    metavar: str
    help: str

    @property
    def key(self) -> str:
        """The name of the parsed argument."""
        return self.name.removeprefix("--").replace("-", "_")


def add_tried(parser: Parser, **helps: str) -> None:
    """Declare options that list values of fields for a search, each with its help."""
    for name, text in helps.items():
        parser.option(f"--{name} FIELD=VALUE[,VALUE...]", text, action="append", default=[])


def stated_by(options: Iterable[Option], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that options state, by path, as a file would state them."""
    from calculon.declarations.parse import parse_value

    found = {}
    for one in options:
        text = getattr(arguments, one.key, None)
        if text is None:
            continue
        try:
            found[one.path] = parse_value(text)
        except SpecError as error:
            raise SpecError(one.name, Problem("", error.expected, error.found)) from None
    return found


def processors_in_place(text: str) -> int | None:
    """Return the number of processors that a text states in place of a name or a file; None for any other.

    Raises:
        SpecError: For numbers that are no count of processors.
    """
    counted = re.fullmatch(COUNT, text)
    if not (counted or re.fullmatch(_NUMBER, text)) or Path(text).exists():
        return None
    if not counted:
        wanted = "a whole number of processors, such as 8 or 1k"
        raise SpecError("num_procs", Problem("", wanted, repr(text)))
    from calculon.declarations.spellings import processor_counts

    (count,) = processor_counts(text)
    return count
