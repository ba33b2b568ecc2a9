"""Waterfall from one plan to another on the same system: one change at a time, with the time that each saves.

Changes are made greedily: each step makes the change that saves most. A change that breaks a rule is postponed until
others make it possible; changes that are possible only together form one step. Insufficient memory along the path is
reported, but does not stop it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from calculon import inputs
from calculon.advise.differences import Change, apply_changes, changes_between, with_followers
from calculon.advise.in_words import change_in_words
from calculon.advise.nearest_infeasible import TIERS, unlimited
from calculon.advise.variations import Fields
from calculon.base.display import WithMfu, columns_of, draw_result
from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.preset_file import plain
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.editions import find_edition
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation, evaluate
from calculon.hardware.system import System
from calculon.inputs import Source
from calculon.plan.plan import NAMES, Plan, all_fields
from calculon.plan.rules.all_rules import check, raise_for
from calculon.plan.rules.rule import Request
from calculon.search.objective import MEMORY

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from plotly.graph_objects import Figure as InteractiveFigure

PER_STEP, PER_SAMPLE, PER_TOKEN = "step", "sample", "token"
"""Unit of times: a step, if both plans have the same batch on the same processors."""


@dataclass(frozen=True, slots=True)
class Point:
    """Intermediate plan.

    Attributes:
        execution: Its fields by name.
        seconds: Time of a step, sample or token.
        parts: The parts of it in seconds, by the names of their statistics.
        memory: Bytes that it needs of both tiers.
        over: Bytes by which each tier is too small; 0 where it suffices.
        mfu, mfu_causal: Model FLOP utilization, with full and with causal attention; not-a-number in edition ``sc23``.
    """

    execution: Mapping[str, Any]
    seconds: float
    parts: Mapping[str, float]
    memory: tuple[float, float]
    over: tuple[float, float]
    mfu: float
    mfu_causal: float

    @property
    def fits(self) -> bool:
        """True if both tiers of memory suffice."""
        return not any(self.over)


@dataclass(frozen=True, slots=True)
class Step:
    """Change, with its effect on time and memory.

    Attributes:
        words: Description of the change: ``TP 8 -> 4, DP 8 -> 16``.
        fields: Each changed field with its values before and after.
        before, after: Plans before and after the change.
    """

    words: str
    fields: Mapping[str, tuple[Any, Any]]
    before: Point
    after: Point

    @property
    def seconds(self) -> float:
        """Added seconds; negative if it saves time."""
        return self.after.seconds - self.before.seconds

    @property
    def memory(self) -> tuple[float, float]:
        """Added bytes in both tiers."""
        here, away = (self.after.memory[i] - self.before.memory[i] for i in range(len(TIERS)))
        return here, away

    @property
    def parts(self) -> dict[str, float]:
        """Seconds added to each part of the time, largest change first; unchanged parts are omitted."""
        found = {
            name: self.after.parts[name] - self.before.parts[name] for name in self.after.parts
        }
        ranked = sorted(found.items(), key=lambda one: -abs(one[1]))
        return {name: change for name, change in ranked if change}

    def to_dict(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {
            "change": self.words,
            "fields": {name: list(values) for name, values in self.fields.items()},
            "seconds": self.seconds,
            "bytes": self.memory[0],
            "bytes_tier2": self.memory[1],
            "parts": self.parts,
            "fits": self.after.fits,
            "over": list(self.after.over),
            "time_after": self.after.seconds,
            "bytes_after": self.after.memory[0],
        }


@dataclass(frozen=True)
class Waterfall(WithMfu[Array]):
    """The way from one plan to another.

    Attributes:
        model, system: Model and system of both plans.
        edition: Edition of the cost model.
        per: Unit of times: a step; a sample if batch or processors differ; a token if sequence lengths differ.
        mine, best: Plans at both ends.
        steps: Changes in the order in which they are made; empty for equal plans.
    """

    model: Model
    system: System
    edition: str
    per: str
    mine: Point
    best: Point
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        """Difference in seconds, which is the sum of the steps; negative if the second plan is faster."""
        return self.best.seconds - self.mine.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the waterfall as plain data."""
        ends = {"mine": self.mine, "best": self.best}
        return {
            "per": self.per,
            "seconds": self.seconds,
            **{name: _end(one) for name, one in ends.items()},
            "steps": [step.to_dict() for step in self.steps],
        }

    def _statistic(self, name: str) -> Array:
        return np.array([getattr(step.after, name) for step in self.steps])

    def table(self) -> dict[str, list[Any]]:
        """Return a row for each ``change``: the ``seconds`` and ``bytes`` that it adds, and both after it.

        ``time_after`` (s), ``bytes_after`` and ``fits`` (whether memory suffices) are those after the change. Times are
        of a step, a sample or a token, as :attr:`per` says.
        """
        names = ("change", "seconds", "bytes", "time_after", "bytes_after", "fits")
        rows = (step.to_dict() for step in self.steps)
        return columns_of(({name: row[name] for name in names} for row in rows), names)

    @overload
    def plot(self, *, interactive: Literal[False] = False) -> "Figure": ...

    @overload
    def plot(self, *, interactive: Literal[True]) -> "InteractiveFigure": ...

    def plot(self, *, interactive: bool = False) -> "Figure | InteractiveFigure":
        """Draw a bar for each change between the times of both plans, next to the memory.

        Args:
            interactive: Draw it like the web page (extra ``web``), times only: a plotly Figure.

        Raises:
            SpecError: If the library is missing.
        """
        return draw_result(self, "waterfall", interactive=interactive)

    def __repr__(self) -> str:
        count = f"{len(self.steps)} change{'s' * (len(self.steps) != 1)}"
        ends = f"{self.mine.seconds:.4g} s to {self.best.seconds:.4g} s a {self.per}"
        return f"<Waterfall of {self.model.name} on {self.system.name}: {ends} in {count}>"


