"""State of a page: the contents of its address, in the words of the command line.

``?model=llama3-70B&system=h100_80g_sxm&procs=1024`` requests the best plan. Fields of an execution
(``tensor_par=8&pipeline_par=4``) define the user's plan, like ``--mine``; paths of figures
(``system.mem1.GiB=120``) change the machine, like ``--set``; other names are the options in :data:`OPTIONS`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any
from urllib.parse import urlencode

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations.fields import SpecField
from calculon.declarations.short_names import QUESTION_WORDS
from calculon.declarations.spellings import PRECISIONS
from calculon.declarations.statistics import RISK, within_risk
from calculon.explore.allowed_inputs import MODEL, SYSTEM, AllowedInputs
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS
from calculon.explore.view_names import VIEWS
from calculon.plan.columns import FIELDS
from calculon.serving.records.load import DEFAULT_WORKLOAD

ASKED = ("model", "system", "procs", "preset", "batch", "seq", "dtype", "tokens")
"""Parts of a question, in the order of the address."""

MACHINE = "system."
"""Prefix of the path of a machine figure."""

MICRO = ".us"
"""Suffix of the path of a time given in microseconds; addresses of states contain seconds."""

OPTIONS: Mapping[str, str] = {
    "objective": "sample_rate",
    "where": within_risk(RISK),
    "open": "",
    "fix": "",
    "counts": "",
    "x": "proc_mem_tier1_cap_req",
    "y": "total_time",
    "of": "total_time",
    "spread": "25%",
    "replan": "",
    "figures": "",
    "microbatches": "",
    "stage": "",
    "block": "",
    "operator": "",
    "workload": DEFAULT_WORKLOAD,
    **dict.fromkeys((*REQUESTS, *DEPLOYMENT), ""),
}
"""Options of single views with their defaults; each view reads only its own."""

CHANGED = "changed"
"""Word of an address for the control that has just changed."""

LISTS = ("open",)
"""Options that may be repeated: their values are joined by commas."""

EMPTIED = ("where",)
"""Options that may be empty although their default is not."""

LONGEST = 200
"""Maximum length of a value in characters."""

MAX_PROCESSORS = 2**24

EXACT = 2**53
"""Limit below which floats represent integers exactly."""

_PLAN = {
    one.name: one for one in FIELDS if one.name != "edition" and one.name not in QUESTION_WORDS
}
"""Fields of a plan that are not part of the question, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """State of a page.

    Attributes:
        model, system: Exact names of an :class:`~calculon.explore.allowed_inputs.AllowedInputs`.
        procs: Number of processors.
        preset, batch, seq, dtype, tokens: As in the options of ``calculon plan``; empty if not stated.
        plan: Fields of the user's plan, as files have them; empty for the best plan.
        machine: Changed figures of the system, by path.
        view: One of :data:`VIEWS`.
        options: The :data:`OPTIONS` that differ from their defaults.
        note: Note on the consequences of the last change; not part of the address.
    """

    model: str
    system: str
    procs: int
    preset: str = ""
    batch: str = ""
    seq: str = ""
    dtype: str = ""
    tokens: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, float] = field(default_factory=dict)
    view: str = VIEWS[0]
    options: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    def option(self, name: str) -> str:
        """Return the value of a view's option."""
        return self.options.get(name, OPTIONS[name])

    def pairs(self) -> list[tuple[str, str]]:
        """Return names and values of the address, in order."""
        asked = [(name, str(getattr(self, name))) for name in ASKED]
        plan = [(name, value_text(self.plan[name])) for name in _PLAN if name in self.plan]
        machine = [
            (MACHINE + path, value_text(self.machine[path])) for path in sorted(self.machine)
        ]
        options = [(name, self.options[name]) for name in OPTIONS if name in self.options]
        view = [("view", self.view)] if self.view != VIEWS[0] else []
        return [(name, value) for name, value in asked if value] + plan + machine + options + view

    @property
    def query(self) -> str:
        """The query string of the address."""
        return urlencode(self.pairs())

    @property
    def key(self) -> str:
        """The query without display settings: states with equal keys have the same question and plan."""
        return replace(self, view=VIEWS[0], options={}).query

    @property
    def title(self) -> str:
        """Model, processors and machine."""
        return f"{self.model} on {self.procs:,} x {self.system}"

    def link(self, **changes: Any) -> str:
        """Return the page's address with some members of the state changed."""
        return "/?" + replace(self, **changes).query

    def with_plan(self, fields: Mapping[str, Any]) -> str:
        """Return the page's address with a user's plan."""
        return self.link(plan=dict(fields))

    def with_options(self, **options: str) -> str:
        """Return the page's address with some options of views."""
        return self.link(options=_stated({**self.options, **options}))


