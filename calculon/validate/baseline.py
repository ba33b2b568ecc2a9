"""Errors compared with an earlier ``calculon lv --format json``: by study, by class, and the rows that changed most."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import shown
from calculon.declarations.files import read_document
from calculon.validate import error_summary as summary
from calculon.validate.measured_and_predicted import Result

Record = dict[str, Any]
Key = tuple[Any, ...]

MOVED_ROWS = 10
"""Number of rows with the largest changes to list."""

LEAST = 1e-9
"""Percentage points below which an error is unchanged."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Changes since an earlier run; errors in percent of the measured values, changes in percentage points.

    Attributes:
        studies: One record for each quantity of a study: its median absolute error `before` and `now`, and the
            `change`.
        classes: Records for each class of whole steps, and for each of its sources.
        rows: Errors of single rows, largest change first, without unchanged rows.
    """

    studies: list[Record]
    classes: list[Record]
    rows: list[Record]

    def to_dict(self) -> Record:
        """Return the changes as plain data."""
        return {"studies": self.studies, "classes": self.classes, "rows": self.rows}


def moves(results: Sequence[Result], before: Record) -> Moves:
    """Return the changes of results since an earlier run, as :func:`read_baseline` returns it."""
    now = _document(results)
    rows = list(_joined(_rows(before), _rows(now), ("edition", "study", "quantity", "row")))
    # The same error can differ in its last digits between machines.
    moved = [one for one in rows if one["change"] is not None and abs(one["change"]) > LEAST]
    return Moves(
        studies=list(_joined(_studies(before), _studies(now), ("edition", "study", "quantity"))),
        classes=list(_joined(_classes(before), _classes(now), ("edition", "class", "name"))),
        rows=sorted(moved, key=lambda one: -abs(one["change"])),
    )


def _document(results: Sequence[Result]) -> Record:
    """Return the compared parts of the JSON of results, without alternatives, which take long to compute."""
    studies = [
        {
            "name": result.study.name,
            "edition": result.edition,
            "quantities": [
                {
                    "name": one.quantity.name,
                    "median": one.score and one.score.median,
                    "values": summary.row_values(one),
                }
                for one in result.own.comparisons
            ],
        }
        for result in results
    ]
    return {"studies": studies, "classes": summary.classes(results)}


def read_baseline(file: str) -> Record:
    """Return the JSON of an earlier run.

    Raises:
        SpecError: For a file that is not the JSON of ``calculon lv``.
    """
    found: Any = read_document(file)
    hint = "write one with: calculon lv --edition corrected --format json > before.json"
    for part in ("studies", "classes"):
        if not isinstance(found, Mapping) or not isinstance(found.get(part), list):
            problem = Problem(part, "a list, as calculon lv --format json writes it", "none", hint)
            raise SpecError(file, problem)
    readers: tuple[Callable[[Record], Mapping[Key, float | None]], ...]
    readers = (_studies, _classes, _rows)
    # Each part is read once here, so that damage is reported instead of failing in the comparison.
    for reader in readers:
        try:
            values = reader(dict(found)).values()
        except (KeyError, TypeError, AttributeError) as error:
            problem = Problem("", "JSON of calculon lv", f"a part without {error}", hint)
            raise SpecError(file, problem) from None
        for value in values:
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, (int, float))
            ):
                raise SpecError(file, Problem("", "errors as numbers", shown(value), hint))
    return dict(found)


def _studies(document: Record) -> dict[Key, float | None]:
    return {
        (one["edition"], one["name"], quantity["name"]): quantity["median"]
        for one in document["studies"]
        for quantity in one["quantities"]
    }


def _classes(document: Record) -> dict[Key, float | None]:
    return {
        (one["edition"], one["class"], one["name"]): one["absolute"] for one in document["classes"]
    }


def _rows(document: Record) -> dict[Key, float | None]:
    """Return the error of each compared value; rows with equal names are numbered."""
    result: dict[Key, float | None] = {}
    seen: Counter[Key] = Counter()
    for one in document["studies"]:
        for quantity in one["quantities"]:
            for value in quantity["values"]:
                key = (one["edition"], one["name"], quantity["name"], value["row"])
                # Labels may repeat within a study; then the order of rows in the file distinguishes them.
                seen[key] += 1
                result[(*key, seen[key])] = value["error"]
    return result


def _joined(
    before: Mapping[Key, float | None], now: Mapping[Key, float | None], names: Sequence[str]
) -> Iterator[Record]:
    """Yield current values with their previous values; None for new ones."""
    for key, value in now.items():
        old = before.get(key)
        change = None if old is None or value is None else value - old
        about = dict(zip(names, key, strict=False))
        yield {**about, "before": old, "now": value, "change": change}


def classes_above(results: Sequence[Result], limit: float, moves: Moves | None = None) -> list[str]:
    """Return a sentence for each class whose median absolute error exceeds a limit, or rose by more than the limit.

    Args:
        results: The results.
        limit: Limit in percent, or in percentage points if there are changes.
        moves: Changes since an earlier run, if any.

    Raises:
        SpecError: If no class can be compared with the limit.
    """
    rows = summary.classes(results) if moves is None else moves.classes
    name, words = ("absolute", "is") if moves is None else ("change", "rose by")
    judged = [one for one in rows if not one["name"] and one[name] is not None]
    if not judged:
        wanted = "whole steps of a class" + ("" if moves is None else " that the baseline has")
        raise SpecError("validation", Problem("--fail-above", wanted, "none"))
    unit = "%" if moves is None else "points"
    return [
        f"{one['class']}: the median absolute error {words} {one[name]:.2f} {unit}, the limit is {limit:g}"
        for one in judged
        if one[name] > limit
    ]
