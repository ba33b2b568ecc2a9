"""The names that a study file gives values to: settings of a search, paths into specs, quantities of the user's own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from calculon.errors import Problem, SpecError, nearest
from calculon.expression import WANTED, Expression, ExpressionError
from calculon.hardware.system import System
from calculon.plan.plan import NAMES
from calculon.records import columns
from calculon.search.counts import parse_counts
from calculon.search.objective import Objective
from calculon.search.restrict import checked
from calculon.search.where import Condition
from calculon.spec.execution import DATATYPE_BYTES, EDITION_NAMES
from calculon.spec.fields import Declaration, shown, spec_fields
from calculon.spec.model import Model
from calculon.statistics import CorrectedStats

Point = dict[str, Any]
"""Values by name."""

FUSED = {"true": (True,), "false": (False,), "both": (True, False)}
"""Candidates of fused activation within one search."""

_COUNT = Declaration("", at_least=1)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a search: what it takes, and what it is when the study does not say; None is required or unset."""

    wanted: str
    default: Any = None


SETTINGS = {
    "num_procs": Setting(
        "processors: a number, a list, a range such as 512:4096:256 or 8:4096:x2, or "
        "{largest: N, multiples_of: N, at_most: FORMULA}"
    ),
    "max_batch_size": Setting("a whole number of sequences of at least 1, or a formula"),
    "datatype": Setting("one of " + ", ".join(DATATYPE_BYTES), "float16"),
    "fused_activation": Setting("true, false or both", "true"),
    "mbs_break": Setting("true or false", False),
    "objective": Setting("a statistic, also with :max or :min", "sample_rate"),
    "where": Setting("a condition such as 'total_time < 60'"),
    "fix": Setting("an object with values by execution field"),
    "add": Setting("an object with values by execution field"),
    "top": Setting("a whole number of at least 1", 1),
    "edition": Setting("one of " + ", ".join(EDITION_NAMES)),
}
"""Every setting of a search."""

DERIVED = ("largest", "multiples_of", "at_most", "at_least")
"""How processor counts are derived: the so many largest multiples within bounds."""

