"""The search view: objective and candidates, and the plans found as a table, a heatmap and a chart."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from calculon.advise.candidate import candidate_of
from calculon.advise.infeasibility import why_none
from calculon.base.errors import CalculonError, in_words
from calculon.base.records import Column as Statistic
from calculon.base.records import columns
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
from calculon.documents.confidence import WHY_TIED
from calculon.documents.plans_table import figure
from calculon.documents.why_page import percent_more
from calculon.documents.winners import reasons_table, ties
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers
from calculon.explore.labels import label, value_words
from calculon.explore.page_state import State
from calculon.explore.plain_words import in_labels, in_short
from calculon.explore.search.found_plans import FoundPlans, plan_point, split_name
from calculon.explore.search.searches import (
    SearchSettings,
    axes,
    best_alone,
    best_of_all,
    counts_of,
    each_split,
    offered,
    on_count,
    opened,
    pareto_plans,
    search_settings,
)
from calculon.explore.view_part import ViewPart, ViewPartKind, html
from calculon.render.document import Block, Facts, Grid, Section, Styled, dim, headed
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent
from calculon.search.objective import Objective, known_statistic
from calculon.search.overrides import FIXABLE
from calculon.search.search_counts import FEASIBLE
from calculon.search.search_result import SearchResult

USUAL = (
    *("total_time", "proc_mem_tier1_cap_req", "mfu", "sample_rate"),
    *("total_efficiency", "tp_comm_exposed_time"),
)
"""Most useful statistics, which are offered first."""

OF_RUNS = ("days", "usd", "processor_hours", "mwh")
"""Most useful figures of whole runs."""


def _question(state: State, answers: Answers) -> ViewPart:
    """Return the controls of the search."""
    it, more = search_settings(state, answers), offered(state, answers)
    for name in ("y", "x"):  # raises an error for unknown statistics
        Objective.parse(state.option(name), name, whole_runs=it.space.runs is not None)
    form = html(
        "search_question.html",
        state=state,
        lists=_words(state),
        statistics={"objective": _offered(state, "objective")},
        more=[
            (name, label(name), ", ".join(value_words(name, value) for value in values))
            for name, values in more.items()
        ],
        opened=opened(state) & {*more},
    )
    fixed = ", ".join(f"{name.lower()} {values}" for name, values in _fixed(it).items())
    return ViewPart(title="Search settings", blocks=(form, dim(f"Fixed: {fixed}.")))


def _words(state: State) -> dict[str, dict[str, str]]:
    """Return the completions of the text controls with their meanings, short names first."""
    known = _statistics(state)
    statistics = {short_of(name): known[name].help for name in (*_usual(state), *known)}
    fields = {short_of(name): label(name) for name in FIXABLE}
    words = {one: statistics[one] for one in statistics if one.isidentifier()}
    return {
        "condition-words": {**words, **fields},
        "value-words": {f"{name}=": words for name, words in fields.items()},
    }


def _usual(state: State) -> tuple[str, ...]:
    """Return the most useful statistics."""
    return (*USUAL, *(OF_RUNS if state.tokens else ()))


def _offered(state: State, name: str) -> list[tuple[str, list[tuple[str, str, bool]]]]:
    """Return the statistics for an option in groups: value, label, and True for the current value."""
    known, now, usual = _statistics(state), state.option(name), _usual(state)

    def options(names: Iterable[str]) -> list[tuple[str, str, bool]]:
        return [
            (one, in_labels(in_short(known[one].help)), now in (one, short_of(one)))
            for one in names
        ]

    groups = [("Usual", options(usual)), ("All", options(one for one in known if one not in usual))]
    # An address may name any statistic, which then needs an option of its own.
    if not any(chosen for _, several in groups for *_, chosen in several):
        statistic, _, sense = now.partition(":")
        words = known[statistic].help if statistic in known else statistic
        own = f"{words}, {'least' if sense == 'min' else 'most'} first" if sense else words
        groups.insert(0, ("Now", [(now, own, True)]))
    return groups


def _statistics(state: State) -> Mapping[str, Statistic]:
    """Return the available statistics by name."""
    known = {one.name: one for one in columns(CorrectedStats)}
    return {**known, **RUN_FIGURES} if state.tokens else known


def _fixed(it: SearchSettings) -> dict[str, str]:
    """Return the fields that the question fixes for every execution."""
    fixed = it.question.fixed
    return {
        label(name): ", ".join(value_words(name, one) for one in _several(values))
        for name, values in {"batch_size": it.question.batch_size, **fixed}.items()
    }


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _best(state: State, answers: Answers) -> ViewPart:
    """Return the best plan, the number of tried executions, and the reasons of infeasibility."""
    it, found = search_settings(state, answers), best_of_all(state, answers)
    counts = found.counts
    reasons = reasons_table(counts.total, counts.good, counts.reasons, counts.nearest_miss)
    seconds = duration(found.seconds, found.seconds / 20)
    tried = f"{counts.total:,} plans tried in {seconds}, {counts.good:,} can run"
    why = Section(tried, (reasons,))
    if not len(found):
        return ViewPart(title="No plan", blocks=(_why_none(it, found), why))
    plans = FoundPlans(it, found, state, answers)
    best = Styled(plans.words(0), "bold", link=plans.link(0), hint="Show this plan")
    figures = Facts(tuple((*one, "") for one in _figures(plans)))
    shown = answers.plan(state).estimate
    compared = "" if shown is None else _shown(plans, shown)
    return ViewPart(
        title="Best plan",
        blocks=(best, figures, compared, why),
        spoken=f"{plans.words(0)}: {plans.text(0)}",
    )


def _figures(plans: FoundPlans) -> list[tuple[str, str]]:
    """Return the figures of the best plan with their labels."""
    stats = plans.winners[0][1]
    one = plans.asked.objective.statistic
    names = ["total_time", "proc_mem_tier1_cap_req", "sample_rate"]
    found = {name: plans.table[name][0] for name in dict.fromkeys((*names, one.name))}
    return [
        (known.help, figure(known, float(value), stats))
        for name, value in found.items()
        for known in [_statistic(plans.asked, name)]
    ]


def _statistic(it: SearchSettings, name: str) -> Statistic:
    return known_statistic(name, "address", whole_runs=it.space.runs is not None)


def _shown(plans: FoundPlans, shown: Estimate) -> str:
    """Describe how the page's plan compares with the best."""
    stats = candidate_of(shown).stats
    if (value := stats.get(plans.shown.name)) is None:
        return ""
    if _same(plans.winners[0][0], shown):
        return "The plan view shows this plan."
    further = percent_more(plans.worse(float(value), plans.value(0)))
    words = figure(plans.shown, float(value), stats)
    return f"The plan that this page shows has {words}: {further} against this one."