def _end(one: Point) -> dict[str, Any]:
    return {
        "execution": dict(one.execution),
        "seconds": one.seconds,
        "bytes": one.memory[0],
        "bytes_tier2": one.memory[1],
        "fits": one.fits,
    }


@overload
def waterfall(mine: Estimate, best: Estimate, /) -> Waterfall: ...


@overload
def waterfall(
    model: Source | Model,
    mine: Source | Execution,
    best: Source | Execution,
    system: Source | System,
    /,
    *,
    edition: str | None = None,
    preset: str | None = None,
) -> Waterfall: ...


def waterfall(
    *plans: Any,
    edition: str | None = None,
    preset: str | None = None,
) -> Waterfall:
    """Convert one plan into another, one change at a time, with the time and memory effect of each change.

    Args:
        mine, best: Two plans of the same model on the same system. Alternatively ``waterfall(model, mine, best,
            system)``: the model, two executions and the system, each as in :func:`calculon.estimate`; they may exceed
            memory.
        edition, preset: For executions, as in :func:`calculon.estimate`.

    Raises:
        SpecError: For plans of different models, systems or editions, for a mix of training and inference, and for
            malformed plans.
        Infeasible: For an execution that breaks a rule.

    Examples:
        >>> mine = {"num_procs": 64, "tensor_par": 4, "data_par": 16, "pipeline_par": 1, "batch_size": 512,
        ...         "microbatch_size": 1, "datatype": "bfloat16", "edition": "corrected", "preset": "megatron-lm"}
        >>> steps = waterfall("llama3-8B", mine, {**mine, "tensor_par": 2, "data_par": 32}, "h100_80g_sxm").steps
        >>> [step.words for step in steps]
        ['TP 4 -> 2, DP 16 -> 32']
    """
    model, system, mine, best = _asked(plans, edition, preset)
    path = _Path(model, system, mine, best)
    points, steps = [path.point(mine)], []
    for some, point in path.steps():
        now, then = points[-1].execution, point.execution
        points.append(point)
        fields = {name: (now[name], then[name]) for name in NAMES if now[name] != then[name]}
        words = change_in_words(now, then, some[0].names, fields)
        steps.append(Step(words, fields, *points[-2:]))
    return Waterfall(
        model=model,
        system=system,
        edition=str(mine["edition"]),
        per=path.per,
        mine=points[0],
        best=points[-1],
        steps=tuple(steps),
    )


