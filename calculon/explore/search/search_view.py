"""The view of the search: what is looked for and tried, and the plans that were found as table, map and chart."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from calculon.advise.candidate import of_estimate, tied
from calculon.advise.unfit import why_none
from calculon.base.errors import CalculonError, in_words
from calculon.base.records import Column, columns
from calculon.base.units import duration
from calculon.declarations.named_values import CORRECTED
from calculon.declarations.plan_words import degrees_words
from calculon.declarations.run_figures import RUN_FIGURES
from calculon.declarations.short_names import short_of
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.charts.heatmap_chart import Cell, Heatmap, heatmap
from calculon.documents.charts.pareto_chart import PlanPoint, plans_chart
from calculon.documents.charts.scaling_chart import Point as CountPoint
from calculon.documents.charts.scaling_chart import Series, count_point, scaling
from calculon.documents.how_sure import WHY_TIED, ties_in_words
from calculon.documents.plans_table import figure
from calculon.documents.why_page import percent_more
from calculon.documents.winners import reasons_table
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers
from calculon.explore.choice_words import label, value_words
from calculon.explore.page_state import State
from calculon.explore.part import Part, PartKind, html
from calculon.explore.search.found_plans import FoundPlans, split_name
from calculon.explore.search.searches import (
    MOST_COUNTS,
    Asked,
    asked,
    axes,
    best_alone,
    best_of_all,
    counts_of,
    each_split,
    front,
    offered,
    on_count,
    opened,
)
from calculon.render.html import fragment
from calculon.render.texts import percent
from calculon.search.objective import Objective, known_statistic
from calculon.search.restrict import FIXABLE
from calculon.search.search_counts import FEASIBLE
from calculon.search.search_result import SearchResult

USUAL = (
    *("total_time", "proc_mem_tier1_cap_req", "mfu", "sample_rate"),
    *("total_efficiency", "tp_comm_exposed_time"),
)
"""Statistics that people look for, which are offered first."""

OF_RUNS = ("days", "usd", "processor_hours", "mwh")
"""Figures of whole runs among them."""


def _question(state: State, answers: Answers) -> Part:
    """Return the controls of the search."""
    it, more = asked(state, answers), offered(state, answers)
    for name in ("y", "x"):  # refused here, if they are none
        Objective.parse(state.option(name), name, whole_runs=it.space.runs is not None)
    told = html(
        "search_question.html",
        state=state,
        lists=_words(state),
        more=[
            (name, label(name), ", ".join(value_words(name, value) for value in values))
            for name, values in more.items()
        ],
        opened=opened(state) & {*more},
        fixed=[(name, values) for name, values in _fixed(it).items()],
        most=MOST_COUNTS,
    )
    return Part(title="What to look for", html=told)


def _words(state: State) -> dict[str, dict[str, str]]:
    """Return what may be written into the fields, each with its meaning: short names first."""
    known = _statistics(state)
    runs = OF_RUNS if state.tokens else ()
    names = dict.fromkeys((*USUAL, *runs, *known))
    statistics = {short_of(name): known[name].help for name in names}
    fields = {short_of(name): label(name) for name in FIXABLE}
    words = {one: statistics[one] for one in statistics if one.isidentifier()}
    return {
        "statistics": statistics,
        "condition-words": {**words, **fields},
        "value-words": {f"{name}=": words for name, words in fields.items()},
    }


def _statistics(state: State) -> Mapping[str, Column]:
    """Return the statistics that may be looked for, by name."""
    known = {one.name: one for one in columns(CorrectedStats)}
    return {**known, **RUN_FIGURES} if state.tokens else known


def _fixed(it: Asked) -> dict[str, str]:
    """Return what every execution that is tried has, of what a question says."""
    fixed = it.question.fixed
    return {
        label(name): ", ".join(value_words(name, one) for one in _several(values))
        for name, values in {"batch_size": it.question.batch_size, **fixed}.items()
    }


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _best(state: State, answers: Answers) -> Part:
    """Return the best of all, how many were tried, and why others cannot run."""
    it, found = asked(state, answers), best_of_all(state, answers)
    counts = found.counts
    plans = FoundPlans(it, found, state, answers)
    shown = answers.plan(state).estimate
    told = html(
        "search_best.html",
        plans=plans if len(found) else None,
        figures=_figures(plans) if len(found) else [],
        why="" if len(found) else _why_none(it, found),
        shown=_shown(plans, shown) if shown is not None and len(found) else "",
        counts=counts,
        seconds=duration(found.seconds, found.seconds / 20),
        reasons=fragment(
            [reasons_table(counts.total, counts.good, counts.reasons, counts.nearest_miss)]
        ),
    )
    return Part(title="The best" if len(found) else "No plan", html=told)


def _figures(plans: FoundPlans) -> list[tuple[str, str]]:
    """Return the figures of the best plan, with their names."""
    stats = plans.winners[0][1]
    one = plans.asked.objective.statistic
    names = ["total_time", "proc_mem_tier1_cap_req", "sample_rate"]
    found = {name: plans.table[name][0] for name in dict.fromkeys((*names, one.name))}
    return [
        (_title(plans.asked, name), figure(_statistic(plans.asked, name), float(value), stats))
        for name, value in found.items()
    ]


def _statistic(it: Asked, name: str) -> Column:
    return known_statistic(name, "address", whole_runs=it.space.runs is not None)


def _title(it: Asked, name: str) -> str:
    return _statistic(it, name).help


def _shown(plans: FoundPlans, shown: Estimate) -> str:
    """Say how the plan of the page compares with the best."""
    stats = of_estimate(shown).stats
    if (value := stats.get(plans.shown.name)) is None:
        return ""
    if _same(plans.winners[0][0], shown):
        return "It is the plan that this page shows."
    further = percent_more(plans.worse(float(value), plans.value(0)))
    words = figure(plans.shown, float(value), stats)
    return f"The plan that this page shows has {words}: {further} against this one."


def _why_none(it: Asked, found: SearchResult) -> str:
    if found.counts.good:
        return f"None of {found.counts.good:,} feasible executions meets the condition."
    return f"{why_none(found.counts).capitalize()}."


def _table(state: State, answers: Answers) -> Part | None:
    """Return the best plan of each split."""
    it, found = asked(state, answers), each_split(state, answers)
    if not len(found):
        return None
    plans = FoundPlans(it, found, state, answers)
    shown = answers.plan(state)
    own = (
        None if not state.plan or shown.estimate is None else shown.estimate.stats[plans.shown.name]
    )
    listed = plans.plans
    columns_of = {one.key: one for one in listed.table.columns}
    rows = [
        {
            "cells": cells,
            "name": plans.split(rank),
            "link": plans.link(rank),
            "further": percent_more(plans.worse(plans.value(rank), plans.value(0))),
            "own": "" if own is None else percent_more(plans.worse(plans.value(rank), own)),
            "selected": _same(plans.winners[rank][0], shown.estimate),
        }
        for rank, cells in zip(plans.ranks, listed.table.rows, strict=True)
    ]
    told = html(
        "search_plans.html",
        columns=[one for key, one in columns_of.items() if key not in ("rank", "procs", "words")],
        words=columns_of.get("words"),
        rows=rows,
        few=12,
        shared=listed.shared,
        own=own is not None,
        ties=_ties(plans),
        meaning=listed.meaning,
        why=WHY_TIED if any(plans.tied(rank) for rank in plans.ranks) else "",
    )
    return Part(title="The best plan of each split", html=told)


def _ties(plans: FoundPlans) -> str:
    """Say how many plans are not distinguishable from the fastest, and which of them is the simplest."""
    orders = plans.found.orders
    alike = sum(not order.told_apart for order in orders)
    several = tied(plans.found)
    simplest = degrees_words(several[0][1].execution) if several else ""
    return ties_in_words(alike, len(orders), simplest)


def _same(plan: Mapping[str, Any], shown: Estimate | None) -> bool:
    """Tell whether a plan of a search is the shown one, not only one of the same split."""
    return shown is not None and all(
        getattr(shown.execution, name) == value for name, value in plan.items()
    )


def _split_of(fields: Mapping[str, Any]) -> str:
    """Return the name of the split of a plan."""
    return split_name(fields.get("tensor_par", 0), fields.get("pipeline_par", 0))


def _splits(state: State, answers: Answers) -> Part | None:
    """Return the map of splits."""
    it, found = asked(state, answers), each_split(state, answers)
    plans = FoundPlans(it, found, state, answers)
    cells = list(_cells(plans))
    if len(cells) < 2:
        return None
    known = {(cell.tensor_par, cell.pipeline_par): cell for cell in cells}
    shown = answers.plan(state).estimate
    own = (plans.split(rank) for rank in plans.ranks if _same(plans.winners[rank][0], shown))
    selected = next(own, "")
    smallest = plans.worse(2.0, 1.0) > 0
    terms = [_terms(it)]
    shown_map = Heatmap(_searched(it, state), plans.shown.name, cells, smallest, terms, selected)
    across, up = shown_map.degrees
    told = html(
        "search_splits.html",
        across=across,
        up=up,
        cells=known,
        what=plans.shown.help,
        tied=any(plans.tied(rank) for rank in plans.ranks),
    )
    good = len(shown_map.feasible)
    return Part(
        title="Tensor against pipeline parallelism",
        html=told,
        chart=heatmap(shown_map),
        summary=f"Best {plans.shown.help} of each split: {good} of {len(cells)} splits have a plan. "
        "The table below has all of them.",
    )


def _cells(plans: FoundPlans) -> Iterator[Cell]:
    """Yield the splits that were tried: each with its best plan, or why it has none."""
    best = {plans.split(rank): rank for rank in reversed(plans.ranks)}
    for (tensor_par, pipeline_par), reasons in sorted(plans.found.splits.items()):
        name = split_name(tensor_par, pipeline_par)
        place = partial(Cell, tensor_par=tensor_par, pipeline_par=pipeline_par, key=name)
        if (rank := best.get(name)) is None:
            yield place(words=f"TP {tensor_par}, PP {pipeline_par}: {_reason(reasons)}")
            continue
        mark = " ~" if plans.tied(rank) else ""
        yield place(
            text=plans.text(rank) + mark,
            value=plans.value(rank),
            words=plans.words(rank),
            link=plans.link(rank),
        )


def _reason(reasons: Counter[str]) -> str:
    """Say why no plan of a split can run."""
    if reasons[FEASIBLE]:
        return f"none of {reasons[FEASIBLE]:,} feasible executions meets the condition"
    reason, times = reasons.most_common(1)[0]
    share = percent(times / reasons.total())
    several = len(reasons) > 1
    return in_words(reason) + (f" ({share} of {reasons.total():,} executions)" if several else "")


def _front(state: State, answers: Answers) -> Part | None:
    """Return the plans by two statistics."""
    it = asked(state, answers)
    unbeaten, each = front(state, answers), each_split(state, answers)
    if not len(each):
        return None
    y, x = (_statistic(it, name.partition(":")[0]) for name in axes(state))
    splits = FoundPlans(it, each, state, answers)
    along = _points(FoundPlans(it, unbeaten, state, answers), x, y, range(len(unbeaten)))
    rows = sorted(along, key=lambda one: one.x)
    points = list(_points(splits, x, y, splits.ranks))
    best = next(_points(splits, x, y, [0]), None)
    told = html(
        "search_front.html",
        state=state,
        x=x,
        y=y,
        rows=rows,
    )
    own = _own_point(state, answers, it)
    chart = None
    if rows or points:
        chart = plans_chart(
            *(_searched(it, state), _terms(it), (x.name, y.name)),
            front=rows,
            splits=points,
            shown=own,
            best=best,
        )
    return Part(
        title="What each plan costs",
        html=told,
        chart=chart,
        summary=f"{y.help} over {x.help}: {len(rows)} executions that no other one beats in both",
    )


def _points(plans: FoundPlans, x: Column, y: Column, ranks: Iterable[int]) -> Iterator[PlanPoint]:
    """Yield plans as points; those without one of the statistics have no place."""
    across, up = plans.table[x.name].tolist(), plans.table[y.name].tolist()
    for rank in ranks:
        if not math.isfinite(across[rank] + up[rank]):
            continue
        stats = plans.winners[rank][1]
        both = ", ".join(
            figure(one, value, stats) for one, value in ((y, up[rank]), (x, across[rank]))
        )
        yield PlanPoint(
            x=across[rank],
            y=up[rank],
            words=f"{plans.words(rank)}\n{both}",
            key=plans.split(rank),
            link=plans.link(rank),
        )


def _own_point(state: State, answers: Answers, it: Asked) -> PlanPoint | None:
    """Return the plan of one's own as a point."""
    shown = answers.plan(state)
    if not state.plan or shown.estimate is None:
        return None
    stats = of_estimate(shown.estimate).stats
    y, x = (_statistic(it, name.partition(":")[0]) for name in axes(state))
    across, up = (stats.get(one.name) for one in (x, y))
    if across is None or up is None:
        return None
    both = f"{figure(y, up, stats)}, {figure(x, across, stats)}"
    return PlanPoint(
        x=across,
        y=up,
        words=f"The plan of this page\n{both}",
        key=_split_of(shown.fields),
        link=state.link(),
    )