def _why_none(it: SearchSettings, result: SearchResult) -> str:
    if result.counts.good:
        return f"None of {result.counts.good:,} plans that can run meets the condition."
    reason = why_none(result.counts)
    return f"{reason[0].upper()}{reason[1:]}."


def _table(state: State, answers: Answers) -> ViewPart | None:
    """Return the best plan of each split."""
    it, found = search_settings(state, answers), each_split(state, answers)
    if not len(found):
        return None
    plans = FoundPlans(it, found, state, answers)
    shown = answers.plan(state)
    own = (
        None if not state.plan or shown.estimate is None else shown.estimate.stats[plans.shown.name]
    )
    listed = plans.plans
    known = {one.key: one for one in listed.table.columns if one.key not in ("rank", "procs")}
    words = known.pop("words", None)
    columns = (
        known.pop("plan"),  # the label of the row
        *known.values(),
        Column("further", "against the best", right=True),
        *((Column("own", "against yours", right=True),) if own is not None else ()),
        *((words,) if words else ()),
    )
    rows = [
        {
            **cells,
            "plan": _plan(plans, rank, selected=_same(plans.winners[rank][0], shown.estimate)),
            "further": percent_more(plans.worse(plans.value(rank), plans.value(0))),
            "own": percent_more(plans.worse(plans.value(rank), own or 0.0)),
        }
        for rank, cells in zip(plans.ranks, listed.table.rows, strict=True)
    ]
    first, others = Table(columns, rows[:FEW_ROWS]), Table(columns, rows[FEW_ROWS:])
    why = f" {WHY_TIED}." if any(plans.tied(rank) for rank in plans.ranks) else ""
    return ViewPart(
        title="Best plan of each TP, PP and DP split",
        blocks=(
            dim(listed.shared),
            first,
            Section(f"{len(others.rows)} more", (others,)) if others.rows else "",
            f"{ties(found, ranked=False)}.{why}",
            dim(f"{listed.meaning}."),
        ),
    )


FEW_ROWS = 12
"""Number of plans listed initially."""


