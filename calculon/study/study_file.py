"""Study files: the searches to run, and the final summary.

A list means *each of these*, values on one line belong together, and everything else is combined with everything.
:meth:`Study.read` reports all problems of a file at once; :mod:`calculon.study.points` creates the searches.
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

MAX_SEARCHES = 100_000
"""Largest number of searches of a study: all of them are planned before the first one runs, in a few seconds."""

MAX_HINTS = 20
"""Largest number of unknown fields for which the nearest known spelling is searched."""

_TABLES = (".csv", ".parquet")

SPECS = {f"{kind}s": kind for kind in ("model", "system", *INLINE)}
"""Sections that list specs, with the kind of each section."""

SECTIONS = ("about", *SPECS, "vary", "quantities", "summary")
"""Fields of a study file other than settings."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Points to combine with everything else; a point sets values that belong together.

    `places` contains the position of each value in the file by name, for each point.
    """

    name: str
    points: tuple[Point, ...]
    places: tuple[Mapping[str, str], ...]

    @classmethod
    def of(cls, name: str, placed: Iterable[tuple[Point, Mapping[str, str]]]) -> "Axis":
        """Return an axis from points and the positions of their values."""
        points, places = zip(*placed, strict=True) if (placed := tuple(placed)) else ((), ())
        return cls(name, points, places)

    @property
    def names(self) -> tuple[str, ...]:
        """Names whose values the points set."""
        return tuple(dict.fromkeys(name for point in self.points for name in point))


@dataclass(frozen=True, slots=True)
class Summary:
    """Final table: a line per combination of `rows`, and a group of figures per value of `columns`."""

    rows: tuple[str, ...]
    columns: str | None
    best: Mapping[str, tuple[Expression, str]]


@dataclass(frozen=True, slots=True)
class Study:
    """Content of a study file, with each value checked by itself.

    Attributes:
        file: Path of the file.
        axes: Values that vary; the first axis varies slowest.
        fixed: Settings of all searches.
        quantities: User-defined numbers and formulas.
        summary: Final table, if the file requests one.
        serves: True for a study of deployments, False for a study of training executions.
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
            SpecError: With all problems of the file.
        """
        if document_suffix(path) in _TABLES:
            raise SpecError(path, Problem("", "a study: YAML or JSON", "a table, by its name"))
        return cls.decode(read_document(path), path)

    @classmethod
    def decode(cls, raw: object, file: str) -> "Study":
        """Create a study from a document; errors as in :meth:`read`."""
        check_kind("study", raw, file)
        if not isinstance(raw, Mapping):
            raise SpecError(file, Problem("", "an object with models and systems", shown(raw)))
        reader = _Reader()
        study = reader.study(raw, file)
        if reader.problems:
            raise SpecError(file, reader.problems)
        return study

    def under(self, setting: str, values: Sequence[str]) -> "Study":
        """Return the study with other values of a setting, each combined with all searches."""
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
        """Names of all values of a search, in the order of the file."""
        varied = (name for axis in self.axes for name in axis.names)
        return tuple(dict.fromkeys((*varied, *self.fixed, *self.quantities)))


def _by_path(kind: str, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of ``campaigns``, ``deployments`` or ``workloads`` with its stated fields by path.

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
        """Add a problem."""
        self.problems.append(Problem(place, expected, found, hint))

    def study(self, document: Mapping[Any, Any], file: str) -> Study:
        """Read the complete document."""
        raw = self.plain(document, "")
        known = (*SECTIONS, *SETTINGS)
        for key in raw:
            if key not in known:
                few = len(self.problems) < MAX_HINTS  # the search for near names is slow
                hint = (nearest(key, known) or "known fields: " + ", ".join(known)) if few else ""
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
        """Check that a study of deployments has workloads, and no settings of searches for executions."""
        if not any(kind_of(n) == "workload" or n == "workload" for n in study.names):
            wanted = "a list of workloads: catalog names, files, or lines such as {prompt: 2000, output: 500}"
            self.wrong("workloads", wanted, "nothing (the field is missing)")
        for name in study.names:
            if name in SETTINGS or name == "campaign" or kind_of(name) == "campaign":
                hint = "list deployments instead: deployments: [8, {num_procs: 8}]"
                self.wrong(
                    name, "no setting of a search, in a study of deployments", "a value", hint
                )
            elif name in study.quantities and name in SERVING_FIGURES:
                self.wrong(
                    f"quantities.{name}", "a name that is not taken", f"{name!r}, which is a result"
                )

    def plain(self, value: Any, path: str) -> Any:
        """Return a value as JSON data; report types that JSON lacks, because YAML has dates, sets and bytes."""
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
        """Read specs of a kind: names, or lines that begin with a name or state fields."""
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
        """Report user-defined names that are probably misspelled fields."""
        fields = INLINE[kind]
        for i, row in enumerate(rows):
            for name in row if isinstance(row, Mapping) else ():
                if kind_of(name) == "quantity" and (hint := nearest(name, fields)):
                    wanted = f"a field of a {kind}, or a new name that is unlike any"
                    self.wrong(f"{section}[{i}].{name}", wanted, shown(name), hint)

    def varied(self, raw: object) -> Iterator[Axis]:
        """Read the axes under ``vary``: lists of values, or lists of lines of values that belong together."""
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
        """Check the values of lines, and yield each point with the positions of its values.

        A list in a line expands to a point for each of its values.
        """
        lines = [row for row in rows if isinstance(row, Mapping)]
        # A required setting belongs on all lines or on none: else it would be missing in some searches.
        needed = [name for name in REQUIRED if any(name in line for line in lines)]
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                continue
            # The position of a single value is its place in the list: its name would repeat the section.
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
            # Lists multiply: count the combinations before they fill the memory.
            count = math.prod(map(len, lists))
            if count > MAX_SEARCHES:
                found = f"{count:,} combinations"
                self.wrong(where, f"lists of at most {MAX_SEARCHES:,} combinations", found)
                continue
            yield from ((dict(pairs), places) for pairs in product(*lists))

    def quantities(self, raw: object) -> dict[str, float | Expression]:
        """Read user-defined numbers and formulas."""
        if not isinstance(raw, Mapping):
            self.wrong("quantities", "an object with a number or a formula by name", shown(raw))
            return {}
        read: dict[str, float | Expression] = {}
        for name, value in raw.items():
            place = Place(f"quantities.{name}", self.problems)
            if kind_of(name) != "quantity":
                place.wrong("a name that is not taken", f"{shown(name)}, which has another meaning")
            elif isinstance(value, str):
                read[name] = formula(place, value)
            else:
                read[name] = check_quantity(place, name, value)
        return read

    def once(self, study: Study) -> None:
        """Check that every name has values in one position only."""
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
        """Report a missing required setting, and suggest a name that may be a misspelling of it."""
        hint = nearest(name, [own for own in study.names if own != name])
        hint = hint.replace("did you mean", "is it spelled").replace("?", " here?") if hint else ""
        default = f"add {name} at the top, or to the lines of models or systems"
        self.wrong(name, SETTINGS[name].wanted, "nothing (the field is missing)", hint or default)

    def summary(self, raw: object) -> Summary:
        """Read the final summary; its names are checked when the searches are known."""
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
        """Read a figure of the summary: ``FORMULA[:max|min]``."""
        place = Place(f"summary.best.{title}", self.problems)
        body, colon, sense = text.rpartition(":")
        if colon and sense.strip() not in ("max", "min"):
            place.wrong("max or min after the colon", repr(sense))
        return formula(place, body if colon else text), sense.strip() if colon else "max"


def spec_path(file: str, source: str) -> str:
    """Return the path of a spec in a study: relative to the study if that file exists, else unchanged."""
    near = Path(file).parent / source
    return str(near) if "." in source and near.is_file() else source
