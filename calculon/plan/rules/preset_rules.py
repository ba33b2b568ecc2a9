"""Whether the framework of a preset has what an execution asks for."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.named_values import PRESETS
from calculon.declarations.presets import Preset, find_preset, lacking, refused
from calculon.plan.columns import field_of, held
from calculon.plan.plan import NAMES
from calculon.plan.rules.rule import Request, Requests, Rule

INNER = {"pipeline_interleaving"}
"""The loop of a search within what it enumerates: what a limit on it rejects is counted."""


def _has_values(preset: Preset, r: Requests) -> Array:
    """Return which executions have values in all fields that the framework has."""
    good = np.array(True)
    for name, entry in preset.entries.items():
        if entry.runs:
            column = getattr(r.plan, name)
            good = good & reduce(np.logical_or, (column == held(name, one) for one in entry.runs))
    return good


def _meets_limits(preset: Preset, r: Requests, *, inner: bool) -> Array:
    """Return which executions meet the limits of a framework, those on inner loops or the others."""
    good = np.array(True)
    for limit in preset.limits:
        if inner is not INNER.isdisjoint(limit.that.names):
            good = good & np.asarray(limit.that.value(partial(_value, r)), bool)
    return good


def _of_each(holds: Callable[[Preset, Requests], Array]) -> Callable[[Requests], Array]:
    """Make a rule of a question about one preset and executions."""

    def held_by_all(r: Requests) -> Array:
        good = np.array(True)
        for code in np.unique(r.plan.preset).tolist():
            preset = find_preset(PRESETS[code])
            good = good & ((r.plan.preset != code) | holds(preset, r))
        return good

    return held_by_all


class _Named:
    """A column of codes that compares with texts as the names that they stand for; none has a code below 0."""

    def __init__(self, codes: Array, choices: Sequence[str]):
        self._codes, self._choices, self.shape = codes, choices, np.shape(codes)

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        if not isinstance(other, str):
            names = other._names() if isinstance(other, _Named) else other
            return np.asarray(self._names() == names)
        found = np.zeros(self.shape, bool)
        if other in self._choices:
            found = found | (self._codes == self._choices.index(other))
        return found if other else found | (self._codes < 0)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return ~(self == other)

    def _names(self) -> Array:
        return np.array([*self._choices, ""])[self._codes]

    __hash__ = None  # type: ignore[assignment]


def _value(r: Requests, name: str) -> Any:
    """Return a column, or what the model has."""
    if name not in NAMES:
        return getattr(r.model, name)
    values = getattr(r.plan, name)
    choices = field_of(name).declaration.choices
    return _Named(values, choices) if choices else values


def _of(one: Request) -> tuple[Preset, Callable[[str], Any]]:
    """Return the preset of one execution, and what its fields and its model have."""

    def value_of(name: str) -> Any:
        return getattr(one.execution if name in NAMES else one.model, name)

    return find_preset(one.execution.preset), value_of


def _lacking(one: Request) -> Iterator[Problem]:
    return lacking(*_of(one))


def _refused(one: Request, *, inner: bool) -> Iterator[Problem]:
    """Yield what limits say, those on inner loops or the others."""
    for limit, problem in refused(*_of(one)):
        if inner is not INNER.isdisjoint(limit.that.names):
            yield problem


def _rule(
    reason: str,
    holds: Callable[[Preset, Requests], Array],
    every: Callable[[Request], Iterator[Problem]],
    *,
    counted: bool = False,
) -> Rule:
    """Make a rule on all fields of a framework, or on all of its limits, of which an execution may break several."""

    def explain(one: Request) -> Problem:
        return next(every(one))

    return Rule(reason, _of_each(holds), explain, ("preset",), counted, every)


PRESET_RULES: tuple[Rule, ...] = (
    _rule("framework_option", _has_values, _lacking),
    _rule("framework_limit", partial(_meets_limits, inner=False), partial(_refused, inner=False)),
    _rule(
        "framework_schedule",
        partial(_meets_limits, inner=True),
        partial(_refused, inner=True),
        counted=True,
    ),
)
"""Requirements of frameworks."""
