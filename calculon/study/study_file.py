"""A study file: which searches to run, and the summary at the end.

The file reads as it is meant: a list is *each of these*, values on one line belong together, everything else is
combined with everything. :meth:`Study.read` tells all problems of a file at once;
:mod:`calculon.study.points` makes the searches.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.declarations.catalog import check_kind
from calculon.declarations.expression import Expression
from calculon.declarations.fields import shown
from calculon.declarations.files import document_suffix, read_document
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.study.study_fields import (
    INLINE,
    REQUIRED,
    SERVING,
    SETTINGS,
    WHOLE,
    Place,
    Point,
    check_quantity,
    check_value,
    formula,
    kind_of,
)

MOST_SEARCHES = 100_000
"""Searches that one study may stand for: all of them are planned before the first runs, in a few seconds."""

MOST_HINTS = 20
"""Unknown fields whose nearest known spelling is looked for."""

_TABLES = (".csv", ".parquet")

SPECS = {f"{kind}s": kind for kind in ("model", "system", *INLINE)}
"""Sections that list specs, with the kind of each."""

SECTIONS = ("about", *SPECS, "vary", "quantities", "summary")
"""Fields of a study file next to the settings."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Points to try, each with everything else; a point sets values that belong together.

    `places` has for each point where its values stand in the file, by name.
    """

    name: str
    points: tuple[Point, ...]
    places: tuple[Mapping[str, str], ...]

    @classmethod
    def of(cls, name: str, placed: Iterable[tuple[Point, Mapping[str, str]]]) -> "Axis":
        """Return an axis of points and the places of their values."""
        points, places = zip(*placed, strict=True) if (placed := tuple(placed)) else ((), ())
        return cls(name, points, places)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the points give values to."""
        return tuple(dict.fromkeys(name for point in self.points for name in point))


@dataclass(frozen=True, slots=True)
class Summary:
    """The table at the end: a line per combination of `rows`, a group of figures per value of `columns`."""

    rows: tuple[str, ...]
    columns: str | None
    best: Mapping[str, tuple[Expression, str]]


@dataclass(frozen=True, slots=True)
class Study:
    """What a study file says, every value checked on its own.

    Attributes:
        file: Path of the file.
        axes: Everything that varies; the first varies slowest.
        fixed: Settings that are the same for every search.
        quantities: Numbers of the user's own, and formulas for them.
        summary: Table at the end, where the file asks for one.
        serves: Whether it asks about deployments of served models, and not for executions.
    """

    file: str
    axes: tuple[Axis, ...]
    fixed: Point
    quantities: Mapping[str, float | Expression]
    summary: Summary | None = None
    about: str = ""
    serves: bool = False

    @classmethod
    def read(cls, path: str) -> "Study":
        """Read a study from a YAML or JSON file.

        Raises:
            SpecError: With everything that is wrong with the file.
        """
        if document_suffix(path) in _TABLES:
            raise SpecError(path, Problem("", "a study: YAML or JSON", "a table, by its name"))
        return cls.decode(read_document(path), path)

    @classmethod
    def decode(cls, raw: object, file: str) -> "Study":
        """Make a study of a document; errors as in :meth:`read`."""
        check_kind("study", raw, file)
        if not isinstance(raw, Mapping):
            raise SpecError(file, Problem("", "an object with models and systems", shown(raw)))
        reader = _Reader()
        study = reader.study(raw, file)
        if reader.problems:
            raise SpecError(file, reader.problems)
        return study

    def under(self, setting: str, values: Sequence[str]) -> "Study":
        """Return the study with other values of a setting than it says, each search with every one of them."""
        without = (
            replace(
                axis,
                points=tuple({k: v for k, v in p.items() if k != setting} for p in axis.points),
            )
            for axis in self.axes
        )
        axes = [axis for axis in without if any(axis.points)]
        axes.append(Axis.of(setting, (({setting: value}, {setting: setting}) for value in values)))
        fixed = {name: value for name, value in self.fixed.items() if name != setting}
        return replace(self, axes=tuple(axes), fixed=fixed)

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that a search of the study has by name, in the order of the file."""
        varied = (name for axis in self.axes for name in axis.names)
        return tuple(dict.fromkeys((*varied, *self.fixed, *self.quantities)))


def _by_path(kind: str, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of ``campaigns``, ``deployments`` or ``workloads`` with the fields that it states by their paths.

    >>> _by_path("campaign", {"campaign": {"tokens": "1T"}, "top": 3})
    {'campaign.tokens': '1T', 'top': 3}
    >>> _by_path("deployment", {"num_procs": 8, "tensor_par": [4, 8]})
    {'deployment.num_procs': 8, 'deployment.tensor_par': [4, 8]}
    """
    inline = line.get(kind)
    stated = inline if isinstance(inline, Mapping) else {}
    rest = {name: value for name, value in line.items() if name != kind or not stated}
    fields = INLINE[kind]
    return {
        **{f"{kind}.{name}": value for name, value in stated.items()},
        **{
            f"{kind}.{name}" if name.partition(".")[0] in fields else name: value
            for name, value in rest.items()
        },
    }


