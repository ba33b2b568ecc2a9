"""Whether the framework of a preset has what an execution asks for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from calculon.errors import Problem
from calculon.plan.columns import field_of, held
from calculon.plan.plan import NAMES
from calculon.plan.rules.rule import Request, Requests, Rule
from calculon.presets import Preset, find_preset, unmet
from calculon.spec.execution import PRESETS
from calculon.units import Array

INNER = {"pipeline_interleaving"}
"""The loop of a search within what it enumerates: what a limit on it rejects is counted."""


def _has_values(preset: Preset, r: Requests) -> Array:
    """Return which executions have values in all fields that the framework has."""
    good = np.array(True)
    for name, entry in preset.entries.items():
        if entry.runs:
            good = good & np.isin(getattr(r.plan, name), [held(name, one) for one in entry.runs])
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


def _value(r: Requests, name: str) -> Any:
    """Return a column with named values as text, or what the model has."""
    if name not in NAMES:
        return getattr(r.model, name)
    values = getattr(r.plan, name)
    choices = field_of(name).declaration.choices
    return np.array([*choices, ""])[values] if choices else values


def _explain(one: Request) -> Problem:
    def value_of(name: str) -> Any:
        return getattr(one.execution if name in NAMES else one.model, name)

    return next(unmet(find_preset(one.execution.preset), value_of))


PRESET_RULES: tuple[Rule, ...] = (
    Rule("framework_option", _of_each(_has_values), _explain, ("preset",)),
    Rule("framework_limit", _of_each(partial(_meets_limits, inner=False)), _explain, ("preset",)),
    Rule(
        "framework_schedule",
        _of_each(partial(_meets_limits, inner=True)),
        _explain,
        ("preset",),
        counted=True,
    ),
)
"""Requirements of frameworks."""
