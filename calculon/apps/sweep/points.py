"""From what a study says to the searches it stands for: every combination, checked before any of them runs."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from calculon.apps.sweep.study_fields import FUSED, SETTINGS, Point, kind_of
from calculon.apps.sweep.study_file import Study, beside
from calculon.apps.sweep.task import Search
from calculon.errors import Problem, SpecError, nearest
from calculon.expression import Expression
from calculon.hardware.system import System
from calculon.search.request import needed_edition
from calculon.spec import catalog
from calculon.spec.decode import decode
from calculon.spec.fields import LARGEST_INTEGER, shown
from calculon.spec.model import Model
from calculon.spec.override import override
from calculon.version import __version__

MOST_SEARCHES = 1_000_000
"""Searches that one study may stand for."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One search of a study, and everything that the study calls by name in it.

    Attributes
    ----------
    search : Search
        What to run.
    values : mapping
        Settings, overridden values and quantities, in the order of the study.
    """

    search: Search
    values: Point


@dataclass(frozen=True, slots=True)
class Plans:
    """The searches of a study, and a fingerprint of all that their results depend on."""

    searches: tuple[Planned, ...]
    fingerprint: str


def plan(study: Study) -> Plans:
    """Return every search of a study, the processor counts varying fastest.

    Raises
    ------
    SpecError
        For unknown models and systems, paths that lead nowhere, impossible processor counts, formulas that cannot be
        computed: everything that can be known before a search runs.
    """
    specs = _Specs(study.file)
    digest = hashlib.sha256(f"{__version__} sc23".encode())
    planned: list[Planned] = []
    for point in _points(study):
        model, system = specs.model(point), specs.system(point)
        for values in _resolved(study, point):
            if len(planned) == MOST_SEARCHES:
                found = f"more than {MOST_SEARCHES:,} combinations"
                raise SpecError(study.file, Problem("", "a study of fewer searches", found))
            planned.append(_planned(study.file, len(planned), model, system, values))
            identity = [specs.identity(point), *_plain(values).items()]
            digest.update(json.dumps(identity, sort_keys=True).encode())
    return Plans(tuple(planned), digest.hexdigest())


def _points(study: Study) -> Iterator[Point]:
    """Yield every combination of the points of all axes, the last axis fastest."""
    for combination in product(*(axis.points for axis in study.axes)):
        point: Point = {}
        for part in combination:
            point |= part
        yield point | study.fixed


def _planned(file: str, number: int, model: Model, system: System, values: Point) -> Planned:
    """Return one search, checked."""
    get = {name: values.get(name, setting.default) for name, setting in SETTINGS.items()}
    search = Search(
        number=number,
        model=model,
        system=system,
        num_procs=get["num_procs"],
        max_batch_size=get["max_batch_size"],
        datatype=get["datatype"],
        top=get["top"],
        objective=get["objective"],
        where=get["where"],
        mbs_break=get["mbs_break"],
        fused=FUSED[get["fused_activation"]],
        fix=get["fix"] or {},
        add=get["add"] or {},
        edition=get["edition"] or needed_edition(model),
    )
    try:
        search.space()
        search.ranking()
    except SpecError as error:
        problems = (replace(p, field=p.field or error.file) for p in error.problems)
        raise SpecError(file, [_at(values, problem) for problem in problems]) from None
    return Planned(search, values)


def _at(values: Mapping[str, Any], problem: Problem) -> Problem:
    """Say in which search of the study a problem is."""
    where = ", ".join(f"{values[name]}" for name in ("model", "system") if name in values)
    return replace(problem, field=f"{problem.field} (of {where})")


class _Specs:
    """Models and systems of a study, each read and decoded once."""

    def __init__(self, file: str):
        self._file = file
        self._raw: dict[tuple[str, str], tuple[str, object]] = {}
        self._made: dict[str, tuple[Any, str]] = {}

    def model(self, point: Point) -> Model:
        """Return the model of a point, with the point's values in place."""
        model: Model = self._spec("model", Model, point)[0]
        return model

    def system(self, point: Point) -> System:
        """Return the system of a point, with the point's values in place."""
        system: System = self._spec("system", System, point)[0]
        return system

    def identity(self, point: Point) -> tuple[str, str]:
        """Return what stands for the contents of model and system."""
        return self._spec("model", Model, point)[1], self._spec("system", System, point)[1]

    def _spec(self, kind: str, cls: type, point: Point) -> tuple[Any, str]:
        changes = {name: value for name, value in point.items() if kind_of(name) == kind}
        source = point[kind]
        key = json.dumps([kind, source, changes], sort_keys=True)
        if key not in self._made:
            if (kind, source) not in self._raw:
                self._raw[kind, source] = catalog.load(kind, beside(self._file, source))
            name, raw = self._raw[kind, source]
            changed = override(raw, changes, f"{self._file}: {source}") if changes else raw
            made: Any = decode(cls, changed, source, name=name)
            digest = hashlib.sha256(json.dumps(changed, sort_keys=True, default=str).encode())
            self._made[key] = made, digest.hexdigest()
        return self._made[key]


