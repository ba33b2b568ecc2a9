"""Comparison of results: the inputs that differ, and the parts of time and memory that cause the difference."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from operator import sub, truediv
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon.base.display import Tabular, WithMfu, columns_of, draw_result
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.base.units import Array, Unit
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.confidence import Order, order_in_words
from calculon.documents.page import PARTS
from calculon.documents.page_title import lettered_notes
from calculon.documents.result import Result
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

MOST = len(ascii_uppercase)
"""Maximum number of compared results, each with a letter."""

SECONDS, _BYTES = Unit("s"), Unit("B", binary=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity of every result; differences and ratios are relative to the first result.

    Attributes:
        name, help: The statistic or part, and its meaning.
        unit: Unit of the values.
        values: One per result; None if a result lacks it.
    """

    name: str
    help: str
    unit: Unit
    values: tuple[float | None, ...]

    @property
    def differs(self) -> bool:
        """True if some value differs from the first result's."""
        return any(value != self.values[0] for value in self.values[1:])

    @property
    def differences(self) -> list[float | None]:
        """Each value but the first, minus the first."""
        return self._against(sub)

    @property
    def ratios(self) -> list[float | None]:
        """Each value but the first, divided by the first; None if the first is 0."""
        return self._against(truediv) if self.values[0] else [None] * (len(self.values) - 1)

    def _against(self, operation: Callable[[float, float], float]) -> list[float | None]:
        # NaN propagates through the operation, unlike None; it becomes None again for JSON.
        first, *others = (math.nan if value is None else value for value in self.values)
        found = (operation(value, first) for value in others)
        return [None if math.isnan(value) else value for value in found]

    @property
    def largest(self) -> float:
        """The largest absolute difference."""
        return max((abs(value) for value in self.differences if value is not None), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "name": self.name,
            "unit": self.unit.symbol,
            "help": self.help,
            "values": list(self.values),
            "differences": self.differences,
            "ratios": self.ratios,
        }


