"""Waterfall table: from one plan to another, one change at a time, with time and memory of each change."""

from collections.abc import Iterable, Mapping

from calculon.base.records import Plain
from calculon.base.units import GIB
from calculon.declarations.axes import AXES
from calculon.documents.page import PARTS
from calculon.render.digits import Digits
from calculon.render.document import Section, dim
from calculon.render.text_tables import EARLY, Column, Table
from calculon.render.texts import counted

NAMES = ("mine", "best")

SHARE = 0.25
"""Smallest part of a change that is named, as a share of its largest part."""

NOTHING = 1e-5
"""Share of the time, and of a GiB, below which a change counts as having no effect."""

_MAX_PARTS = 2

_SHORT = {name: words for name, (words, _) in PARTS.items()} | {
    f"{axis.name}_comm_exposed_time": f"{axis.name.upper()} traffic" for axis in AXES
}
"""Short labels of the parts of the time."""

_THE = {"best": "the best"}
"""Names of plans within a sentence."""


def waterfall_section(waterfall: Plain, digits: Digits, names: tuple[str, str] = NAMES) -> Section:
    """Return a waterfall as a table, followed by remarks.

    Args:
        waterfall: The waterfall as plain data.
        digits: Digits of its times.
        names: Names of the first and the last plan.
    """
    return Section(
        f"From {names[0]} to {_THE.get(names[1], names[1])}, one change at a time",
        (waterfall_table(waterfall, digits, names), *map(dim, waterfall_notes(waterfall))),
        "" if waterfall["per"] == "step" else f"times of a {waterfall['per']}",
        opened=True,
    )


def waterfall_table(waterfall: Plain, digits: Digits, names: tuple[str, str] = NAMES) -> Table:
    """Return a row for each change between the rows of both plans; arguments as in :func:`waterfall_section`."""
    columns = (
        Column("change", "change", fold=True),
        Column("seconds", "time", right=True),
        Column("bytes", "GiB", right=True),
        Column("time_after", "then", right=True, drop=EARLY),
        Column("bytes_after", "GiB after", right=True, drop=EARLY + 1),
        Column("parts", "mostly", fold=True, drop=1),
    )
    largest = max(waterfall[name]["seconds"] for name in NAMES)
    mine, best = (
        _end(name, waterfall[key], digits, largest) for name, key in zip(names, NAMES, strict=True)
    )
    steps = (_cells(step, digits, largest) for step in steps_with_effect(waterfall))
    return Table(columns, [mine, *steps, best])


def steps_with_effect(waterfall: Plain) -> list[Plain]:
    """Return the changes that affect time or memory."""
    return [step for step in waterfall["steps"] if not _is_nothing(step, waterfall)]


def _cells(step: Plain, digits: Digits, largest: float) -> dict[str, str]:
    added, then = digits.seconds([abs(step["seconds"]), step["time_after"]], largest)
    beyond = "" if step["fits"] else " !"
    return {
        "change": step["change"],
        "seconds": signed(step["seconds"], added),
        "bytes": signed(step["bytes"], f"{abs(step['bytes']) / GIB:.1f}") + beyond,
        "time_after": then,
        "bytes_after": f"{step['bytes_after'] / GIB:.1f}{beyond}",
        "parts": parts_in_words(step["parts"]),
    }


def parts_in_words(parts: Mapping[str, float]) -> str:
    """Write the parts of the time that decrease, then those that increase.

    >>> parts_in_words({"recompute_time": -0.9, "tp_comm_exposed_time": 0.3, "fw_time": 0.01})
    'less recomputation; more TP traffic'
    """
    largest = max(map(abs, parts.values()), default=0.0)
    names = [name for name, change in parts.items() if abs(change) >= SHARE * largest][:_MAX_PARTS]
    ways = {
        "less": [_SHORT[name] for name in names if parts[name] < 0],
        "more": [_SHORT[name] for name in names if parts[name] > 0],
    }
    return "; ".join(f"{way} {', '.join(words)}" for way, words in ways.items() if words)


def waterfall_notes(waterfall: Plain) -> list[str]:
    """Return notes on changes without effect, and on plans that exceed the memory."""
    result = []
    if names := [step["change"] for step in waterfall["steps"] if _is_nothing(step, waterfall)]:
        result.append(f"Without effect on time and memory: {'; '.join(names)}")
    beyond = sum(not step["fits"] for step in waterfall["steps"])
    if beyond or not waterfall["mine"]["fits"]:
        plans = f"{counted(beyond, 'plan')} in between" if beyond else "the first plan"
        result.append(f"! predicted to exceed the memory: {plans}")
    return result


def _is_nothing(step: Plain, waterfall: Plain) -> bool:
    least = NOTHING * waterfall["mine"]["seconds"]
    same = abs(step["seconds"]) <= least and abs(step["bytes"]) <= NOTHING * GIB
    return bool(same and step["fits"])


def _end(name: str, one: Plain, digits: Digits, largest: float) -> dict[str, str]:
    memory = f"{one['bytes'] / GIB:.1f}{'' if one['fits'] else ' !'}"
    found = {"change": name, "seconds": digits.seconds([one["seconds"]], largest)[0]}
    return {**found, "bytes": memory, "time_after": "", "bytes_after": "", "parts": ""}


def signed(value: float, text: str) -> str:
    """Put a sign before a size; none if it is written as 0, or as less than a digit.

    >>> signed(-1.65, "1.65 s"), signed(0.001, "0.00 s"), signed(-0.006, "<0.01 s")
    ('-1.65 s', '0.00 s', '<0.01 s')
    """
    if text.startswith("<") or not any(digit in text for digit in "123456789"):
        return text
    return f"{'-' if value < 0 else '+'}{text}"


def digits_of_differences(digits: Iterable[Digits]) -> Digits:
    """Return the digits of time differences, which are known better than the times, because the times share errors."""
    return Digits(max(one.spread for one in digits) / _BETTER)


_BETTER = 4.0
"""Factor by which differences are known better."""