@dataclass
class _Reader:
    """Reads the sections of a study one by one and collects their problems."""

    problems: list[Problem] = field(default_factory=list)

    def wrong(self, place: str, expected: str, found: str, hint: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(place, expected, found, hint))

    def study(self, document: Mapping[Any, Any], file: str) -> Study:
        """Read the whole document."""
        raw = self.plain(document, "")
        known = (*SECTIONS, *SETTINGS)
        for key in raw:
            if key not in known:
                few = len(self.problems) < MOST_HINTS
                hint = (nearest(key, known) or "known are " + ", ".join(known)) if few else ""
                self.wrong(key, "only the known fields", f"the unknown field {shown(key)}", hint)
        serves = any(f"{kind}s" in raw for kind in SERVING)
        needed = ("models", "systems", *(("deployments",) if serves else ()))
        axes = [
            self.entries(section, kind, raw)
            for section, kind in SPECS.items()
            if section in raw or section in needed
        ]
        axes += self.varied(raw.get("vary", {}))
        fixed: Point = {}
        for name in SETTINGS:
            if name not in raw:
                continue
            if isinstance(raw[name], list) and name not in WHOLE:
                if not raw[name]:
                    self.wrong(name, "at least one value", "an empty list")
                axes.append(Axis.of(name, self.points([{name: v} for v in raw[name]], name)))
            else:
                fixed.update(next(self.points([{name: raw[name]}], ""))[0])
        quantities = self.quantities(raw.get("quantities", {}))
        about = raw.get("about", "")
        if not isinstance(about, str):
            self.wrong("about", "text", shown(about))
        summary = self.summary(raw["summary"]) if "summary" in raw else None
        study = Study(file, tuple(axes), fixed, quantities, summary, about, serves)
        self.once(study)
        if serves:
            self.serving(study)
        for name in () if serves else REQUIRED:
            if name not in study.names:
                self.missing(name, study)
        return study

    def serving(self, study: Study) -> None:
        """Check that a study of deployments has workloads, and nothing of searches for executions."""
        if not any(kind_of(n) == "workload" or n == "workload" for n in study.names):
            wanted = "a list of workloads: catalog names, files, or lines such as {prompt: 2000, output: 500}"
            self.wrong("workloads", wanted, "nothing (the field is missing)")
        for name in study.names:
            if name in SETTINGS or name == "campaign" or kind_of(name) == "campaign":
                hint = "deployments are lists of their own: deployments: [8, {num_procs: 8}]"
                self.wrong(
                    name, "no setting of a search, in a study of deployments", "a value", hint
                )
            elif name in study.quantities and name in SERVING_FIGURES:
                self.wrong(
                    f"quantities.{name}", "a name of your own", f"{name!r}, which is a result"
                )

    def plain(self, value: Any, path: str) -> Any:
        """Return a value as JSON has it, and note what JSON has not: YAML knows dates, sets and bytes."""
        if isinstance(value, Mapping):
            inside = f"{path}." if path else ""
            return {str(key): self.plain(one, f"{inside}{key}") for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(one, f"{path}[{i}]") for i, one in enumerate(value)]
        if value is not None and not isinstance(value, (str, bool, int, float)):
            found = f"{shown(value)}, which is a {type(value).__name__}"
            self.wrong(path, "a number, text, true, false, null, a list or an object", found)
            return None
        return value

    def entries(self, section: str, kind: str, raw: Mapping[str, Any]) -> Axis:
        """Read specs of a kind: names, or lines that begin with one or state fields of it."""
        value = raw.get(section)
        lines = [value] if isinstance(value, (str, int, Mapping)) else value
        if not isinstance(lines, list) or not lines:
            wanted = f"a list of {section}: catalog names, files, or lines such as "
            wanted += f"{{{kind}: NAME, ...}}"
            found = "nothing (the field is missing)" if value is None else shown(value)
            self.wrong(section, wanted, found)
            return Axis(section, (), ())
        bare = (str, int) if kind == "deployment" else str
        rows = [{kind: line} if isinstance(line, bare) else line for line in lines]
        stated = f"an object with {kind}"
        if kind in INLINE:
            rows = [_by_path(kind, row) if isinstance(row, Mapping) else row for row in rows]
            stated += f", or with fields of one ({INLINE[kind][0]})"
        if kind in SERVING:
            self.own_names(section, kind, rows)
        for i, row in enumerate(rows):
            said = isinstance(row, Mapping) and any(kind_of(n) == kind in INLINE for n in row)
            if not said and (not isinstance(row, Mapping) or kind not in row):
                self.wrong(f"{section}[{i}]", f"a name, or {stated}", shown(lines[i]))
        return Axis.of(section, self.points(rows, section))

    def own_names(self, section: str, kind: str, rows: Sequence[object]) -> None:
        """Note names of the user's own that are rather misspelled fields."""
        fields = INLINE[kind]
        for i, row in enumerate(rows):
            for name in row if isinstance(row, Mapping) else ():
                if kind_of(name) == "quantity" and (hint := nearest(name, fields)):
                    wanted = f"a field of a {kind}, or a name of your own that is unlike any"
                    self.wrong(f"{section}[{i}].{name}", wanted, shown(name), hint)

    def varied(self, raw: object) -> Iterator[Axis]:
        """Read the axes under ``vary``: lists of values, or of lines of values that belong together."""
        if not isinstance(raw, Mapping):
            self.wrong("vary", "an object with a list for each thing that varies", shown(raw))
            return
        for name, values in raw.items():
            place = f"vary.{name}"
            if not isinstance(values, list) or not values:
                self.wrong(place, "a list of values, or of lines {NAME: VALUE, ...}", shown(values))
                continue
            rows = [value if isinstance(value, Mapping) else {name: value} for value in values]
            yield Axis.of(name, self.points(rows, place))

    def points(
        self, rows: Sequence[object], section: str
    ) -> Iterator[tuple[Point, Mapping[str, str]]]:
        """Check the values of some lines, and yield each with the places of its values.

        A list in a line stands for a line with each of its values.
        """
        lines = [row for row in rows if isinstance(row, Mapping)]
        needed = [name for name in REQUIRED if any(name in line for line in lines)]
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                continue
            single = len(row) == 1 and section not in SPECS
            where = f"{section}[{i}]" if section else ""
            for name in needed:
                if name not in row:
                    hint = "add it: other lines have it"
                    found = "nothing (the field is missing)"
                    self.wrong(f"{where}.{name}", SETTINGS[name].wanted, found, hint)
            lists, places = [], {}
            for name, value in row.items():
                each = value if isinstance(value, list) and name not in WHOLE else [value]
                at = where if single and where else f"{where}.{name}".lstrip(".")
                places[name] = at
                if not each:
                    self.wrong(at, "at least one value", "an empty list")
                checked = (check_value(Place(at, self.problems), name, one) for one in each)
                lists.append([(name, one) for one in checked])
            count = math.prod(map(len, lists))
            if count > MOST_SEARCHES:
                found = f"{count:,} of them"
                self.wrong(where, f"lists of at most {MOST_SEARCHES:,} combinations", found)
                continue
            yield from ((dict(pairs), places) for pairs in product(*lists))

    def quantities(self, raw: object) -> dict[str, float | Expression]:
        """Read numbers and formulas of the user's own."""
        if not isinstance(raw, Mapping):
            self.wrong("quantities", "an object with a number or a formula by name", shown(raw))
            return {}
        read: dict[str, float | Expression] = {}
        for name, value in raw.items():
            place = Place(f"quantities.{name}", self.problems)
            if kind_of(name) != "quantity":
                place.wrong("a name of your own", f"{shown(name)}, which means something else")
            elif isinstance(value, str):
                read[name] = formula(place, value)
            else:
                read[name] = check_quantity(place, name, value)
        return read

    def once(self, study: Study) -> None:
        """Check that every name is given in one place."""
        places: dict[str, str] = {}
        given = [(axis.names, axis.name) for axis in study.axes]
        given += [(tuple(study.fixed), "the top"), (tuple(study.quantities), "quantities")]
        for names, place in given:
            for name in names:
                if name in places:
                    found = f"values in {places[name]} and in {place}"
                    self.wrong(name, "values in one place", found)
                places[name] = place

    def missing(self, name: str, study: Study) -> None:
        """Note a required setting that is nowhere; name what may be a misspelling of it."""
        hint = nearest(name, [own for own in study.names if own != name])
        hint = hint.replace("did you mean", "is it spelled").replace("?", " here?") if hint else ""
        default = f"add {name} at the top, or to the lines of models or systems"
        self.wrong(name, SETTINGS[name].wanted, "nothing (the field is missing)", hint or default)

    def summary(self, raw: object) -> Summary:
        """Read the summary at the end; its names are checked when the searches are known."""
        if not isinstance(raw, Mapping):
            self.wrong("summary", "an object with rows and best", shown(raw))
            return Summary((), None, {})
        known = ("rows", "columns", "best")
        for key in raw:
            if key not in known:
                wanted = "one of rows, columns, best"
                self.wrong(f"summary.{key}", wanted, shown(key), nearest(key, known))
        rows, best, columns = raw.get("rows"), raw.get("best"), raw.get("columns")
        if not isinstance(rows, list) or not all(isinstance(name, str) for name in rows):
            self.wrong("summary.rows", "a list of names", shown(rows))
            rows = []
        if columns is not None and not isinstance(columns, str):
            self.wrong("summary.columns", "a name", shown(columns))
        if not isinstance(best, Mapping) or not best:
            wanted = "an object with a title and a statistic or formula for each figure"
            self.wrong("summary.best", wanted, shown(best))
            best = {}
        figures = {title: self.figure(title, str(text)) for title, text in best.items()}
        return Summary(tuple(rows), columns, figures)

    def figure(self, title: str, text: str) -> tuple[Expression, str]:
        """Read one figure of the summary: ``FORMULA[:max|min]``."""
        place = Place(f"summary.best.{title}", self.problems)
        body, colon, sense = text.rpartition(":")
        if colon and sense.strip() not in ("max", "min"):
            place.wrong("max or min after the colon", repr(sense))
        return formula(place, body if colon else text), sense.strip() if colon else "max"


def beside(file: str, source: str) -> str:
    """Return the path of a spec that a study names: beside the study where it is there, else as it stands."""
    near = Path(file).parent / source
    return str(near) if "." in source and near.is_file() else source