def _counts(state: State, answers: Answers) -> Part | None:
    """Return the best plan on several numbers of processors, with the same batch."""
    rows: list[dict[str, Any]] = []
    points: list[CountPoint] = []
    known: Asked | None = None
    for procs in counts_of(state, answers):
        other = on_count(state, answers, procs)
        row: dict[str, Any] = {"procs": procs, "link": other.link()}
        try:
            it = asked(other, answers)
            found = best_alone(other, answers)
        except CalculonError as error:
            none = str(error).splitlines()[0]
        else:
            none = "" if len(found) else _why_none(it, found)
        if none:
            rows.append({**row, "none": none})
            points.append(CountPoint(num_procs=procs, words=none, link=row["link"]))
            continue
        known = it
        plans = FoundPlans(it, found, other, answers)
        stats = plans.winners[0][1]
        rate = stats["sample_rate"] / procs
        rows.append({**row, "words": plans.words(0), "figures": _figures(plans), "rate": rate})
        points.append(count_point(procs, plans.words(0), stats, row["link"]))
    if not rows:
        return None
    first = next((row["rate"] for row in rows if "rate" in row), 1.0)
    names = next(([name for name, _ in row["figures"]] for row in rows if "figures" in row), [])
    told = html(
        "search_counts.html",
        rows=rows,
        here=state.procs,
        names=names,
        first=first,
        percent=percent,
    )
    good = sum(one.rate is not None for one in points)
    return Part(
        title="Other numbers of processors",
        html=told,
        chart=None if known is None else scaling([_series(known, points)]),
        summary="Rate and total efficiency of the best plan over the processors: "
        f"{good} of {len(points)} numbers have a plan. The table has all of them.",
    )


def _series(it: Asked, points: list[CountPoint]) -> Series:
    """Return the plans on several numbers of processors as a series of a chart."""
    label = f"{it.question.model.name} on {it.question.system.name}"
    return Series(label, points, _terms(it))


def _searched(it: Asked, state: State) -> str:
    return f"{it.question.model.name} on {state.procs:,} x {it.question.system.name}"


def _terms(it: Asked) -> str:
    """Return the edition with the preset of a search."""
    return f"{CORRECTED}, {it.space.preset.name}"


PARTS: tuple[PartKind, ...] = (
    PartKind(name="search-question", title="What to look for", make=_question),
    PartKind(name="search-best", title="The best", make=_best),
    PartKind(name="search-splits", title="Tensor against pipeline parallelism", make=_splits),
    PartKind(name="search-plans", title="The best plan of each split", make=_table),
    PartKind(name="search-front", title="What each plan costs", make=_front, later=True),
    PartKind(name="search-counts", title="Other numbers of processors", make=_counts, later=True),
)
