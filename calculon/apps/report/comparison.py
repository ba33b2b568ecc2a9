"""Results side by side: what was asked differently, and where differences of time and memory come from."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_uppercase
from typing import Any

from calculon.apps.report.page import PARTS
from calculon.apps.report.plain_result import Result
from calculon.apps.report.sheet import PUBLISHED
from calculon.apps.report.text_tables import Column, Table
from calculon.records import columns
from calculon.statistics import CorrectedStats
from calculon.units import Unit

MOST = len(ascii_uppercase)
"""Results that have a letter each."""

SECONDS, _BYTES = Unit("s"), Unit("B", binary=True)


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity of every result; differences and ratios are against the first.

    Attributes
    ----------
    name, help : str
        The statistic or the part, and what it is.
    unit : Unit
        Of the values.
    values : tuple of float or None
        One per result; None is a value that a result does not have.
    """

    name: str
    help: str
    unit: Unit
    values: tuple[float | None, ...]

    @property
    def differs(self) -> bool:
        """Whether some value is not that of the first result."""
        return any(value != self.values[0] for value in self.values[1:])

    @property
    def differences(self) -> list[float | None]:
        """Each value but the first, minus the first."""
        return [_finite(_minus(value, self.values[0])) for value in self.values[1:]]

    @property
    def ratios(self) -> list[float | None]:
        """Each value but the first, over the first."""
        return [_finite(_over(value, self.values[0])) for value in self.values[1:]]

    @property
    def largest(self) -> float:
        """The largest absolute difference."""
        return max((abs(value) for value in self.differences if value is not None), default=0.0)


def _minus(value: float | None, reference: float | None) -> float | None:
    return None if value is None or reference is None else value - reference


def _over(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


@dataclass(frozen=True)
class Comparison:
    """Two or more results; the first is what the others are compared with."""

    results: Sequence[Result]

    @property
    def letters(self) -> str:
        """One letter per result."""
        return ascii_uppercase[: len(self.results)]

    @property
    def headings(self) -> list[str]:
        """What stands above the values of each result: its letter, and its edition where they differ."""
        editions = [result.edition for result in self.results]
        if len(set(editions)) == 1:
            return list(self.letters)
        return [
            f"{letter} {edition}" for letter, edition in zip(self.letters, editions, strict=True)
        ]

    @property
    def names(self) -> list[str]:
        """What each result is called: its label, and its edition unless that is plain."""
        if all(result.edition == PUBLISHED for result in self.results):
            return [result.label for result in self.results]
        editions = [f"edition {result.edition}" for result in self.results]
        return [
            result.label if edition in result.label else f"{result.label} ({edition})"
            for result, edition in zip(self.results, editions, strict=True)
        ]

    @cached_property
    def inputs(self) -> list[tuple[str, list[Any]]]:
        """What was asked differently: model and system, then fields of the execution; None is not known."""
        rows: list[tuple[str, list[Any]]] = [
            ("model", [r.sheet.name if r.sheet else None for r in self.results]),
            ("system", [r.sheet.machine.name if r.sheet else None for r in self.results]),
        ]
        known = [result.execution for result in self.results if result.execution]
        rows += [
            (name, [(r.execution or {}).get(name) for r in self.results])
            for name in (known[0] if known else ())
        ]
        return [(name, values) for name, values in rows if len(set(map(str, values))) > 1]

    @cached_property
    def statistics(self) -> list[Line]:
        """Every statistic that some result has, in published order."""
        return [
            Line(c.name, c.help, c.unit, tuple(r.stats.get(c.name) for r in self.results))
            for c in columns(CorrectedStats)
            if any(c.name in r.stats for r in self.results)
        ]

    @property
    def equal(self) -> list[Line]:
        """The statistics that are the same in all results."""
        return [line for line in self.statistics if not line.differs]

    @cached_property
    def time(self) -> list[Line]:
        """The parts of the iteration time, those with the largest differences first."""
        parts = [result.times() for result in self.results]
        return _ranked(
            Line(PARTS[name][0], name, SECONDS, tuple(one[name] for one in parts))
            for name in parts[0]
        )

    def memory(self, tier: int) -> list[Line]:
        """Return what a tier (0 or 1) holds by kind, the largest differences first."""
        found = [result.memory()[tier] for result in self.results]
        names = dict.fromkeys(name for one in found for name in one)
        return _ranked(
            Line(name, name, _BYTES, tuple(one.get(name, 0.0) for one in found)) for name in names
        )

    def document(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "results": [
                {
                    "label": r.label,
                    "edition": r.edition,
                    "documents": [_document(one) for one in r.documents],
                }
                for r in self.results
            ],
            "inputs": [{"field": name, "values": values} for name, values in self.inputs],
            "time": [_record(line) for line in self.time],
            "memory": {f"tier{t + 1}": [_record(x) for x in self.memory(t)] for t in (0, 1)},
            "statistics": [_record(line) for line in self.statistics],
        }

    def values(self) -> Table:
        """Return a row for each value that has a reference, for CSV."""
        lines = [("statistics", line) for line in self.statistics]
        lines += [("time", line) for line in self.time]
        lines += [(f"memory, tier {t + 1}", line) for t in (0, 1) for line in self.memory(t)]
        rows = [
            {
                "table": table,
                "name": line.name,
                "unit": line.unit.symbol,
                "result": result.label,
                "edition": result.edition,
                "value": value,
                "reference": line.values[0],
                "reference_edition": self.results[0].edition,
                "difference": difference,
                "ratio": ratio,
            }
            for table, line in lines
            for result, value, difference, ratio in zip(
                self.results[1:], line.values[1:], line.differences, line.ratios, strict=True
            )
        ]
        return Table(tuple(Column(name) for name in rows[0]), rows)


def _document(document: Any) -> dict[str, str]:
    return {"role": document.role, "name": document.name, "sha256": document.digest}


def _record(line: Line) -> dict[str, Any]:
    return {
        "name": line.name,
        "unit": line.unit.symbol,
        "help": line.help,
        "values": list(line.values),
        "differences": line.differences,
        "ratios": line.ratios,
    }


def _ranked(lines: Iterator[Line]) -> list[Line]:
    """Leave out what is nothing everywhere, and sort by the largest difference."""
    return sorted((line for line in lines if any(line.values)), key=lambda line: -line.largest)
