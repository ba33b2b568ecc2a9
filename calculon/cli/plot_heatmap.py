"""``calculon plot heatmap`` and ``surface``: the best value over tensor and pipeline parallelism."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.units import GIB
from calculon.cli.plot_sources import Frame, about, only_table, table_title, terms, terms_of
from calculon.cli.search_options import searches
from calculon.declarations.axes import STATED_DEGREES
from calculon.documents.charts import heatmap_chart
from calculon.documents.charts.heatmap_chart import Cell, Heatmap
from calculon.render.chart import Chart
from calculon.search.objective import Objective
from calculon.search.search_counts import Counts

if TYPE_CHECKING:
    from calculon.search.task import Search

_REASONS = {
    "network_size": "network",
    "network_filled": "network",
    "offload_blocks": "offload",
    "feedforward_split": "split",
}
"""Reasons in words that fit into a cell."""


def heatmap(arguments: argparse.Namespace) -> Chart:
    """Return the best objective value for each tensor and pipeline degree, and the reason if none is feasible."""
    return heatmap_chart.heatmap(requested_heatmap(arguments))


def surface(arguments: argparse.Namespace) -> Chart:
    """Return the values as a surface; raise Infeasible if nothing can run, since a surface cannot show reasons."""
    found = requested_heatmap(arguments)
    if found.best is None:
        raise Infeasible(
            "nothing", "no plan can run: there is no surface to draw; plot heatmap says why"
        )
    return heatmap_chart.surface(found)


def requested_heatmap(arguments: argparse.Namespace) -> Heatmap:
    """Return the best objective value for each tensor and pipeline degree."""
    objective = Objective.parse(arguments.objective)
    name = objective.statistic.name
    degrees = (*STATED_DEGREES, "num_procs")
    named = only_table(arguments, (*degrees, name))
    if named is not None:
        table = named.complete(degrees)
        cells, count = list(_table_cells(table, objective)), int(table.column("num_procs")[0])
        title = f"{table_title(table)}: {count:,} processors"
        editions = terms_of(table.data)
    else:
        asked = searches(arguments)
        if len(asked) > 1:
            problem = Problem("", "one processor count", f"{len(asked)} of them")
            raise SpecError("NUM_PROCS", problem)
        cells = list(_searched_cells(asked[0]))
        title = f"{about(asked[0])}, {asked[0].num_procs:,} processors"
        editions = [terms(asked[0])]
    return Heatmap(title, name, cells, objective.sense == "min", editions)


def _table_cells(table: Frame, objective: Objective) -> Iterator[Cell]:
    """Yield a cell for each pair of degrees of a table whose product divides the processor count."""
    counts = np.unique(table.column("num_procs"))
    if len(counts) > 1:
        hint = f"choose one: --where 'num_procs == {counts[0]:.0f}'"
        problem = Problem("num_procs", "one processor count", f"{len(counts)} of them", hint)
        raise SpecError(table.name, problem)
    tensor, pipeline = table.column("tensor_par"), table.column("pipeline_par")
    values = table.column(objective.statistic.name)
    best: dict[tuple[int, int], float | None] = {}
    # fmax and fmin ignore NaN, the statistics of rows that found no execution.
    choose = np.fmax if objective.sense == "max" else np.fmin
    for t in np.unique(tensor):
        for p in np.unique(pipeline[tensor == t]):
            found = choose.reduce(values[(tensor == t) & (pipeline == p)])
            best[int(t), int(p)] = None if np.isnan(found) else float(found)
    for t in sorted({t for t, _ in best}):
        for p in sorted({p for _, p in best}):
            if counts[0] % (t * p) == 0:
                yield Cell(tensor_par=t, pipeline_par=p, value=best.get((t, p)))


def _searched_cells(search: "Search") -> Iterator[Cell]:
    """Yield a cell for each pair of degrees of a space, with one search per cell."""
    from calculon.search.task import run_search

    units = dict.fromkeys((unit.tensor_par, unit.pipeline_par) for unit in search.space().units)
    for t, p in units:
        fix = {**search.fix, "tensor_par": (t,), "pipeline_par": (p,)}
        one = replace(search, fix=fix, top=1)
        outcome = run_search(one)
        if not outcome.numbers:
            yield Cell(tensor_par=t, pipeline_par=p, note=why_not(outcome.counts))
            continue
        score = np.array(outcome.scores[0][0])
        value = float(one.ranking().objectives[0].value(score))
        yield Cell(tensor_par=t, pipeline_par=p, value=value)


def why_not(counts: Counts) -> str:
    """Return a short reason why nothing can run: the smallest memory shortage, or the most frequent reason.

    >>> why_not(Counts(total=1, nearest_miss={"mem1_capacity": 3.2 * GIB}))
    '+3.2 GiB'
    """
    misses = [m for reason, m in counts.nearest_miss.items() if reason.startswith("mem")]
    if misses and not counts.good:
        return f"+{max(0.1, min(misses) / GIB):,.{0 if min(misses) > 99 * GIB else 1}f} GiB"
    reason = max(counts.reasons, key=lambda name: counts.reasons[name], default="")
    return "" if counts.good else _REASONS.get(reason, "")
