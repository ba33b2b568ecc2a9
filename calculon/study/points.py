"""Searches of a study: every combination of its values, checked before any search runs."""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.campaign.read import read_campaign
from calculon.campaign.record import Campaign
from calculon.declarations import catalog
from calculon.declarations.decode import decode
from calculon.declarations.expression import Expression
from calculon.declarations.fields import LARGEST_INTEGER, shown
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.override import override
from calculon.hardware.system import System
from calculon.search.override_checks import warn_of_idle_values
from calculon.search.request import default_preset, needed_edition, one_stretch
from calculon.search.task import Search, program
from calculon.study.study_fields import FUSED, SETTINGS, Point, inside, kind_of
from calculon.study.study_file import MAX_SEARCHES, Study, spec_path

MAX_SPECS = 4_000
"""Largest number of different models and systems of a study; each is checked before the first search runs."""


@dataclass(frozen=True, slots=True)
class Planned:
    """Search of a study, with the values that define it in the study.

    Attributes:
        search: The search to run.
        values: Settings, overridden values and quantities, in the order of the study.
    """

    search: Search
    values: Point


@dataclass(frozen=True, slots=True)
class Plans:
    """Searches of a study, and a fingerprint of all inputs of their results."""

    searches: tuple[Planned, ...]
    fingerprint: str


def plan(study: Study) -> Plans:
    """Return all searches of a study; processor counts vary fastest.

    Raises:
        SpecError: For unknown models and systems, unknown paths, invalid processor counts, and formulas that cannot be
            computed: all errors that can be found before a search runs.
    """
    check_number(
        study, math.prod(map(_number, (*(axis.points for axis in study.axes), [study.fixed])))
    )
    specs = Specs(study.file)
    # Results of another version of the program must not be resumed from a journal.
    digest = hashlib.sha256(f"{program()} sc23".encode())
    planned: list[Planned] = []
    names = study.names
    for point, places in points(study):
        first = len(planned)
        model, model_digest = specs.get("model", Model, point, places)
        system, system_digest = specs.get("system", System, point, places)
        campaign, campaign_digest = specs.campaign(point, places)
        known = [model_digest, system_digest, *([campaign_digest] if campaign else [])]
        resolved = list(_resolved(study, point, names))
        most = max(values["num_procs"] for values in resolved)
        for values in resolved:
            search = _search(len(planned), model, system, campaign, values, most)
            planned.append(Planned(search, values))
            record = [known, *values.items()]
            digest.update(json.dumps(record, sort_keys=True, default=str).encode())
        check_number(study, len(planned))
        # The others differ only in numbers, which are already checked
        _check(study.file, planned[first])
    warn_of_idle_values(one.search for one in planned)
    return Plans(tuple(planned), digest.hexdigest())


def check_number(study: Study, number: int) -> None:
    """Refuse a study with too many searches."""
    if number > MAX_SEARCHES:
        wanted = f"a study of at most {MAX_SEARCHES:,} searches"
        raise SpecError(study.file, Problem("", wanted, f"{number:,} combinations"))


def _number(points: Iterable[Point]) -> int:
    """Return the number of searches of some points, as far as their processor counts are listed."""
    counts = (point.get("num_procs") for point in points)
    return sum(len(listed) if isinstance(listed, tuple) else 1 for listed in counts)


def points(study: Study) -> Iterator[tuple[Point, dict[str, str]]]:
    """Yield all combinations of points of the axes with the positions of their values; the last axis is fastest."""
    lines = (tuple(zip(axis.points, axis.places, strict=True)) for axis in study.axes)
    for combination in product(*lines):
        point: Point = {}
        places: dict[str, str] = {}
        for part, where in combination:
            point |= part
            places |= where
        yield point | study.fixed, places


def _search(
    number: int, model: Model, system: System, campaign: Campaign | None, values: Point, most: int
) -> Search:
    """Return the search for the values of a point; `most` is the largest processor count of the point."""
    settings = {name: values.get(name, setting.default) for name, setting in SETTINGS.items()}
    runs = campaign is not None
    needed = needed_edition(model, settings["preset"], runs=runs)
    settings["edition"] = settings["edition"] or needed
    settings["campaign"] = campaign
    if settings["preset"] is None and settings["edition"] != PUBLISHED:
        settings["preset"] = default_preset(model, system, most, settings["fix"], settings["add"])
    fused = FUSED.get(settings.pop("fused_activation"))
    return Search(number=number, model=model, system=system, fused=fused, **settings)


def _check(file: str, planned: Planned) -> None:
    """Check the arguments of a search."""
    try:
        planned.search.space()
        planned.search.ranking()
    except SpecError as error:
        problems = (replace(p, field=p.field or error.file) for p in error.problems)
        raise SpecError(file, [_at(planned.values, problem) for problem in problems]) from None


