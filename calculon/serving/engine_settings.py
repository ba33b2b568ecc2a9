"""Two settings of a deployment: the engine's own defaults (untuned), and the best scheduler limits (achievable).

Both have the split and the data types of the deployment. The engine is the one that the deployment names, or the first
of :data:`~calculon.declarations.serving_classes.PRESET_ENGINES` if it names none.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from calculon.base.errors import Infeasible
from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.declarations.result_numbers import number
from calculon.declarations.serving_classes import PRESET_ENGINES
from calculon.hardware.system import System
from calculon.serving.default_deployment import solver_of
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import ENGINE, facts_of, find_engine
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.read_records import read_deployment
from calculon.serving.states.served_points import Point

UNTUNED, ACHIEVABLE = "untuned", "achievable"
"""Names of the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRecord:
    """Figures of a deployment with some settings of its engine."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("engine's own defaults, or best limits", choices=(UNTUNED, ACHIEVABLE))
    engine: str = declare("the engine, with its release if stated")
    max_batch: int = declare("largest batch of a replica; 0: as many as fit", at_least=0)
    token_budget: int = declare("tokens of a pass; 0: prompts in passes of their own", at_least=0)
    batch: int = declare("sequences that a replica decodes concurrently", at_least=0)
    ttft: float = number("time to the first token", nullable=True, null=np.inf)
    tpot: float = number("time per token", nullable=True, null=np.inf)
    output_rate: float = number("generated tokens per second of all replicas")

    @classmethod
    def of(cls, name: str, engine: str, deployment: Deployment, point: Point) -> "SettingRecord":
        """Return the record of a setting from its operating point."""
        figures = point.figures
        return cls(
            name=name,
            engine=engine,
            max_batch=deployment.max_batch,
            token_budget=deployment.token_budget,
            batch=point.batch,
            ttft=float(figures.ttft[0]),
            tpot=float(figures.tpot[0]),
            output_rate=float(figures.output_rate[0]),
        )


def compared_settings(
    model: Model,
    system: System,
    deployment: Deployment,
    workload: Workload,
    point: Point,
    *,
    searched: bool,
) -> tuple[SettingRecord, ...]:
    """Return the untuned setting of an engine, and the achievable one; empty if the defaults cannot run.

    Args:
        model, system, deployment, workload, point: The deployment, and its operating point.
        searched: True if it is the best of a search, so that no other limits have to be tried; without an engine, a
            stated deployment is compared as it is, too.
    """
    named = find_engine(deployment.engine)
    engine = deployment.engine if named else PRESET_ENGINES[0]
    preset = named or find_engine(engine)
    assert preset is not None
    if deployment.batching != "continuous":
        return ()
    untuned = _with_defaults(model, system, deployment, engine, preset)
    try:
        found = solver_of(model, system, untuned, workload).solve_single()
    except Infeasible:
        return ()
    cases = [(deployment, point), (untuned, found)]
    if named and not searched:
        cases += _tuned(model, system, deployment, workload, preset)
    best, own = max(cases, key=lambda case: _value(case[1], workload))
    return (
        SettingRecord.of(UNTUNED, engine, untuned, found),
        SettingRecord.of(ACHIEVABLE, engine, best, own),
    )


def _with_defaults(
    model: Model, system: System, deployment: Deployment, engine: str, preset: Preset
) -> Deployment:
    """Return a deployment with an engine's defaults in place of its own values."""
    fields = deployment.to_dict()
    kept = {name: value for name, value in fields.items() if name not in preset.entries}
    return read_deployment({**kept, ENGINE: engine}, facts=facts_of(model, system))


def _tuned(
    model: Model, system: System, deployment: Deployment, workload: Workload, preset: Preset
) -> Iterator[tuple[Deployment, Point]]:
    """Yield a deployment with the token budgets that a search tries, and batches as large as memory allows."""
    for budget in preset.tried("token_budget") or ():
        one = replace(deployment, max_batch=0, token_budget=budget)
        try:
            yield one, solver_of(model, system, one, workload).solve_single()
        except Infeasible:  # another budget leaves less memory, or none for a token of a sequence
            continue


def _value(point: Point, workload: Workload) -> tuple[bool, float]:
    """Return the order of operating points: within the limits first, then by rate, or by speed if the load sets it."""
    met = all(one.met for one in point.limits)
    figures = point.figures
    rate, token = float(figures.output_rate[0]), float(figures.tpot[0])
    return met, rate if workload.kind == SATURATED else -token
