"""The list of slow test functions: their times, and which of them ``scripts/test --fast`` runs nevertheless."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("times.txt")
"""A line has CPU seconds, ``fast`` if ``--fast`` runs the function, and its name.

The seconds are the sum over its cases, or the time of one case that computes what tests share, if that is longer.
"""

LINE = re.compile(r"(?P<seconds>\d+\.\d+) (?P<fast>fast )?(?P<name>\S+)")

SLOW_FROM = 0.03
"""The list has the functions that take this long. ``--fast`` runs all others, and those chosen from the list."""

CHANGED = 3
"""A measured time replaces a listed one if they differ by this factor, and by more than :data:`SLOW_FROM`.

Loaded machines vary by less, and so does a function that is the first to need what the program keeps.
"""


class Listed(NamedTuple):
    """A slow test function: its CPU seconds, and whether ``--fast`` runs it."""

    seconds: float
    fast: bool = False


def function(nodeid: str) -> str:
    """Return the name of a test without its case."""
    return nodeid.partition("[")[0].replace(" ", "_")


def listed() -> dict[str, Listed]:
    """Return the slow test functions by name."""
    found = {}
    for number, line in enumerate(LIST.read_text(encoding="utf-8").splitlines(), 1):
        if not (parts := LINE.fullmatch(line)):
            wanted = "expected seconds, perhaps fast, and a test"
            raise ValueError(
                f"{LIST}:{number}: {wanted}, found {line!r}; delete it: a full run writes the list anew"
            )
        found[parts["name"]] = Listed(float(parts["seconds"]), bool(parts["fast"]))
    return found


def updated(old: Mapping[str, Listed], measured: Mapping[str, float]) -> dict[str, Listed]:
    """Return a list without functions that are gone, and with times that have changed."""
    times = {}
    for name, seconds in measured.items():
        known = old.get(name, Listed(0.0))
        alike = known.seconds / CHANGED < seconds < known.seconds * CHANGED
        alike |= abs(seconds - known.seconds) < SLOW_FROM
        times[name] = known if alike else known._replace(seconds=seconds)
    return {name: one for name, one in times.items() if one.seconds > SLOW_FROM}


def with_fast(old: Mapping[str, Listed], fast: Iterable[str]) -> dict[str, Listed]:
    """Return a list in which ``--fast`` runs these functions and no others."""
    chosen = set(fast)
    return {name: Listed(one.seconds, name in chosen) for name, one in old.items()}


def write(times: Mapping[str, Listed]) -> None:
    """Write the list, slowest first."""
    ordered = sorted(times.items(), key=lambda item: (-item[1].seconds, item[0]))
    lines = (f"{one.seconds:.2f} {'fast ' * one.fast}{name}\n" for name, one in ordered)
    LIST.write_text("".join(lines), encoding="utf-8")
