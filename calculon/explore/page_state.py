"""The state of a page: what its address says, in the words of the command line.

``?model=llama3-70B&system=h100_80g_sxm&procs=1024`` asks for the best plan. Fields of an execution
(``tensor_par=8&pipeline_par=4``) state a plan of one's own, as ``--mine`` does; paths of figures
(``system.mem1.GiB=120``) change the machine, as ``--set`` does; the others are the options of :data:`OPTIONS`.
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
from calculon.explore.offer import MODEL, SYSTEM, Offer
from calculon.explore.serving.served_words import DEPLOYMENT, REQUESTS, USUAL
from calculon.explore.view_names import VIEWS
from calculon.plan.columns import FIELDS

ASKED = ("model", "system", "procs", "preset", "batch", "seq", "dtype", "tokens")
"""What a question says, in the order of the address."""

MACHINE = "system."
"""What stands before the path of a figure of the machine."""

MICRO = ".us"
"""What stands behind the path of a time that is given in microseconds; addresses of states have seconds."""

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
    "workload": USUAL,
    **dict.fromkeys((*REQUESTS, *DEPLOYMENT), ""),
}
"""Options of single views with their defaults; each view reads its own."""

CHANGED = "changed"
"""Word of an address: the control that has just changed."""

LISTS = ("open",)
"""Options that may come several times: their values are joined by commas."""

EMPTIED = ("where",)
"""Options that may be empty although their default is not."""

LONGEST = 200
"""Characters of a value."""

MOST_PROCESSORS = 2**24

EXACT = 2**53
"""Below it whole numbers are as exact as texts."""

_PLAN = {
    one.name: one for one in FIELDS if one.name != "edition" and one.name not in QUESTION_WORDS
}
"""Other fields of a plan by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a page shows.

    Attributes:
        model, system: Exact names of an :class:`~calculon.explore.offer.Offer`.
        procs: Processors.
        preset, batch, seq, dtype, tokens: As the options of ``calculon plan``; empty where nothing is stated.
        plan: The fields of a plan of one's own, as files have them; empty for the best plan.
        machine: Figures of the system that are changed, by path.
        view: One of :data:`VIEWS`.
        options: Those of :data:`OPTIONS` that are not as by default.
        told: What followed from the last change of a control; no part of the address.
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
    told: str = ""

    def option(self, name: str) -> str:
        """Return the value of an option of a view."""
        return self.options.get(name, OPTIONS[name])

    def pairs(self) -> list[tuple[str, str]]:
        """Return names and values of the address, in its order."""
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
        """The address without its beginning."""
        return urlencode(self.pairs())

    @property
    def key(self) -> str:
        """The same without what only says how it is shown: states with equal keys have the same question and plan."""
        return replace(self, view=VIEWS[0], options={}).query

    @property
    def title(self) -> str:
        """Model, processors and machine."""
        return f"{self.model} on {self.procs:,} x {self.system}"

    def link(self, **changes: Any) -> str:
        """Return the address of this page with some members changed."""
        return "/?" + replace(self, **changes).query

    def with_plan(self, fields: Mapping[str, Any]) -> str:
        """Return the address of this page with a plan of one's own."""
        return self.link(plan=dict(fields))

    def with_options(self, **options: str) -> str:
        """Return the address of this page with some options of views."""
        return self.link(options=_stated({**self.options, **options}))


def _stated(options: Mapping[str, str]) -> dict[str, str]:
    """Return options that are not as by default."""
    return {name: value for name, value in options.items() if value != OPTIONS[name]}


def value_text(value: Any) -> str:
    """Return a value as addresses have it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def read_state(pairs: Iterable[tuple[str, str]], offer: Offer, first: State) -> State:
    """Read an address.

    Args:
        pairs: Names and values; of a name that comes several times the last counts, but for :data:`LISTS`, and empty
            values say nothing, but for :data:`EMPTIED`.
        offer: What may be asked for.
        first: What counts where nothing is said: model, system and processors.

    Raises:
        SpecError: With everything that cannot be understood. Whether fields and figures have such values is checked
            where they are used.
    """
    state, problems = read_good(pairs, offer, first)
    if problems:
        raise SpecError("address", list(problems.values()))
    return state


def read_good(
    pairs: Iterable[tuple[str, str]], offer: Offer, first: State
) -> tuple[State, dict[str, Problem]]:
    """Return what can be understood of an address, and the problem of every other name.

    Args:
        pairs, offer, first: As of :func:`read_state`.
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
    for name, value in sorted(good.items(), key=_of_control):
        try:
            if name in ASKED or name == "view":
                members[name] = _asked(name, value, offer)
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


def _asked(name: str, value: str, offer: Offer) -> Any:
    """Return a part of the question."""
    if name in (MODEL, SYSTEM):
        return offer.exact(name, value)
    if name == "procs":
        return _processors(value)
    choices = {"preset": offer.presets, "dtype": [*PRECISIONS], "view": VIEWS}.get(name)
    if choices is not None and value not in choices:
        hint = nearest(value, list(choices))
        raise SpecError("", Problem(name, "one of " + ", ".join(choices), repr(value), hint))
    return value  # the others are read where they are asked for


def _processors(value: str) -> int:
    """Return a count of processors: ``1024``, ``1,024``, ``1k``."""
    found = re.fullmatch(r"(\d+)([kK]?)", value.replace(",", "").replace(" ", ""))
    count = int(found[1][:12]) * (1024 if found[2] else 1) if found else 0
    if not 1 <= count <= MOST_PROCESSORS:
        wanted = f"a number of processors from 1 to {MOST_PROCESSORS:,}, such as 1024 or 1k"
        raise SpecError("", Problem("procs", wanted, repr(value)))
    return count


def _of_control(pair: tuple[str, str]) -> bool:
    """Whether a control has set a time, which then counts for more than the same time of the state before."""
    return pair[0].endswith(MICRO)


def _figure(name: str, value: str) -> dict[str, float]:
    """Return a new value of a figure by its path, in the unit of the file."""
    path, found = name.removeprefix(MACHINE), _number(name, value)
    if not path.endswith(MICRO):
        return {path: found}
    return {path.removesuffix(MICRO): float(f"{found * 1e-6:.12g}")}


def _number(name: str, value: str) -> float:
    """Return a new value of a figure."""
    try:
        found = float(value)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise SpecError("", Problem(name[:60], "a number", repr(value)))
    return int(found) if abs(found) < EXACT and found == int(found) else found


def _field_value(one: SpecField, value: str) -> Any:
    """Return the value of a field as files have it; what is none is told by the decoder."""
    if one.declaration.choices:
        return value
    if one.annotation is bool:
        return {"true": True, "on": True, "false": False}.get(value.lower(), value)
    return int(value) if re.fullmatch(r"-?\d{1,15}", value) else value