_MODEL = tuple(field.key for field in spec_fields(Model))
_SYSTEM = tuple(field.key for field in spec_fields(System))
_RESULTS = (*NAMES, *(column.name for column in columns(CorrectedStats)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands, and where its problems go."""

    path: str
    problems: list[Problem]

    def wrong(self, expected: str, found: str, hint: str = "") -> None:
        """Note a problem with the value here."""
        self.problems.append(Problem(self.path, expected, found, hint))


def kind_of(name: str) -> str:
    """Say what a name gives a value to.

    Returns
    -------
    str
        ``source`` (model or system), ``setting``, ``model`` or ``system`` (a path into a spec), ``quantity``, or
        nothing for a name that cannot be given.

    Examples
    --------
    >>> [kind_of(name) for name in ("mem1.GiB", "seq_size", "top", "price", "sample_rate", "a-b")]
    ['system', 'model', 'setting', 'quantity', '', '']
    """
    if name in ("model", "system"):
        return "source"
    if name in SETTINGS:
        return "setting"
    first = re.split(r"[.\[]", name, maxsplit=1)[0]
    if first in _MODEL:
        return "model"
    if first in _SYSTEM:
        return "system"
    return "quantity" if name.isidentifier() and name not in _RESULTS else ""


def check_value(place: Place, name: str, value: Any) -> Any:
    """Return a value as its name reads it, or note what is wrong."""
    match kind_of(name):
        case "source":
            if not isinstance(value, str) or not value:
                place.wrong(f"the name or file of a {name}", shown(value))
        case "setting":
            return _setting(place, name, value)
        case "quantity":
            return check_quantity(place, name, value)
        case "":
            if name in _RESULTS:
                place.wrong("a name of your own", f"{name!r}, which is a result")
                return value
            known = (*SETTINGS, *_MODEL, *_SYSTEM)
            first = re.split(r"[.\[]", name, maxsplit=1)[0]
            hint = nearest(first, known) or "paths start with " + ", ".join(_SYSTEM)
            wanted = "a setting, a path into a system or model, or a name of your own"
            place.wrong(wanted, repr(name), hint)
    return value


def check_quantity(place: Place, name: str, value: Any) -> Any:
    """Return a quantity: a number, a switch or text under a name that is no misspelled setting."""
    alike = next((known for known in SETTINGS if _alike(name, known)), "")
    if alike:
        wanted = "a setting, or a name of your own that is unlike any"
        place.wrong(wanted, repr(name), f"did you mean '{alike}'?")
    elif not isinstance(value, (str, bool)):
        kind = int if isinstance(value, int) else float
        if problem := Declaration("").problem(float, value, place.path):
            place.problems.append(problem)
            return 0
        return kind(value)
    return value


def _alike(name: str, known: str) -> bool:
    """Say whether a name differs from a known one only as a slip of the pen does."""
    a, b = (text.replace("_", "").lower() for text in (name, known))
    return a == b or (len(b) > 4 and SequenceMatcher(None, a, b).ratio() > 0.85)


def _setting(place: Place, name: str, value: Any) -> Any:
    """Return the value of a setting."""
    match name:
        case "num_procs":
            return _counts(place, value)
        case "max_batch_size" if isinstance(value, str):
            return _formula(place, value)
        case "objective" | "where" if isinstance(value, str):
            return _parsed(place, name, value)
        case "fix" | "add" if isinstance(value, Mapping):
            return _parsed(place, name, value)
        case _:
            return _plain(place, name, value)


def _plain(place: Place, name: str, value: Any) -> Any:
    """Return the value of a setting that is a number, a switch or a word."""
    hint = ""
    match name:
        case "max_batch_size" | "top":
            problem = _COUNT.problem(int, value, place.path)
            good, hint = problem is None, problem.hint if problem else ""
        case "datatype":
            good, hint = value in DATATYPE_BYTES, nearest(str(value), tuple(DATATYPE_BYTES))
        case "edition":
            good, hint = value in EDITION_NAMES, nearest(str(value), EDITION_NAMES)
        case "fused_activation":
            value = shown(value).strip("'")
            good = value in FUSED
        case _:
            good = name == "mbs_break" and isinstance(value, bool)
    if not good:
        place.wrong(SETTINGS[name].wanted, shown(value), hint)
    return int(value) if good and name in ("max_batch_size", "top") else value


def _parsed(place: Place, name: str, value: Any) -> Any:
    """Return a value that another part of the search reads; its problems become problems of this place."""
    try:
        if name == "objective":
            Objective.parse(value)
        elif name == "where":
            Condition.parse(value)
        elif name in ("fix", "add"):
            return checked(name, value)
    except SpecError as error:
        for p in error.problems:
            inner = f"{place.path}: {p.field}" if p.field and name == "where" else place.path
            inner = f"{place.path}.{p.field}" if name in ("fix", "add") else inner
            place.problems.append(Problem(inner, p.expected, p.found, p.hint))
    return value


def _formula(place: Place, text: str) -> Expression:
    try:
        return Expression.parse(text)
    except ExpressionError as error:
        place.wrong(WANTED, error.found)
        return Expression.parse("1")


def _counts(place: Place, value: Any) -> tuple[int, ...] | dict[str, Expression]:
    """Return processor counts, or the formulas that they are derived by."""
    if isinstance(value, Mapping):
        for key in value:
            if key not in DERIVED:
                inner = Place(f"{place.path}.{key}", place.problems)
                inner.wrong("one of " + ", ".join(DERIVED), shown(key), nearest(str(key), DERIVED))
        if "at_most" not in value:
            hint = "such as at_most: budget / price"
            Place(f"{place.path}.at_most", place.problems).wrong("a bound", "nothing", hint)
        return {
            key: _formula(Place(f"{place.path}.{key}", place.problems), str(item))
            for key, item in value.items()
            if key in DERIVED
        }
    items = value if isinstance(value, list) and value else [value]
    counts: dict[int, None] = {}
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (int, str)):
            place.wrong(SETTINGS["num_procs"].wanted, shown(item))
            continue
        try:
            counts.update(dict.fromkeys(parse_counts(str(item), place.path)))
        except SpecError as error:
            place.wrong(error.expected, error.found, error.hint)
    return tuple(counts)
