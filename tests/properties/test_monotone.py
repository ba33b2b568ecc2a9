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
from tests.properties.table import Table, above, collected, evaluated, holds
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


@pytest.mark.parametrize("name", BETTER)
def test_never_slower_and_never_less_feasible_with(name):
    """The change makes a difference to some, which the law allows one way only."""
    decided = []

    def slower(factor, table):
        improved = table.on(lambda system: BETTER[name](system, factor)).found
        lost = table.found.feasible & ~improved.feasible
        before, after = table.found["total_time"], improved["total_time"]
        decided.append((after < before) | (improved.feasible & ~table.found.feasible))
        return np.where(lost, np.inf, above(after, before))

    for number, table in enumerate(drawn()):
        holds(partial(slower, (16, 2, 1.001)[number % 3]), [table], least=0)
    assert np.concatenate(decided).any()


@pytest.mark.parametrize("tier", [1, 2])
def test_a_memory_is_large_enough_exactly_from_what_is_needed(tier):
    met = 0
    for table in drawn()[::4]:
        system = copy.deepcopy(table.system)
        system["mem1"]["GiB"] = system["mem2"]["GiB"] = 1e12
        large = calculon.evaluate(table.model, system, table.rows)
        for row, needed in zip(table.rows, large[f"proc_mem_tier{tier}_cap_req"], strict=True):
            if not needed > 0:  # not-a-number where it cannot run anyhow
                continue
            gib = needed / 2**30
            for capacity, reason in (
                (gib, ""),
                (2 * gib, ""),
                (math.nextafter(gib, 0), f"mem{tier}_capacity"),
                (0, f"mem{tier}_capacity"),
            ):
                system[f"mem{tier}"]["GiB"] = capacity
                assert calculon.evaluate(table.model, system, [row]).reason[0] == reason
            met += 1
    assert met > 2