def _plan(plans: FoundPlans, rank: int, *, selected: bool) -> Styled:
    """Return the degrees of a plan with a link to its page."""
    words = degrees_words(plans.winners[rank][0])
    style = "current" if selected else ""
    return Styled(words, style, link=plans.link(rank), key=plans.split(rank))


def _same(plan: Mapping[str, Any], shown: Estimate | None) -> bool:
    """Return True if a plan of a search is the shown plan, not only one with the same split."""
    return shown is not None and all(
        getattr(shown.execution, name) == value for name, value in plan.items()
    )


def _splits(state: State, answers: Answers) -> ViewPart | None:
    """Return the heatmap of splits."""
    it, found = search_settings(state, answers), each_split(state, answers)
    plans = FoundPlans(it, found, state, answers)
    cells = list(_cells(plans))
    if len(cells) < 2:
        return None
    shown = answers.plan(state).estimate
    own = (plans.split(rank) for rank in plans.ranks if _same(plans.winners[rank][0], shown))
    smallest = plans.worse(2.0, 1.0) > 0
    terms, selected = [_terms(it)], next(own, "")
    shown_map = Heatmap(_searched(it, state), plans.shown.name, cells, smallest, terms, selected)
    good = len(shown_map.feasible)
    tied = any(plans.tied(rank) for rank in plans.ranks)
    ties = "; ~: too close to the best to call, as explained below the next table"
    return ViewPart(
        title="Tensor and pipeline parallelism",
        blocks=(
            dim(
                f"Each cell: {plans.shown.help} of the best plan{ties if tied else ''}; a cross: no plan can run; "
                "blank cells have nothing to try. Click a cell for its plan."
            ),
            Section("Data as a table", tuple(_split_table(cells, *shown_map.degrees))),
        ),
        chart=heatmap(shown_map),
        summary=f"Best {plans.shown.help} of each split: {good} of {len(cells)} splits have a plan. "
        "The table has all of them.",
    )


def _split_table(
    cells: Sequence[Cell], tensor: Sequence[int], pipeline: Sequence[int]
) -> Iterator[Block]:
    """Yield the splits as a grid, and the reasons of splits without a plan."""
    known = {
        (cell.tensor_par, cell.pipeline_par): Styled(
            cell.text or "\N{MULTIPLICATION SIGN}", link=cell.link, hint=cell.words, key=cell.key
        )
        for cell in cells
    }
    heads = ("PP", *(f"TP {x}" for x in tensor))
    rows = [(f"{y}", *(known.get((x, y), "") for x in tensor)) for y in pipeline]
    yield headed(("left", *["right"] * len(tensor)), heads, rows)
    if reasons := [cell.words.split(": ", 1) for cell in cells if not cell.link]:
        yield Grid(("left", "text"), tuple((split, dim(reason)) for split, reason in reasons))


def _cells(plans: FoundPlans) -> Iterator[Cell]:
    """Yield the tried splits: each with its best plan, or the reason why it has none."""
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
    """Return the reason why no plan of a split can run."""
    if reasons[FEASIBLE]:
        return f"none of {reasons[FEASIBLE]:,} plans that can run meets the condition"
    reason, times = reasons.most_common(1)[0]
    share = percent(times / reasons.total())
    several = len(reasons) > 1
    return in_words(reason) + (f" ({share} of {reasons.total():,} plans)" if several else "")