def _stated(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that differ from their defaults."""
    return {name: value for name, value in options.items() if value != OPTIONS[name]}


def value_text(value: Any) -> str:
    """Format a value for an address."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def read_state(pairs: Iterable[tuple[str, str]], allowed: AllowedInputs, first: State) -> State:
    """Parse an address.

    Args:
        pairs: Names and values; the last value of a repeated name is used, except for :data:`LISTS`, and empty
            values are ignored, except for :data:`EMPTIED`.
        allowed: Names that may be requested.
        first: Defaults for model, system and processors.

    Raises:
        SpecError: With everything that cannot be understood. Values of fields and figures are validated when they
            are used.
    """
    state, problems = read_good(pairs, allowed, first)
    if problems:
        raise SpecError("address", list(problems.values()))
    return state


def read_good(
    pairs: Iterable[tuple[str, str]], allowed: AllowedInputs, first: State
) -> tuple[State, dict[str, Problem]]:
    """Return the valid part of an address, and the problem of every other name.

    Args:
        pairs, allowed, first: As in :func:`read_state`.
    """
    given: dict[str, str] = {}
    for name, text in pairs:
        if (value := text.strip()) or name in EMPTIED:
            given[name] = f"{given[name]},{value}" if name in LISTS and name in given else value
    problems = {
        name: Problem(name[:60], f"at most {LONGEST} characters", f"{len(value):,}")
        for name, value in given.items()
        if len(value) > LONGEST * (1 + (name in LISTS))
    }
    members: dict[str, Any] = {"model": first.model, "system": first.system, "procs": first.procs}
    plan: dict[str, Any] = {}
    machine: dict[str, float] = {}
    options: dict[str, str] = {}
    good = {name: value for name, value in given.items() if name not in problems}
    # Times set by controls (with ".us") come last and override the state's value in seconds.
    for name, value in sorted(good.items(), key=_of_control):
        try:
            if name in ASKED or name == "view":
                members[name] = _asked(name, value, allowed)
            elif name in OPTIONS:
                options[name] = value
            elif name in _PLAN:
                plan[name] = _field_value(_PLAN[name], value)
            elif name.startswith(MACHINE):
                machine |= _figure(name, value)
            else:
                known = [*ASKED, *QUESTION_WORDS, *_PLAN, *OPTIONS, "view"]
                wanted = "a control of the page, a field of an execution, or system.PATH"
                raise SpecError("", Problem(name[:60], wanted, "another", nearest(name, known)))
        except SpecError as error:
            problems[name] = error.problems[0]
    return State(**members, plan=plan, machine=machine, options=_stated(options)), problems


def _asked(name: str, value: str, allowed: AllowedInputs) -> Any:
    """Return one part of the question."""
    if name in (MODEL, SYSTEM):
        return allowed.exact(name, value)
    if name == "procs":
        return _processors(value)
    choices = {"preset": allowed.presets, "dtype": [*PRECISIONS], "view": VIEWS}.get(name)
    if choices is not None and value not in choices:
        hint = nearest(value, list(choices))
        raise SpecError("", Problem(name, "one of " + ", ".join(choices), repr(value), hint))
    return value  # other values are validated when they are used


def _processors(value: str) -> int:
    """Parse a processor count: ``1024``, ``1,024``, ``1k``."""
    found = re.fullmatch(r"(\d+)([kK]?)", value.replace(",", "").replace(" ", ""))
    # Addresses may come from anyone: bound the digits before converting.
    count = int(found[1][:12]) * (1024 if found[2] else 1) if found else 0
    if not 1 <= count <= MAX_PROCESSORS:
        wanted = f"a number of processors from 1 to {MAX_PROCESSORS:,}, such as 1024 or 1k"
        raise SpecError("", Problem("procs", wanted, repr(value)))
    return count


def _of_control(pair: tuple[str, str]) -> bool:
    """Return True for a time set by a control, which is sorted last to override the same time of the old state."""
    return pair[0].endswith(MICRO)


def _figure(name: str, value: str) -> dict[str, float]:
    """Return a new value of a figure by path, in the unit of the file."""
    path, found = name.removeprefix(MACHINE), _number(name, value)
    if not path.endswith(MICRO):
        return {path: found}
    # 12 digits hide the rounding error of the conversion, so that a reset value equals the file's again.
    return {path.removesuffix(MICRO): float(f"{found * 1e-6:.12g}")}


def _number(name: str, value: str) -> float:
    """Parse a new value of a figure."""
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise SpecError("", Problem(name[:60], "a number", repr(value)))
    return int(found) if abs(found) < EXACT and found == int(found) else found


def _field_value(one: SpecField, value: str) -> Any:
    """Return a field's value as files have it; the decoder reports invalid values."""
    if one.declaration.choices:
        return value
    if one.annotation is bool:
        return {"true": True, "on": True, "false": False}.get(value.lower(), value)
    return int(value) if re.fullmatch(r"-?\d{1,15}", value) else value
