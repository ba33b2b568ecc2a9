"""A machine with all rates higher, and all times shorter, by one factor is faster by this factor."""

import numpy as np

import calculon
from calculon import inputs
from calculon.advise.elasticities import faster
from calculon.hardware.figures import figures_of
from tests.properties.table import with_all_fields

FACTORS = (0.8, 1.25, 3.0)


def compare(table, factor):
    """Compare executions on a system with those on the faster one."""
    system, before = inputs.system(table.system), table.found
    machine = faster(system, figures_of(system).values(), factor)
    after = calculon.evaluate(table.model, machine, before.plan)
    assert (before.codes == after.codes).all()
    run = before.feasible
    ratio = before["total_time"] / after["total_time"]
    low, high = sorted((1.0, factor))
    near = (ratio >= low * (1 - 1e-9)) & (ratio <= high * (1 + 1e-9))
    stated = ~_unstated(system, before.plan)
    wrong = run & (~near | (stated & ~np.isclose(ratio, factor, rtol=1e-9)))
    assert not wrong.any(), table.rows[np.flatnonzero(wrong)[0]]
    return int((run & stated).sum())


def _unstated(system, plan):
    """Whether latencies follow from the kind of a network, or times from the execution."""
    return any(link.kind for link in system.ext.networks) | (plan.values("stage_stop_us") > 0)


def test_corrected_executions():
    compared = 0
    for number, table in enumerate(with_all_fields()[::4]):
        half = table.take(slice(number % 2, None, 2))
        compared += compare(half, FACTORS[number % len(FACTORS)])
    assert compared > 5