class SideBySide(Tabular):
    """Compared results, each with a letter."""

    results: Sequence[Any]

    @property
    def letters(self) -> str:
        """One letter per result."""
        return ascii_uppercase[: len(self.results)]

    @property
    def names(self) -> list[str]:
        """The name of each result."""
        return [one.label for one in self.results]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each value that has a reference (the first result's), with its table and its name."""
        raise NotImplementedError

    def values(self) -> Table:
        """Return a row for each value that is compared with the first result's, for CSV."""
        rows = self.rows()
        return Table(tuple(Column(name) for name in rows[0]), rows)

    def _rows_of(self, lines: Sequence[tuple[str, Line]]) -> Iterator[dict[str, Any]]:
        """Yield the rows of some lines, each with the name of its table."""
        first, *others = self.results
        for table, line in lines:
            values = line.values[1:], line.differences, line.ratios
            for one, value, difference, ratio in zip(others, *values, strict=True):
                yield {
                    "table": table,
                    "name": line.name,
                    "unit": line.unit.symbol,
                    "result": one.label,
                    **self._edition("edition", one),
                    "value": value,
                    "reference": line.values[0],
                    **self._edition("reference_edition", first),
                    "difference": difference,
                    "ratio": ratio,
                }

    def _edition(self, name: str, one: Any) -> dict[str, str]:
        """Return a result's edition as a column of this name; empty for results without editions."""
        return {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.names)}>"

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each value that is compared with the first result's: the columns of ``--format csv``.

        ``table`` and ``name`` identify the quantity, ``result`` and ``edition`` the result. ``value``,
        ``reference`` (the first result, of ``reference_edition``) and their ``difference`` are in the ``unit``;
        ``ratio`` is value / reference.
        """
        return columns_of(self.values().records())


@dataclass(frozen=True)
class Comparison(SideBySide, WithMfu[Array]):
    """Two or more results, compared with the first.

    Attributes:
        results: The results.
        orders: For the number of a result, the confidence that the first is faster, as plain data
            (:class:`~calculon.estimate.comparison_confidence.Order`); for results whose times share their errors.
        waterfalls: For the number of a result, the changes from the first to it as plain data
            (:class:`calculon.Waterfall`), if both are plans of one model on one system.
        launched: Number of the result whose settings `settings` changes: the result of a launch file, or the first.
        settings: For the number of a result, the changes to these settings that run it, as plain data
            (:meth:`calculon.launch.difference.Difference.to_dict`).
    """

    results: Sequence[Result]
    orders: Mapping[int, Order] = field(default_factory=dict)
    waterfalls: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    launched: int = 0
    settings: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    __repr__ = SideBySide.__repr__  # else the dataclass decorator would add its own

    @property
    def headings(self) -> list[str]:
        """Column headings of the results: the letter, and the edition if editions differ."""
        editions = [result.edition for result in self.results]
        if len(set(editions)) == 1:
            return list(self.letters)
        return [
            f"{letter} {edition}" for letter, edition in zip(self.letters, editions, strict=True)
        ]

    @property
    def names(self) -> list[str]:
        """Names of the results: the label, and the edition unless all are of the published one."""
        if all(result.edition == PUBLISHED for result in self.results):
            return [result.label for result in self.results]
        editions = [f"edition {result.edition}" for result in self.results]
        return [
            result.label if edition in result.label else f"{result.label} ({edition})"
            for result, edition in zip(self.results, editions, strict=True)
        ]

    @cached_property
    def inputs(self) -> list[tuple[str, list[Any]]]:
        """Inputs that differ: model and system, then fields of the execution; None if unknown."""
        # Model and system come first, because they explain most differences.
        rows: list[tuple[str, list[Any]]] = [
            ("model", [r.inputs.name if r.inputs else None for r in self.results]),
            ("system", [r.inputs.machine.name if r.inputs else None for r in self.results]),
        ]
        known = [result.execution for result in self.results if result.execution]
        rows += [
            (name, [(r.execution or {}).get(name) for r in self.results])
            for name in (known[0] if known else ())
        ]
        # Compared as text because values may be lists, which are not hashable.
        return [(name, values) for name, values in rows if len(set(map(str, values))) > 1]

    @cached_property
    def statistics(self) -> list[Line]:
        """All statistics that any result has, in published order."""
        return [
            Line(c.name, c.help, c.unit, tuple(r.stats.get(c.name) for r in self.results))
            for c in columns(CorrectedStats)
            if any(c.name in r.stats for r in self.results)
        ]

    def _statistic(self, name: str) -> Array:
        return np.array([result.stats.get(name) for result in self.results], float)

    @property
    def equal(self) -> list[Line]:
        """Statistics that are the same in all results."""
        return [line for line in self.statistics if not line.differs]

    @cached_property
    def time(self) -> list[Line]:
        """Parts of the iteration time, largest difference first."""
        parts = [result.times() for result in self.results]
        return ranked(
            Line(PARTS[name][0], name, SECONDS, tuple(one[name] for one in parts))
            for name in parts[0]
        )

    def memory(self, tier: int) -> list[Line]:
        """Return the memory of a tier (0 or 1) by kind, largest difference first."""
        found = [result.memory()[tier] for result in self.results]
        names = dict.fromkeys(name for one in found for name in one)
        return ranked(
            Line(name, name, _BYTES, tuple(one.get(name, 0.0) for one in found)) for name in names
        )

    @property
    def told_apart(self) -> list[bool | None]:
        """True for each result but the first if its order relative to the first is certain; None if unknown."""
        numbers = range(1, len(self.results))
        return [self.orders[i]["told_apart"] if i in self.orders else None for i in numbers]

    def are_same(self, number: int) -> bool:
        """Return True if a result has the same execution, model, system and edition as the first."""
        first, other = self.results[0], self.results[number]
        known = first.inputs is not None and first.execution is not None
        same = first.execution == other.execution and machine(first) == machine(other)
        return known and same and first.stats == other.stats

    def longer(self, one: int, other: int) -> float:
        """Return the relative excess of the time per sample of one result over another's."""
        # Samples rather than steps, because batches may differ.
        rates = [self.results[i].value("sample_rate") for i in (one, other)]
        return rates[0] / rates[1] - 1

    def margin(self, one: int, other: int) -> float | None:
        """Return the relative difference from which the order of a result and the first is certain; None if unknown."""
        order = self.orders.get(max(one, other)) if 0 in (one, other) else None
        return None if order is None else float(order["margin"])

    @property
    def sureness(self) -> Iterator[str]:
        """Sentences on the intervals of the times, the certainty of each order, and notes on machines."""
        pairs = zip(self.letters, self.results, strict=True)
        ends = [f"{letter} {one.ends}" for letter, one in pairs if one.interval]
        if ends:
            yield f"Intervals of the time (90 %): {', '.join(ends)}"
        for i, letter in enumerate(self.letters[1:], start=1):
            if self.are_same(i):
                yield f"A and {letter} are the same plan"
                continue
            if (order := self.orders.get(i)) is None:
                continue
            # Symmetric: the longer of both over the shorter.
            ratio = 1 + order["longer"]
            by = percent(max(ratio, 1 / ratio) - 1)
            both = "" if order["told_apart"] else f"A and {letter} are "
            yield (
                f"{both}{order_in_words(order, 'A', letter)}: they differ by {by} per sample; "
                f"judging by measured runs, the faster of such plans is certain if they differ by more than "
                f"{percent(order['margin'])}"
            )
        machines = ((one.question or {}).get("system", {}) for one in self.results)
        yield from lettered_notes(self.letters, machines)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        return {
            "results": [
                {
                    "label": r.label,
                    "edition": r.edition,
                    "interval": r.interval,
                    "documents": [
                        {"role": one.role, "name": one.name, "sha256": one.digest}
                        for one in r.documents
                    ],
                }
                for r in self.results
            ],
            "inputs": [{"field": name, "values": values} for name, values in self.inputs],
            "told_apart": self.told_apart,
            "orders": {self.letters[i]: dict(order) for i, order in self.orders.items()},
            "time": [line.to_dict() for line in self.time],
            "memory": {f"tier{t + 1}": [x.to_dict() for x in self.memory(t)] for t in (0, 1)},
            "statistics": [line.to_dict() for line in self.statistics],
            "waterfalls": {self.letters[i]: text for i, text in self.waterfalls.items()},
            "settings": {
                self.letters[i]: {"from": self.letters[self.launched], **text}
                for i, text in self.settings.items()
            },
        }

    @overload
    def plot(self, *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(self, *, interactive: bool = False) -> "Figure | InteractiveFigure":
        """Draw time and memory of each result by part, as ``calculon plot breakdown`` does.

        Args:
            interactive: Return a plotly Figure, as the web page draws it (extra ``web``).

        Raises:
            SpecError: If the library is missing.
        """
        return draw_result(self, "breakdown", interactive=interactive)

    def _edition(self, name: str, one: Result) -> dict[str, str]:
        return {name: one.edition}

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each compared value, and a row for each change of the waterfalls."""
        lines = [("statistics", line) for line in self.statistics]
        lines += [("time", line) for line in self.time]
        lines += [(f"memory, tier {t + 1}", line) for t in (0, 1) for line in self.memory(t)]
        changes = [row for number in self.waterfalls for row in self._changes(number)]
        return [*self._rows_of(lines), *changes]

    def _changes(self, number: int) -> Iterator[dict[str, Any]]:
        """Yield time and memory after each change from the first result to another, with the values before it."""
        waterfall_data = self.waterfalls[number]
        first, other = self.results[0], self.results[number]
        for key, after, unit in (("seconds", "time_after", "s"), ("bytes", "bytes_after", "B")):
            for step in waterfall_data["steps"]:
                yield {
                    "table": f"waterfall, {unit} a {waterfall_data['per']}"
                    if unit == "s"
                    else "waterfall, B",
                    "name": step["change"],
                    "unit": unit,
                    "result": other.label,
                    "edition": other.edition,
                    "value": step[after],
                    "reference": step[after] - step[key],
                    "reference_edition": first.edition,
                    "difference": step[key],
                    "ratio": step[after] / (step[after] - step[key]),
                }


def machine(result: Result) -> tuple[Any, ...]:
    """Return model, system and preset of a result; for a search with unknown inputs, its file instead."""
    known = result.inputs
    asked = (known.name, known.machine.name) if known else result.documents
    return (result.edition, asked, (result.execution or {}).get("preset"))


def ranked(lines: Iterator[Line]) -> list[Line]:
    """Drop lines of zeros, and sort by the largest difference."""
    return sorted((line for line in lines if any(line.values)), key=lambda line: -line.largest)
