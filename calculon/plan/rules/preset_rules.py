"""Rules of framework presets: options and limits of the framework that runs an execution."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.declarations.named_values import PRESETS
from calculon.declarations.presets import Preset, find_preset, lacking, refused
from calculon.declarations.statistics import OFFLOADS
from calculon.plan.columns import encoded, field_of
from calculon.plan.plan import NAMES
from calculon.plan.rules.rule import Request, Requests, Rule

INNER = {"pipeline_interleaving"}
"""Innermost loop of a search: executions that a limit on it rejects are counted as infeasible."""


def _has_values(preset: Preset, r: Requests, *, stage: int | None = None) -> Array:
    """Return a mask of executions whose values the framework supports in all fields, or in those of a stage."""
    good = np.array(True)
    for name, entry in preset.entries.items():
        if entry.runs and stage in (None, _stage((name,))):
            column = getattr(r.plan, name)
            good = good & reduce(
                np.logical_or, (column == encoded(name, one) for one in entry.runs)
            )
    return good


def _meets_limits(preset: Preset, r: Requests, *, inner: bool, stage: int | None = None) -> Array:
    """Return a mask of executions that meet the limits of a framework: limits on inner loops, or other limits.

    With `stage`, only limits of this stage count (:data:`_STAGES`).
    """
    good = np.array(True)
    for limit in preset.limits:
        names = limit.that.names
        if inner is not INNER.isdisjoint(names) and stage in (None, _stage(names)):
            good = good & np.asarray(limit.that.value(partial(_value, r)), bool)
    return good


_STAGES = ({*PUBLISHED_DEGREES, "batch_size", "num_procs"}, {*OFFLOADS, "microbatch_size"})
"""Fields that a search fixes after its variants, in order: the split of the processors, and then cells of its grid."""


def _stage(names: Collection[str]) -> int:
    """Return the number of the stage after which a search knows some fields; 0 if variants decide them."""
    return max((i for i, late in enumerate(_STAGES, 1) if not late.isdisjoint(names)), default=0)


def _of_each(holds: Callable[[Preset, Requests], Array]) -> Callable[[Requests], Array]:
    """Return a mask function for executions of several presets from one for a single preset."""

    def held_by_all(r: Requests) -> Array:
        good = np.array(True)
        # A table has few presets: each is checked for all rows at once, and applies to its own rows.
        for code in np.unique(r.plan.preset).tolist():
            preset = find_preset(PRESETS[code])
            good = good & ((r.plan.preset != code) | holds(preset, r))
        return good

    return held_by_all


class _Named:
    """Column of codes that compares equal to the names of the codes; codes below 0 have no name."""

    def __init__(self, codes: Array, choices: Sequence[str]):
        self._codes, self._choices, self.shape = codes, choices, np.shape(codes)

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        if not isinstance(other, str):
            names = other._names() if isinstance(other, _Named) else other
            return np.asarray(self._names() == names)
        found = np.zeros(self.shape, bool)
        if other in self._choices:
            found = found | (self._codes == self._choices.index(other))
        # Codes below 0 stand for values without a name, which expressions write as an empty text.
        return found if other else found | (self._codes < 0)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return ~(self == other)

    def _names(self) -> Array:
        return np.array([*self._choices, ""])[self._codes]

    # Equality returns an array, so there is no consistent hash.
    __hash__ = None  # type: ignore[assignment]


def _value(r: Requests, name: str) -> Any:
    """Return a column of the plan, or a field of the model."""
    if name not in NAMES:
        return getattr(r.model, name)
    values = getattr(r.plan, name)
    choices = field_of(name).declaration.choices
    return _Named(values, choices) if choices else values


def _of(one: Request) -> tuple[Preset, Callable[[str], Any]]:
    """Return the preset of one execution, and a function that returns fields of the execution or its model."""

    def value_of(name: str) -> Any:
        return getattr(one.execution if name in NAMES else one.model, name)

    return find_preset(one.execution.preset), value_of


def _lacking(one: Request) -> Iterator[Problem]:
    return lacking(*_of(one))


def _refused(one: Request, *, inner: bool) -> Iterator[Problem]:
    """Yield the violated limits, either limits on inner loops or other limits."""
    for limit, problem in refused(*_of(one)):
        if inner is not INNER.isdisjoint(limit.that.names):
            yield problem


def _rule(
    reason: str,
    holds: Callable[[Preset, Requests], Array],
    every: Callable[[Request], Iterator[Problem]],
    *,
    counted: bool = False,
    parts: tuple[Rule, ...] = (),
) -> Rule:
    """Create a rule on all options or all limits of a framework; an execution may violate several."""

    def explain(one: Request) -> Problem:
        return next(every(one))

    return Rule(reason, _of_each(holds), explain, ("preset",), counted, every, parts)


def _in_stages(
    reason: str,
    holds: Callable[..., Array],
    every: Callable[[Request], Iterator[Problem]],
) -> Rule:
    """Create a rule with a part for each stage in which a search fixes fields."""
    parts = (
        _rule(f"{reason}, stage {stage}", partial(holds, stage=stage), every)
        for stage in range(len(_STAGES) + 1)
    )
    return _rule(reason, holds, every, parts=tuple(parts))


PRESET_RULES: tuple[Rule, ...] = (
    _in_stages("framework_option", _has_values, _lacking),
    _in_stages(
        "framework_limit", partial(_meets_limits, inner=False), partial(_refused, inner=False)
    ),
    _rule(
        "framework_schedule",
        partial(_meets_limits, inner=True),
        partial(_refused, inner=True),
        counted=True,
    ),
)
"""Requirements of frameworks."""
