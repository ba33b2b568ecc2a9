"""A machine with all rates higher, and all times shorter, by one factor is faster by this factor."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import calculon
from calculon import inputs
from calculon.hardware.figures import figures_of
from calculon.planner.elasticities import faster
from tests.strategies import every_table, tables

FACTORS = st.sampled_from((0.8, 1.25, 3.0))


def compare(model, system, rows, factor):
    """Evaluate executions on a system and on the faster one."""
    system = inputs.system(system)
    before = calculon.evaluate(model, system, rows)
    after = calculon.evaluate(
        model, faster(system, figures_of(system).values(), factor), before.plan
    )
    assert (before.codes == after.codes).all()
    ratio = (before["total_time"] / after["total_time"])[before.feasible]
    stated = ~_unstated(system, before.plan)[before.feasible]
    assert np.allclose(ratio[stated], factor, rtol=1e-9)
    low, high = sorted((1.0, factor))
    assert ((ratio >= low * (1 - 1e-9)) & (ratio <= high * (1 + 1e-9))).all()


def _unstated(system, plan):
    """Whether latencies follow from the kind of a network, or times from the execution."""
    return any(link.kind for link in system.ext.networks) | (plan.values("stage_stop_us") > 0)


@given(table=tables(), factor=FACTORS)
def test_published_executions(table, factor):
    model, system, rows = table
    compare(model, system, rows, factor)


@given(table=every_table(), factor=FACTORS)
def test_corrected_executions(table, factor):
    model, system, rows = table
    compare(model, system, rows, factor)
