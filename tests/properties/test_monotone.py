"""A better machine is never slower, and never has less room.

It holds in edition ``sc23`` while nothing is overlapped: an overlapped collective is charged for compute that it slows
down, and then a faster engine can cost time. Neither is offload traffic of a model on one stage: it hides behind the
latency of transfers that do not happen (specification, section 5.11, p = 1).
"""

import copy
import math
import re
from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st

import calculon
from tests.draws import draws
from tests.properties.table import Table, above, collected, evaluated, holds_on_changes, values_of
from tests.store import stored
from tests.strategies import SWITCHES, executions, models, systems


def figures(better):
    """Return a function that improves a system by a factor: each value whose path matches a pattern."""

    def change(system, factor):
        for path, part, key in values_of(system):
            for pattern, improved in better.items():
                if re.fullmatch(pattern, path):
                    part[key] = improved(part[key], factor)

    return change


def raised(value, factor):
    """Return a better rate."""
    return value * factor


def lowered(value, factor):
    """Return a better latency."""
    return value / factor


def raised_share(value, factor):
    """Return a better efficiency."""
    return min(1.0, value * factor)


BETTER = {
    "a faster matrix engine": figures({r"matrix\..*\.tflops": raised}),
    "a faster vector engine": figures({r"vector\..*\.tflops": raised}),
    "a faster tier-1 memory": figures({r"mem1\.GBps": raised}),
    "a faster tier-2 memory": figures({r"mem2\.GBps": raised}),
    "a higher network bandwidth": figures({r"networks.*\.bandwidth": raised}),
    "a higher network efficiency": figures({r"networks.*\.efficiency": raised_share}),
    "a lower network latency": figures({r"networks.*\.latency": lowered}),
    "a larger network": figures({r"networks.*\.size": lambda size, factor: size * round(factor)}),
    "higher efficiencies": figures({r"(matrix|vector|mem).*_efficiency\[\d+\]\[1\]": raised_share}),
}


def better_by(factor, better):
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
        holds_on_changes(slower, table, {name: better_by(factor, BETTER[name]) for name in BETTER})
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