def _at(values: Mapping[str, Any], problem: Problem) -> Problem:
    """Add model and system of the search to a problem."""
    where = ", ".join(f"{values[name]}" for name in ("model", "system") if name in values)
    return replace(problem, field=f"{problem.field} (of {where})")


class Specs:
    """Models, systems and other specs of a study, each read and decoded once."""

    def __init__(self, file: str):
        self._file = file
        self._raw: dict[tuple[str, str], tuple[str, object]] = {}
        self._made: dict[str, tuple[Any, str]] = {}

    def get(self, kind: str, cls: type, point: Point, places: Mapping[str, str]) -> tuple[Any, str]:
        """Return the model or system of a point with the point's changes, and a digest of its contents.

        Problems with such a change refer to its position in the study.
        """
        changes = {name: value for name, value in point.items() if kind_of(name) == kind}
        source = point[kind]
        key = json.dumps([kind, source, changes], sort_keys=True)
        if key not in self._made:
            if len(self._made) == MAX_SPECS:
                wanted = f"at most {MAX_SPECS:,} different models and systems"
                raise SpecError(self._file, Problem("", wanted, "more", "make it several studies"))
            if (kind, source) not in self._raw:
                self._raw[kind, source] = self._load(kind, source, places[kind])
            name, raw = self._raw[kind, source]
            try:
                changed = override(raw, changes, source) if changes else raw
                made: Any = decode(cls, changed, source, name=name)
            except SpecError as error:
                if not changes:
                    raise
                # Errors of the unchanged spec refer to its own file
                decode(cls, raw, source, name=name)
                problems = [_in_study(problem, changes, places, kind) for problem in error.problems]
                raise SpecError(self._file, problems) from None
            self._made[key] = made, hashlib.sha256(_json(changed)).hexdigest()
        return self._made[key]

    def campaign(self, point: Point, places: Mapping[str, str]) -> tuple[Campaign | None, str]:
        """Return the campaign of a point, or None, and a digest of its contents."""
        stated, source = inside("campaign", point), point.get("campaign")
        if source is None and not stated:
            return None, ""
        key = json.dumps(["campaign", source, stated], sort_keys=True)
        if key not in self._made:
            name, raw = self.document("campaign", point, places)
            with self.placed("campaign", point, places):
                made = replace(one_stretch(read_campaign(raw, stated)), name=name)
            self._made[key] = made, hashlib.sha256(_json(dict(made.document))).hexdigest()
        return self._made[key]

    def document(
        self, kind: str, point: Point, places: Mapping[str, str]
    ) -> tuple[str, Mapping[str, Any]]:
        """Return name and document of a spec whose fields a point may state; empty if the point names none."""
        if (source := point.get(kind)) is None:
            return kind, {}
        if (kind, source) not in self._raw:
            self._raw[kind, source] = self._load(kind, source, places[kind])
        name, raw = self._raw[kind, source]
        if not isinstance(raw, Mapping):
            raise SpecError(source, Problem("", "an object with named fields", shown(raw)))
        return name, raw

    @contextlib.contextmanager
    def placed(self, kind: str, point: Point, places: Mapping[str, str]) -> Iterator[None]:
        """Add the position in the study to problems of a spec."""
        try:
            yield
        except SpecError as error:
            place = places.get(kind, next((f"{kind}.{path}" for path in inside(kind, point)), kind))
            problems = [
                replace(p, field=f"{place}: {p.field}".removesuffix(": ")) for p in error.problems
            ]
            raise SpecError(self._file, problems) from None

    def _load(self, kind: str, source: str, place: str) -> tuple[str, object]:
        """Read a model or system; an unknown name is reported with its position in the study."""
        path = spec_path(self._file, source)
        try:
            catalog.find(kind, path)
        except SpecError as error:
            line = place.removesuffix(f".{kind}")
            problems = [replace(p, field=f"{line}: {source}") for p in error.problems]
            raise SpecError(self._file, problems) from None
        return catalog.load(kind, path)


def _in_study(
    problem: Problem, changes: Mapping[str, Any], places: Mapping[str, str], kind: str
) -> Problem:
    """Return a problem of a changed spec with its position in the study.

    This is the position of the change that contains the field or is inside it; else the line of the spec.
    """
    found = problem.field
    # Longer paths first: the most specific change is the cause.
    for path in sorted(changes, key=len, reverse=True):
        inside = found.removeprefix(path)
        if inside != found and inside[:1] in ("", ".", "["):
            return replace(problem, field=f"{places[path]}{inside}")
        if found and path.removeprefix(found)[:1] in (".", "["):
            return replace(problem, field=places[path])
    line = places[kind].removesuffix(f".{kind}")
    return replace(problem, field=f"{line}: {found}".removesuffix(": "))


