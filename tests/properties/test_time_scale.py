"""A machine with all rates higher, and all times shorter, by one factor is faster by this factor."""

import math

import numpy as np
from hypothesis import given, settings

import calculon
from calculon import inputs
from calculon.planner.elasticities import Case, Effect, total
from tests.strategies import every_table, questions


def compare(model, execution, system, statistic="total_time"):
    """Scale all rates and times that a system states, and look at the time of a step."""
    case = Case(model, execution, system, statistic)
    if not math.isfinite(case.on(system)):
        return
    effects = [Effect(figure=one, elasticity=0.0) for one in calculon.figures(system).values()]
    found = total(case, effects).together
    if not _unstated(system, execution):
        assert abs(found + 1) < 1e-9
    else:
        assert -1 - 1e-9 < found <= 0


def _unstated(system, execution):
    """Whether latencies follow from the kind of a network, or from the execution."""
    return any(link.kind for link in system.ext.networks) or execution.stage_stop_us > 0


@given(question=questions())
def test_published_executions(question):
    model, row, system = question
    try:
        execution = inputs.execution(row)
    except calculon.SpecError:
        return
    if not calculon.evaluate(model, system, [execution]).reason[0]:
        compare(inputs.model(model), execution, inputs.system(system))


@settings(max_examples=30)
@given(table=every_table())
def test_corrected_executions(table):
    model, system, rows = table
    model, system = inputs.model(model), inputs.system(system)
    plan = calculon.Plan.from_records(rows)
    for row in np.flatnonzero(calculon.evaluate(model, system, plan).feasible)[:2].tolist():
        compare(model, plan.row(row), system)