def _front(state: State, answers: Answers) -> ViewPart | None:
    """Return the plans by two statistics."""
    it = search_settings(state, answers)
    unbeaten, each = pareto_plans(state, answers), each_split(state, answers)
    if not len(each):
        return None
    y, x = (_statistic(it, name.partition(":")[0]) for name in axes(state))
    splits = FoundPlans(it, each, state, answers)
    along = _points(FoundPlans(it, unbeaten, state, answers), x, y, range(len(unbeaten)))
    rows = sorted(along, key=lambda one: one.x)
    points = list(_points(splits, x, y, splits.ranks))
    best = next(_points(splits, x, y, [0]), None)
    lines = tuple(
        (Styled(plan, link=one.link, key=one.key), figures)
        for one in rows
        for plan, figures in [one.words.split("\n")]
    )
    unbeaten_words = (
        f"{len(rows)} plans are Pareto-optimal: no other is better in one and as good in the other statistic. "
        "Click a point for its plan."
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
    return ViewPart(
        title="Trade-offs between plans",
        blocks=(
            html(
                "search_front.html",
                statistics={name: _offered(state, name) for name in ("x", "y")},
            ),
            dim(unbeaten_words),
            Section("Data as a table", (Grid(("text", "left"), lines),)),
        ),
        chart=chart,
        summary=f"{y.help} over {x.help}: {len(rows)} plans on the Pareto front",
    )


def _points(
    plans: FoundPlans, x: Statistic, y: Statistic, ranks: Iterable[int]
) -> Iterator[PlanPoint]:
    """Yield plans as points; plans without one of the statistics are omitted."""
    across, up = plans.table[x.name].tolist(), plans.table[y.name].tolist()
    for rank in ranks:
        if math.isfinite(across[rank] + up[rank]):
            place, link = (across[rank], up[rank]), plans.link(rank)
            yield plan_point(x, y, place, *plans.winners[rank], plans.words(rank), link)


def _own_point(state: State, answers: Answers, it: SearchSettings) -> PlanPoint | None:
    """Return the user's plan as a point."""
    shown = answers.plan(state)
    if not state.plan or shown.estimate is None:
        return None
    stats = candidate_of(shown.estimate).stats
    y, x = (_statistic(it, name.partition(":")[0]) for name in axes(state))
    across, up = (stats.get(one.name) for one in (x, y))
    if across is None or up is None:
        return None
    words = "The plan of this page"
    return plan_point(x, y, (across, up), shown.fields, stats, words, state.link())


def _counts(state: State, answers: Answers) -> ViewPart | None:
    """Return the best plan for several processor counts with the same batch."""
    counts = counts_of(state, answers)
    if not counts:
        return None
    found = [_on_count(on_count(state, answers, procs), answers) for procs in counts]
    plans = [one for one in found if isinstance(one, FoundPlans)]
    names = [name for name, _ in _figures(plans[0])] if plans else []
    rates = [one.winners[0][1]["sample_rate"] / one.state.procs for one in plans]
    rows, points = [], []
    for procs, one in zip(counts, found, strict=True):
        link = on_count(state, answers, procs).link()
        count = Styled(f"{procs:,}", "current" if procs == state.procs else "", link=link)
        if isinstance(one, str):
            rows.append((count, *[""] * (len(names) + 1), dim(one)))
            points.append(CountPoint(num_procs=procs, words=one, link=link))
            continue
        stats = one.winners[0][1]
        figures = (value for _, value in _figures(one))
        efficiency = percent(stats["sample_rate"] / procs / rates[0])
        rows.append((count, *figures, efficiency, one.words(0)))
        points.append(count_point(procs, one.words(0), stats, link))
    heads = ("processors", *names, "efficiency", "best plan")
    return ViewPart(
        title="Other processor counts",
        blocks=(
            headed(("right", *["right"] * (len(names) + 1), "text"), heads, rows),
            dim(
                "With the same batch; efficiency: sequences per second per processor relative to the first row; "
                "total efficiency: useful arithmetic at peak rate, over the time."
            ),
        ),
        chart=scaling([_series(plans[0].asked, points)]) if plans else None,
        summary="Rate and total efficiency of the best plan over the processors: "
        f"{len(plans)} of {len(points)} numbers have a plan. The table has all of them.",
    )


def _series(it: SearchSettings, points: list[CountPoint]) -> Series:
    """Return the plans for several processor counts as a series of a chart."""
    label = f"{it.question.model.name} on {it.question.system.name}"
    return Series(label, points, _terms(it))


def _searched(it: SearchSettings, state: State) -> str:
    return f"{it.question.model.name} on {state.procs:,} x {it.question.system.name}"


def _terms(it: SearchSettings) -> str:
    """Return the edition and preset of a search."""
    return f"{CORRECTED}, {it.space.preset.name}"


def _on_count(state: State, answers: Answers) -> FoundPlans | str:
    """Return the best plan of a search for a processor count, or the reason why there is none."""
    try:
        it, found = search_settings(state, answers), best_alone(state, answers)
    except CalculonError as error:
        return str(error).splitlines()[0]
    return FoundPlans(it, found, state, answers) if len(found) else _why_none(it, found)


PARTS: tuple[ViewPartKind, ...] = (
    ViewPartKind(name="search-question", title="Search settings", make=_question),
    ViewPartKind(name="search-best", title="Best plan", make=_best),
    ViewPartKind(name="search-splits", title="Tensor and pipeline parallelism", make=_splits),
    ViewPartKind(name="search-plans", title="Best plan of each TP, PP and DP split", make=_table),
    ViewPartKind(name="search-front", title="Trade-offs between plans", make=_front, later=True),
    ViewPartKind(name="search-counts", title="Other processor counts", make=_counts, later=True),
)