class _Path:
    """Path from one execution to another.

    Attributes:
        per: Unit of times.
    """

    def __init__(self, model: Model, system: System, mine: Fields, best: Fields):
        self.model, self.mine, self.best = model, mine, best
        self.usable = find_edition(mine["edition"]).machine(system).usable
        self.system = unlimited(system)  # intermediate plans may exceed memory
        lengths = {one["seq_length"] or model.seq_size for one in (mine, best)}
        if len(lengths) > 1:
            self.per = PER_TOKEN
        elif any(mine[name] != best[name] for name in ("batch_size", "num_procs")):
            self.per = PER_SAMPLE
        else:
            self.per = PER_STEP

    def steps(self) -> Iterator[tuple[tuple[Change, ...], Point]]:
        """Yield the changes of each step, and the plan after them."""
        now: Mapping[str, Any] = self.mine
        left = changes_between(self.mine, self.best)
        while left:
            options = self._next_changes(now, left)
            table = self._evaluated([apply_changes(now, self.best, some) for some in options])
            points = [self._point(table, row) for row in range(len(options))]
            fastest = min(range(len(options)), key=lambda row: points[row].seconds)
            some = options[fastest]
            now, left = points[fastest].execution, [one for one in left if one not in some]
            yield some, points[fastest]

    def point(self, fields: Fields) -> Point:
        """Return a plan that breaks no rule as a point."""
        return self._point(self._evaluated([fields]), 0)

    def _next_changes(
        self, now: Mapping[str, Any], left: Sequence[Change]
    ) -> list[tuple[Change, ...]]:
        """Return the possible next changes: single ones, and pairs of changes that are impossible alone.

        If there are none, the smallest possible set of the remaining changes is returned.
        """
        single = [with_followers(self.model, now, self.best, (one,), left) for one in left]
        legal = self._legal(now, single)
        options = [some for some, good in zip(single, legal, strict=True) if good]
        # Triples are rarely needed but numerous: if no pair works, `_fewest` shrinks the set of all
        # changes instead.
        waiting = [some[0] for some, good in zip(single, legal, strict=True) if not good]
        pairs = [
            with_followers(self.model, now, self.best, two, left)
            for two in combinations(waiting, 2)
        ]
        options += [some for some, good in zip(pairs, self._legal(now, pairs), strict=True) if good]
        return options or [self._fewest(now, tuple(left))]

    def _fewest(self, now: Mapping[str, Any], some: tuple[Change, ...]) -> tuple[Change, ...]:
        """Return changes that are possible together, none of which can be omitted."""
        while True:
            fewer = list(combinations(some, len(some) - 1))
            legal = self._legal(now, fewer)
            if not legal.any():
                return some
            some = fewer[int(np.argmax(legal))]

    def _legal(self, now: Mapping[str, Any], options: Sequence[Sequence[Change]]) -> Array:
        """Return a mask of the sets of changes that break no rule."""
        if not options:
            return np.zeros(0, bool)
        plan = Plan.from_records([apply_changes(now, self.best, some) for some in options])
        legal: Array = check(self.model, self.system, plan) == 0
        return legal

    def _evaluated(self, rows: Sequence[Fields]) -> Evaluation:
        return evaluate(self.model, Plan.from_records(rows), self.system)

    def _point(self, table: Evaluation, row: int) -> Point:
        execution = {name: table.plan.values(name)[row].item() for name in NAMES}
        share = self._share(execution)
        needed = [float(table[name][row]) for name in MEMORY]
        over = [max(0.0, size - there) for size, there in zip(needed, self.usable, strict=True)]
        parts = {
            name: float(table[name][row]) * share
            for name in ALL_PARTS_OF_TIME
            if name in table.names
        }
        seconds = float(table["total_time"][row]) * share
        memory = needed[0], needed[1]
        shares = float(table.mfu[row]), float(table.mfu_causal[row])
        return Point(execution, seconds, parts, memory, (over[0], over[1]), *shares)

    def _share(self, execution: Fields) -> float:
        """Return the factor from a step to the unit of times."""
        if self.per == PER_STEP:
            return 1.0
        tokens = execution["seq_length"] or self.model.seq_size
        return 1 / float(execution["batch_size"] * (tokens if self.per == PER_TOKEN else 1))


def _asked(
    plans: Sequence[Any], edition: str | None, preset: str | None
) -> tuple[Model, System, Fields, Fields]:
    """Return model and system, and the fields of two comparable executions."""
    problems = []
    if len(plans) == 2 and all(isinstance(one, Estimate) for one in plans):
        mine, best = plans
        model, system, executions = mine.model, mine.system, (mine.execution, best.execution)
        problems = [
            Problem(kind, f"one {kind} for both plans", f"{one.name} and {other.name}")
            for kind in ("model", "system")
            if not _same(one := getattr(mine, kind), other := getattr(best, kind))
        ]
    elif len(plans) == 4:
        model, system = inputs.model(plans[0]), inputs.system(plans[3])
        terms: dict[str, Any] = {"edition": edition, "preset": preset}
        terms |= {"system": system, "model": model}
        mine, best = (inputs.execution(one, **terms) for one in plans[1:3])
        executions = (mine, best)
    else:
        wanted = "two estimates; or a model, two executions and a system"
        raise SpecError("waterfall", Problem("", wanted, f"{len(plans)} arguments"))
    for name, kind in (("edition", "edition"), ("training", "kind of run")):
        values = [getattr(one, name) for one in executions]
        if values[0] != values[1]:
            found = " and ".join(f"{name} {plain(value)}" for value in values)
            problems.append(Problem(name, f"one {kind} for both plans", found))
    if problems:
        raise SpecError("waterfall", problems)
    for one in executions:
        request = Request(model, system, one)
        raise_for(request, int(check(model, system, Plan.of(one))[0]))
    fields = [all_fields(one) for one in executions]
    return model, system, fields[0], fields[1]


def _same(one: Model | System, other: Model | System) -> bool:
    """Return True if two specs are the same object, or have the same content."""
    if one is other:
        return True
    if one.origin is None or other.origin is None:
        return False
    return one.origin.digest == other.origin.digest
