"""``calculon plot scaling`` and ``plot pareto``: curves from tables of executions or from searched spaces."""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calculon.base.errors import Infeasible
from calculon.cli.plot_sources import (
    Frame,
    about,
    editions_of,
    frames,
    only_table,
    table_title,
    terms,
    terms_of,
)
from calculon.cli.result_files import short_name
from calculon.cli.search_options import searches
from calculon.declarations.axes import PUBLISHED_DEGREES
from calculon.documents.charts import pareto_chart, scaling_chart
from calculon.documents.charts.scaling_chart import Point, Series
from calculon.documents.pareto import COUNTED, axis, pareto_points
from calculon.editions import find_edition
from calculon.render.chart import Chart
from calculon.search.objective import check_statistic
from calculon.study.study_fields import kind_of

if TYPE_CHECKING:
    from calculon.estimate.evaluate import Evaluation
    from calculon.search.task import Search

SMALL = 300_000
"""Largest number of feasible executions that are all drawn; beyond it only the best are."""

_GROUPS = ("model", "system", "datatype")
_ALSO = ("max_batch_size",)  # in a study: separate series if one processor count has several values


def scaling(arguments: argparse.Namespace) -> Chart:
    """Return the best rate by processor count, with one series per table, or one for a space."""
    return scaling_chart.scaling(requested_series(arguments))


def requested_series(arguments: argparse.Namespace) -> list[Series]:
    """Return the series of the scaling chart."""
    names = ("num_procs", "asked_num_procs", "sample_rate", "total_efficiency", *_GROUPS, *_ALSO)
    tables = frames(arguments, names, also=_is_changed)
    if tables:
        series = [one for table in tables for one in _table_series(table)]
    else:
        series = [_searched_series(searches(arguments, recommends=True))]
    if all(point.rate is None for one in series for point in one.points):
        files = ", ".join(table.name for table in tables)
        none = f"{files}: no row has an execution to draw" if tables else ""
        searched = "no plan can run on any of these numbers of processors"
        raise Infeasible("nothing", none or searched)
    return series


def _is_changed(name: str) -> bool:
    """Return True if a study's column is a path into a model or system file."""
    return kind_of(name) in ("model", "system")


def _table_series(table: Frame) -> Iterator[Series]:
    """Yield one series for each model and system of a table, and for each change that a study makes to them."""
    data = table.data
    counts = "asked_num_procs" if "asked_num_procs" in data.columns else "num_procs"
    for name in (counts, "sample_rate", "total_efficiency"):
        table.column(name)
    groups = [n for n in _GROUPS if n in data.columns and data[n].nunique() > 1]
    for name in data.columns:
        if name in _ALSO or _is_changed(name):
            # A column separates series only if it varies for one processor count.
            words = data[name].map(_word)
            if words.groupby(data[counts]).nunique().max() > 1:
                groups.append(name)
    keys = [data[name].map(_word) for name in groups]
    editions = editions_of(data)
    for edition, known in zip(editions, terms_of(data), strict=True):
        rows = data[table.column("edition") == edition]
        words = f"edition {edition}" if len(editions) > 1 else ""
        parts = (
            rows.groupby([key[rows.index] for key in keys], sort=False) if keys else [((), rows)]
        )
        for key, members in parts:
            label = _label(dict(zip(groups, key, strict=True))) or short_name(table.name)
            yield Series(", ".join(filter(None, (label, words))), _points(members, counts), known)


def _word(value: Any) -> str:
    """Return a value of a study as text; empty for a missing value."""
    if value is None or value != value:  # noqa: PLR0124
        return ""
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _label(values: dict[str, str]) -> str:
    """Return the name of a series: its model and system, and their changes."""
    sources = " on ".join(filter(None, map(values.pop, _GROUPS[:2], ("", ""))))
    datatype = values.pop("datatype", "")
    changes = [f"{name} {word}" for name, word in values.items() if word]
    return ", ".join(filter(None, (sources, datatype, *changes)))


def _points(data: Any, counts: str) -> list[Point]:
    """Return the row with the best rate for each processor count, in ascending order."""
    best = data.sort_values("sample_rate", ascending=False, kind="stable")
    best = best.dropna(subset=[counts]).drop_duplicates(counts).sort_values(counts)
    rows = best[[counts, "sample_rate", "total_efficiency"]].to_numpy(float)
    return [
        Point(int(count), None if np.isnan(rate) else rate, None if np.isnan(rate) else share)
        for count, rate, share in rows.tolist()
    ]


def _searched_series(searches: "list[Search]") -> Series:
    """Search every processor count and return the series of the best."""
    points = []
    for search in sorted(searches, key=lambda one: one.num_procs):
        found = _found(replace(search, top=1))
        if found is None:
            points.append(Point(search.num_procs, None, None))
            continue
        rate, share = (found[name][0].item() for name in ("sample_rate", "total_efficiency"))
        points.append(Point(search.num_procs, rate, share))
    return Series(about(searches[0]), points, terms(searches[0]))


def _found(search: "Search") -> "Evaluation | None":
    """Run a search and return the executions it found; None if there are none."""
    from calculon.search.task import run_search

    result = run_search(search).result(search)
    return result.evaluation if len(result) else None


def pareto(arguments: argparse.Namespace) -> Chart:
    """Return the chart of one statistic against another, from a table or the best executions of a space."""
    return pareto_chart.pareto(requested_pareto(arguments))


def requested_pareto(arguments: argparse.Namespace) -> pareto_chart.Pareto:
    """Return the executions of the Pareto chart."""
    y, x = axis(arguments.rate, "--rate"), axis(arguments.against, "--against")
    table, complete = only_table(arguments, (y[0], x[0], *PUBLISHED_DEGREES)), True
    if table is not None:
        title, editions = table_title(table), terms_of(table.data)
        parts = [table.complete((y[0], x[0])).column]
    else:
        asked = searches(arguments)
        for name, option in ((y[0], "--rate"), (x[0], "--against")):
            check_statistic(name, option, find_edition(asked[0].edition))
        title, editions = about(asked[0]), [terms(asked[0])]
        if len(asked) == 1:
            title += f": {asked[0].num_procs:,} processors"
        complete, found = _executions(asked, y, x)
        parts = [one.column for one in found]
    if not parts:
        raise Infeasible("nothing", "no execution of this space can run")
    return pareto_points(title, y, x, parts, editions, complete=complete)


def _executions(
    searches: "list[Search]", y: tuple[str, float], x: tuple[str, float]
) -> "tuple[bool, list[Evaluation]]":
    """Return all executions of a small space, or the Pareto candidates of a large one.

    If the processor count is an axis, the best execution of each count is enough.
    """
    from calculon.search.driver import feasible_tables
    from calculon.search.request import make_condition
    from calculon.search.task import run_search

    # A count-only search is cheap and decides if drawing every feasible execution is affordable.
    counted = sum(run_search(replace(one, top=1, where=None)).counts.good for one in searches)
    if counted <= SMALL:
        tables = (
            table
            for one in searches
            for table in feasible_tables(
                one.space(), make_condition(one.where, find_edition(one.edition))
            )
        )
        return True, [table for table in tables if len(table)]
    axes = [
        f"{name}:{'max' if sign > 0 else 'min'}" for name, sign in (y, x) if name not in COUNTED
    ]
    if len(axes) == 2:
        wanted = [replace(one, pareto=tuple(axes)) for one in searches]
    else:
        wanted = [replace(one, objective=axes[0], top=1) for one in searches]
    found = (_found(one) for one in wanted)
    return False, [one for one in found if one is not None]
