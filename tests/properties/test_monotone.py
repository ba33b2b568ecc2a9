"""A better machine is never slower, and never has less room.

It holds in edition ``sc23`` while nothing is overlapped: an overlapped collective is charged for compute that it slows
down, and then a faster engine can cost time. Neither is offload traffic of a model on one stage: it hides behind the
latency of transfers that do not happen (specification, section 5.11, p = 1).
"""

import copy
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

import calculon
from tests.draws import draws
from tests.properties.table import Table, above, collected, evaluated, holds_on_changes
from tests.store import stored
from tests.strategies import SWITCHES, executions, models, systems


def _engines(name):
    def faster(system, factor):
        for engine in system[name].values():
            engine["tflops"] *= factor

    return faster


def _memory(name, member):
    def better(system, factor):
        system[name][member] *= factor

    return better


def _networks(member, better):
    def change(system, factor):
        for network in system["networks"]:
            network[member] = better(network[member], factor)

    return change


def _efficiencies(system, factor):
    """Raise every step of every curve."""
    curves = [
        engine["gflops_efficiency"]
        for engine in (*system["matrix"].values(), *system["vector"].values())
    ]
    curves += [system[name]["MB_efficiency"] for name in ("mem1", "mem2")]
    for curve in curves:
        for step in curve:
            step[1] = min(1.0, step[1] * factor)


BETTER = {
    "a faster matrix engine": _engines("matrix"),
    "a faster vector engine": _engines("vector"),
    "a faster tier-1 memory": _memory("mem1", "GBps"),
    "a faster tier-2 memory": _memory("mem2", "GBps"),
    "a higher network bandwidth": _networks("bandwidth", lambda value, factor: value * factor),
    "a higher network efficiency": _networks("efficiency", lambda v, factor: min(1, v * factor)),
    "a lower network latency": _networks("latency", lambda value, factor: value / factor),
    "a larger network": _networks("size", lambda value, factor: value * round(factor)),
    "higher efficiencies": _efficiencies,
}


def by(factor, better):
    """Return the change of a table whose system is better by a factor."""
    return partial(Table.on, change=partial(better, factor=factor))


@st.composite
def without_overlap(draw, rows=4):
    """A model, a system, and executions that overlap nothing."""
    model, system = draw(models()), draw(systems())
    found = [draw(executions(model, system)) for _ in range(rows)]
    for row in found:
        row.update(tensor_par_overlap="none", data_par_overlap=False)
        if row["pipeline_par"] == 1:
            row.update(dict.fromkeys(SWITCHES, False))
    return model, system, found


@stored
def drawn():
    """Draw executions of small tables, and evaluate them."""
    return evaluated(Table(*one) for one in collected(without_overlap(), draws(36)))


def test_a_better_machine_is_never_slower_and_never_less_feasible():
    """Each change makes a difference to some executions, which the law allows one way only."""
    decided = dict.fromkeys(BETTER, 0)

    def slower(name, table, improved):
        lost = table.found.feasible & ~improved.found.feasible
        before, after = table.found["total_time"], improved.found["total_time"]
        gained = improved.found.feasible & ~table.found.feasible
        decided[name] += ((after < before) | gained).sum()
        return np.where(lost, np.inf, above(after, before))

    for number, table in enumerate(drawn()):
        factor = (16, 2, 1.001)[number % 3]
        holds_on_changes(slower, table, {name: by(factor, BETTER[name]) for name in BETTER})
    assert min(decided.values()) > 0, decided


@pytest.mark.parametrize("tier", [1, 2])
def test_a_memory_is_large_enough_exactly_from_what_is_needed(tier):
    path, small, met = f"mem{tier}.GiB", f"mem{tier}_capacity", 0
    for table in drawn()[::4]:
        system = copy.deepcopy(table.system)
        system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
        needed = calculon.evaluate(table.model, system, table.rows)[f"proc_mem_tier{tier}_cap_req"]
        numbers = np.flatnonzero(needed > 0)  # not-a-number where it cannot run anyhow
        rows, capacities, reasons = [], [], []
        for row, gib in zip(np.array(table.rows)[numbers], needed[numbers] / 2**30, strict=True):
            rows += [row] * 4
            capacities += [gib, 2 * gib, math.nextafter(gib, 0), 0.0]
            reasons += ["", "", small, small]
        changes = [{path: capacity} for capacity in capacities]
        found = calculon.what_if(table.model, rows, system, changes)
        assert found.reason.tolist() == reasons
        met += len(numbers)
    assert met > 2