def _resolved(study: Study, point: Point) -> Iterator[Point]:
    """Yield a point with numbers for its formulas, once for each processor count."""
    counts = point["num_procs"]
    if isinstance(counts, dict):
        counts = _derived(_Scope(study, point), counts)
    for count in counts:
        scope = _Scope(study, point | {"num_procs": count})
        names = [name for name in study.names if name in point or name in study.quantities]
        values = {name: scope[name] for name in names}
        values["max_batch_size"] = scope.whole("max_batch_size", values["max_batch_size"])
        yield values


def _derived(scope: "_Scope", rule: Mapping[str, Expression]) -> tuple[int, ...]:
    """Return the so many largest multiples of a number within bounds, ascending."""

    def bound(name: str, default: float) -> float:
        return float(scope.compute(rule[name], f"num_procs.{name}")) if name in rule else default

    step = bound("multiples_of", 1)
    least, most = bound("at_least", 1), bound("at_most", math.inf)
    number = bound("largest", 1)
    for name, value in (("multiples_of", step), ("largest", number)):
        if not (value >= 1 and float(value).is_integer()):
            wanted = "a whole number of at least 1"
            raise scope.problem(f"num_procs.{name}", wanted, shown(value))
    if not most <= LARGEST_INTEGER:
        raise scope.problem("num_procs.at_most", f"at most {LARGEST_INTEGER}", shown(most))
    largest = int(most // step)
    smallest = max(math.ceil(max(least, 1) / step), largest - int(number) + 1)
    if largest < smallest:
        found = f"none: at most {most:g} are allowed"
        raise scope.problem(
            "num_procs", f"multiples of {step:g}, at least {max(least, 1):g}", found
        )
    return tuple(int(step) * i for i in range(smallest, largest + 1))


class _Scope:
    """The values of one point by name; formulas are computed when they are asked for."""

    def __init__(self, study: Study, point: Point):
        self._study, self._point = study, point
        self._pending: list[str] = []

    def __getitem__(self, name: str) -> Any:
        """Return a value.

        Raises
        ------
        SpecError
            For an unknown name, one that the point does not have, or one that depends on itself.
        """
        value = self._point.get(name, self._study.quantities.get(name))
        if value is None and name in SETTINGS:
            value = SETTINGS[name].default
        if value is None:
            known = [n for n in self._study.names if n != name]
            hint = nearest(name, known) or "known are " + ", ".join(known)
            raise self.problem(self._place, "a value of the study", repr(name), hint)
        if isinstance(value, dict) and name == "num_procs":
            found = "num_procs, which is derived here"
            raise self.problem(self._place, "values that do not depend on num_procs", found)
        return self.compute(value, name) if isinstance(value, Expression) else value

    @property
    def _place(self) -> str:
        return self._pending[-1] if self._pending else ""

    def compute(self, formula: Expression, name: str) -> Any:
        """Return the number of a formula that is called so."""
        if name in self._pending:
            chain = " -> ".join([*self._pending[self._pending.index(name) :], name])
            raise self.problem(name, "a formula that does not need itself", chain)
        self._pending.append(name)
        try:
            value = formula.value(self._number)
        except (ArithmeticError, TypeError) as error:
            raise self.problem(name, f"a number from {formula.text!r}", str(error)) from None
        finally:
            self._pending.pop()
        value = value.item() if hasattr(value, "item") else value
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.problem(name, f"a finite number from {formula.text!r}", str(value))
        return value

    def whole(self, name: str, value: Any) -> int:
        """Return a value that has to be a whole number of at least 1."""
        if not (1 <= value <= LARGEST_INTEGER and float(value).is_integer()):
            raise self.problem(name, SETTINGS[name].wanted, shown(value), "use floor(...)")
        return int(value)

    def _number(self, name: str) -> Any:
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.problem(self._place, f"a number for {name}", shown(value))
        return value

    def problem(self, place: str, wanted: str, found: str, hint: str = "") -> SpecError:
        """Return an error that says in which search of the study it is."""
        return SpecError(self._study.file, _at(self._point, Problem(place, wanted, found, hint)))


def _plain(values: Point) -> dict[str, Any]:
    """Return values as JSON has them."""
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain
