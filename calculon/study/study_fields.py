"""Names in a study file: settings of a search, paths into specs, and user-defined quantities."""

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.campaign.record import Campaign
from calculon.declarations.expression import Expression
from calculon.declarations.fields import Declaration, shown, spec_fields
from calculon.declarations.model import Model
from calculon.declarations.named_values import DATATYPE_BYTES, EDITION_NAMES
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.spellings.processor_counts import processor_counts
from calculon.declarations.statistics import CorrectedStats
from calculon.hardware.system import System
from calculon.plan.plan import NAMES
from calculon.search.conditions import Condition
from calculon.search.objective import Objective
from calculon.search.overrides import checked
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

Point = dict[str, Any]
"""Values by name."""

FUSED = {"true": (True,), "false": (False,), "both": (True, False)}
"""Candidates of fused activation within a search; by default the choice of the edition."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting of a search: type, default (None if unset), limits of plain values, and a description of all values."""

    type: type
    default: Any
    declaration: Declaration
    wanted: str


def _setting(kind: type, default: Any, wanted: str = "", **limits: Any) -> Setting:
    """Declare a setting; `limits` are arguments of :class:`Declaration`."""
    declaration = Declaration("", **limits)
    return Setting(kind, default, declaration, wanted or declaration.wanted(kind))


_COUNTS = (
    "processors: a number, a list, a range such as 512:4096:256 or 8:4096:x2, or "
    "{largest: N, multiples_of: N, at_most: FORMULA}"
)
_BATCH = "a whole number of sequences of at least 1, or a formula"
_BY_FIELD = "an object with values by execution field"

SETTINGS = {
    "num_procs": _setting(int, None, _COUNTS),
    "max_batch_size": _setting(int, None, _BATCH, at_least=1),
    "datatype": _setting(str, "float16", choices=tuple(DATATYPE_BYTES)),
    "fused_activation": _setting(str, None, "true, false or both", choices=tuple(FUSED)),
    "mbs_break": _setting(bool, False),
    "any_batch": _setting(bool, False),
    "objective": _setting(str, "sample_rate", "a statistic, also with :max or :min"),
    "where": _setting(str, None, "a condition such as 'total_time < 60'"),
    "fix": _setting(dict, {}, _BY_FIELD),
    "add": _setting(dict, {}, _BY_FIELD),
    "top": _setting(int, 1, at_least=1),
    "edition": _setting(str, None, choices=EDITION_NAMES),
    "preset": _setting(str, None, "the name of a preset, or a file"),
}
"""All settings of a search."""

REQUIRED = ("num_procs", "max_batch_size")
"""Settings that every study must give to its searches."""

WHOLE = ("num_procs", "fix", "add")
"""Settings whose lists and mappings are a single value."""

DERIVED = ("largest", "multiples_of", "at_most", "at_least")
"""Keys of derived processor counts: the largest multiples within bounds."""

_MODEL = tuple(field.key for field in spec_fields(Model))
_SYSTEM = tuple(field.key for field in spec_fields(System))
_RESULTS = (*NAMES, *(column.name for column in columns(CorrectedStats)), *RUN_FIGURES)

INLINE = {
    kind: tuple(field.key for field in spec_fields(record))
    for kind, record in {
        "campaign": Campaign,
        "deployment": Deployment,
        "workload": Workload,
    }.items()
}
"""Fields that a line of campaigns, deployments or workloads may state.

Elsewhere such a field needs the kind and a dot as a prefix, because other specs may have a field of the same name.
"""

SERVING = ("deployment", "workload")
"""Sections of studies of deployments only."""


def inside(kind: str, point: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a campaign, deployment or workload that a point states, by path.

    >>> inside("workload", {"workload.prompt": 2000, "workload": "chat", "top": 1})
    {'prompt': 2000}
    """
    before = f"{kind}."
    return {
        name.removeprefix(before): value for name, value in point.items() if name.startswith(before)
    }


@dataclass(frozen=True, slots=True)
class Place:
    """Position in a study file, and the list that collects its problems."""

    path: str
    problems: list[Problem]

    def inside(self, name: object) -> "Place":
        """Return the position of a field of this object."""
        return Place(f"{self.path}.{name}".lstrip("."), self.problems)

    def wrong(self, expected: str, found: str, hint: str = "") -> None:
        """Add a problem with the value at this position."""
        self.problems.append(Problem(self.path, expected, found, hint))


def kind_of(name: str) -> str:
    """Return the kind of a name.

    Returns:
        ``source`` (a model, system, campaign, deployment or workload), ``setting``, the kind of a spec (for a path into
        it), ``quantity``, or an empty text for an invalid name.

    Examples:
        >>> [kind_of(name) for name in ("mem1.GiB", "seq_size", "top", "price", "sample_rate", "a-b")]
        ['system', 'model', 'setting', 'quantity', '', '']
    """
    if name in ("model", "system", *INLINE):
        return "source"
    kind, dot, _ = name.partition(".")
    if dot and kind in INLINE:
        return kind
    if name in SETTINGS:
        return "setting"
    first = re.split(r"[.\[]", name, maxsplit=1)[0]
    if first in _MODEL:
        return "model"
    if first in _SYSTEM:
        return "system"
    return "quantity" if name.isidentifier() and name not in _RESULTS else ""


def check_value(place: Place, name: str, value: Any) -> Any:
    """Return a value in the form of its name, or add a problem."""
    match kind_of(name):
        case "source":
            count = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if name == "deployment" and count:
                return value
            if not isinstance(value, str) or not value:
                place.wrong(f"the name or file of a {name}", shown(value))
        case "setting":
            return _check_setting(place, name, value)
        case "quantity":
            return check_quantity(place, name, value)
        case "":
            if name in _RESULTS:
                place.wrong("a name that is not taken", f"{name!r}, which is a result")
                return value
            known = (*SETTINGS, *_MODEL, *_SYSTEM)
            first = re.split(r"[.\[]", name, maxsplit=1)[0]
            hint = nearest(first, known) or "paths start with " + ", ".join(_SYSTEM)
            wanted = "a setting, a path into a system or model, or a new name"
            place.wrong(wanted, repr(name), hint)
    return value


def check_quantity(place: Place, name: str, value: Any) -> Any:
    """Return a quantity: a number, a switch or text, under a name that is not a misspelled setting."""
    if alike := _misspelled(name):
        wanted = "a setting, or a new name that is unlike any"
        place.wrong(wanted, repr(name), f"did you mean '{alike}'?")
    elif not isinstance(value, (str, bool)):
        if problem := Declaration("").problem(float, value, place.path):
            place.problems.append(problem)
            return 0
        return int(value) if isinstance(value, int) else float(value)
    return value


def formula(place: Place, text: str) -> Expression:
    """Parse a formula; for invalid text, add a problem and return 1."""
    return Expression.decode(text, place.path, place.problems) or Expression.parse("1")


def _misspelled(name: str) -> str:
    """Return the setting that a name probably misspells, or an empty text."""
    spelled = {setting.replace("_", ""): setting for setting in SETTINGS}
    plain = name.replace("_", "").lower()
    # Short names are close to many words by chance, so only longer settings are compared.
    long = [known for known in spelled if len(known) > 4]
    close = [plain] if plain in spelled else get_close_matches(plain, long, n=1, cutoff=0.85)
    return spelled[close[0]] if close else ""


def _check_setting(place: Place, name: str, value: Any) -> Any:
    """Check and return the value of a setting."""
    setting = SETTINGS[name]
    match name, value:
        case "num_procs", _:
            return _counts(place, value)
        case "max_batch_size", str():
            return formula(place, value)
        case ("objective" | "where", str()) | ("fix" | "add", Mapping()):
            return _parsed(place, name, value)
        case "fused_activation", bool():
            value = shown(value)
        case "fix" | "add", _:
            place.wrong(setting.wanted, shown(value))
            return value
    if problem := setting.declaration.problem(setting.type, value, place.path):
        place.problems.append(replace(problem, expected=setting.wanted))
        return value
    return setting.type(value)


def _parsed(place: Place, name: str, value: Any) -> Any:
    """Return a value after checks by the search; its problems get this position."""
    try:
        match name:
            case "objective":
                # Availability of run figures is checked later
                Objective.parse(value, whole_runs=True)
            case "where":
                Condition.parse(value, whole_runs=True)
            case _:
                return checked(name, value)
    except SpecError as error:
        between = {"where": ": ", "fix": ".", "add": "."}.get(name)
        for p in error.problems:
            inner = f"{between}{p.field}" if between and p.field else ""
            place.problems.append(replace(p, field=f"{place.path}{inner}"))
    return value


def _counts(place: Place, value: Any) -> tuple[int, ...] | dict[str, Expression]:
    """Return processor counts, or formulas for derived counts."""
    if isinstance(value, Mapping):
        for key in value:
            if key not in DERIVED:
                wanted = "one of " + ", ".join(DERIVED)
                place.inside(key).wrong(wanted, shown(key), nearest(key, DERIVED))
        if "at_most" not in value:
            place.inside("at_most").wrong("a bound", "nothing", "such as at_most: budget / price")
        known = {key: item for key, item in value.items() if key in DERIVED}
        return {key: formula(place.inside(key), str(item)) for key, item in known.items()}
    items = value if isinstance(value, list) and value else [value]
    counts: dict[int, None] = {}
    for item in items:
        if isinstance(item, bool) or not isinstance(item, (int, str)):
            place.wrong(SETTINGS["num_procs"].wanted, shown(item))
            continue
        try:
            counts.update(dict.fromkeys(processor_counts(str(item), place.path)))
        except SpecError as error:
            place.wrong(error.expected, error.found, error.hint)
    return tuple(counts)