def _json(value: object) -> bytes:
    """Return a value as canonical JSON."""
    # YAML keys may be numbers, which cannot be sorted with text
    plain = json.loads(json.dumps(value, default=str))
    return json.dumps(plain, sort_keys=True).encode()


def _resolved(study: Study, point: Point, names: Sequence[str]) -> Iterator[Point]:
    """Yield a point with computed formulas, once for each processor count."""
    counts = point["num_procs"]
    if isinstance(counts, dict):
        counts = _derived(Scope(study, point), counts)
    for count in counts:
        scope = Scope(study, point | {"num_procs": count})
        values = {n: scope[n] for n in names if n in point or n in study.quantities}
        values["max_batch_size"] = scope.integer("max_batch_size", values["max_batch_size"])
        yield values


def _derived(scope: "Scope", rule: Mapping[str, Expression]) -> tuple[int, ...]:
    """Return the largest multiples of a number within bounds, in ascending order."""

    def bound(name: str, default: float) -> float:
        return float(scope.compute(rule[name], f"num_procs.{name}")) if name in rule else default

    step = bound("multiples_of", 1)
    least, most = bound("at_least", 1), bound("at_most", math.inf)
    number = bound("largest", 1)
    for name, value in (("multiples_of", step), ("largest", number)):
        if not (value >= 1 and float(value).is_integer()):
            wanted = "a whole number of at least 1"
            raise scope.problem(f"num_procs.{name}", wanted, shown(value))
    # With `not`, because comparisons with NaN are false: it is refused, too.
    if not most <= LARGEST_INTEGER:
        raise scope.problem("num_procs.at_most", f"at most {LARGEST_INTEGER}", shown(most))
    largest = int(most // step)
    smallest = max(math.ceil(max(least, 1) / step), largest - int(number) + 1)
    check_number(scope.study, largest - smallest + 1)
    if largest < smallest:
        found = f"none: at most {most:g} are allowed"
        raise scope.problem(
            "num_procs", f"multiples of {step:g}, at least {max(least, 1):g}", found
        )
    return tuple(int(step) * i for i in range(smallest, largest + 1))


class Scope:
    """Values of one point by name; formulas are computed on access."""

    def __init__(self, study: Study, point: Point):
        self.study, self._point = study, point
        self._pending: list[str] = []

    def __getitem__(self, name: str) -> Any:
        """Return a value.

        Raises:
            SpecError: For an unknown name, one that the point does not have, or one that depends on itself.
        """
        value = self._point.get(name, self.study.quantities.get(name))
        if value is None and name in SETTINGS:
            value = SETTINGS[name].default
        if value is None:
            known = [n for n in self.study.names if n != name]
            hint = nearest(name, known) or "known names: " + ", ".join(known)
            raise self.problem(self._place, "a value of the study", repr(name), hint)
        if isinstance(value, dict) and name == "num_procs":
            found = "num_procs, which is derived here"
            raise self.problem(self._place, "values that do not depend on num_procs", found)
        return self.compute(value, name) if isinstance(value, Expression) else value

    @property
    def _place(self) -> str:
        return self._pending[-1] if self._pending else ""

    def compute(self, formula: Expression, name: str) -> Any:
        """Return the value of the formula with a name."""
        if name in self._pending:  # a formula that is being computed needs itself
            chain = " -> ".join([*self._pending[self._pending.index(name) :], name])
            raise self.problem(name, "a formula that does not need itself", chain)
        self._pending.append(name)
        try:
            value = formula.value(self._number)
            value = value.item() if hasattr(value, "item") else value
            finite = isinstance(value, (int, float)) and math.isfinite(value)
        except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, SpecError):
                raise
            raise self.problem(name, f"a number from {formula.text!r}", str(error)) from None
        finally:
            self._pending.pop()
        if not finite:
            raise self.problem(name, f"a finite number from {formula.text!r}", str(value))
        return value

    def integer(self, name: str, value: Any) -> int:
        """Return a value as an integer; raise an error unless it is a whole number of at least 1."""
        if not (1 <= value <= LARGEST_INTEGER and float(value).is_integer()):
            raise self.problem(name, SETTINGS[name].wanted, shown(value), "use floor(...)")
        return int(value)

    def _number(self, name: str) -> Any:
        value = self[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.problem(self._place, f"a number for {name}", shown(value))
        return value

    def problem(self, place: str, wanted: str, found: str, hint: str = "") -> SpecError:
        """Return an error that names the search of the study."""
        return SpecError(self.study.file, _at(self._point, Problem(place, wanted, found, hint)))
