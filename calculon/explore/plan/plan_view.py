"""The plan view: cost, time and memory by part, prediction interval, and improvements."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from calculon.advise.infeasibility import why_none
from calculon.declarations.origin import plain_name
from calculon.declarations.statistics import MEMORIES
from calculon.documents.charts.breakdown import parts_of_time, time_parts
from calculon.documents.charts.stage_memory_chart import kinds_of, stage_memory
from calculon.documents.charts.traffic_chart import traffic_chart
from calculon.documents.confidence import confidence_section
from calculon.documents.page import PARTS as PARTS_OF_TIME
from calculon.documents.page import estimate_page, time_section, traffic_degrees, traffic_section
from calculon.documents.rank_group_table import groups_section
from calculon.estimate.interval import MEASURED
from calculon.explore.answers import Answers
from calculon.explore.page_state import State
from calculon.explore.plan.key_figures import key_figures, words_of
from calculon.explore.plan.plan_changes import against, fixes, single_changes
from calculon.explore.view_part import ViewPart, ViewPartKind
from calculon.render.chart import legend_entries, linked
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Block, Facts, Section, Swatches, dim, numbers, words


def _problem(state: State, answers: Answers) -> ViewPart | None:
    """Return the reason why the plan cannot run."""
    shown = answers.plan(state)
    if not shown.problem:
        return None
    plan = words_of(state, answers, shown)
    problem = shown.problem if state.plan else why_none(answers.best_plans(state).counts)
    lines = [line.removeprefix("execution: ") for line in problem.splitlines()]
    lines = [line[:1].upper() + line[1:] if " " in line.split(":")[0] else line for line in lines]
    title = "This plan cannot run" if state.plan else "No plan fits"
    return ViewPart(
        title=title,
        blocks=(*([dim(plan)] if plan else []), *lines),
        spoken=f"{title}: {lines[0]}",
    )


def _figures(state: State, answers: Answers) -> ViewPart | None:
    """Return the plan in words with its key figures."""
    shown = answers.plan(state)
    result = shown.brief
    if result is None:
        return None
    facts = Facts((*key_figures(state, answers, shown, result),))
    return ViewPart(
        title="Your plan" if state.plan else "The best plan",
        blocks=(dim(words_of(state, answers, shown)), facts),
        spoken=", ".join(f"{label} {text}" for label, text, _ in facts.rows),
    )


def _time(state: State, answers: Answers) -> ViewPart | None:
    """Return the parts of the time."""
    result = answers.plan(state).brief
    if result is None:
        return None
    section = time_section(result)
    links = [_of_time(state, name) for name in parts_of_time(result)]
    return ViewPart(
        title="Where the time goes",
        blocks=(dim("Click a part for its operators, passes or traffic."),),
        chart=linked(time_parts(result), links),
        summary=f"Parts of the time: {words(section.remark)}.",
        below=(_folded(*section.blocks),),
    )


def _of_time(state: State, name: str) -> str:
    """Return the address with the details of a part of the time."""
    if name == "bubble_time":
        return f"{state.link(view='pipeline')}#part-schedule"
    if name in ("fw_time", "bw_time", "recompute_time"):
        return f"{state.link(view='pipeline')}#part-block"
    return (
        f"{state.link()}#part-{'traffic' if PARTS_OF_TIME[name][1] == 'communicating' else 'whole'}"
    )


def _memory(state: State, answers: Answers) -> ViewPart | None:
    """Return the memory of every stage."""
    stages = answers.stages(state)
    if not stages:
        return None
    result = answers.plan(state).brief
    digits = Digits(WITHOUT_INTERVAL) if result is None else result.digits
    # The stage with the largest need over its capacity decides if the plan fits.
    worst = max(stages, key=lambda one: one.over(1))
    place = f" on stage {worst.stage}" if len(stages) > 1 else ""
    said = f"{digits.gib(worst.needed[0])} of {digits.gib(worst.available[0])} usable{place}: "
    said += digits.left(-worst.over(1))
    sizes = [one.parts[0] for one in stages]
    kinds = kinds_of(sizes)
    second = [MEMORIES[1]] * any(one.needed[1] for one in stages)
    titles = ("stage", "blocks", *kinds, "sum", *second)
    rows = (
        (
            str(one.stage),
            str(one.blocks),
            *(digits.gib(one.parts[0].get(kind, 0.0)) for kind in kinds),
            *map(digits.gib, one.needed[: 1 + len(second)]),
        )
        for one in stages
    )
    table = numbers(titles, rows)
    chart = stage_memory(sizes, stages[0].available[0], result, state.title)
    if shown_runs := result is not None:
        chart = linked(chart, [_of_stage(state, one.stage) for one in stages])
    entries = tuple((str(mark.color), mark.name) for mark in legend_entries(chart.panels))
    return ViewPart(
        title="Memory of each stage" if len(stages) > 1 else "Memory",
        blocks=(
            said,
            dim("Click a bar for the stage.") if shown_runs else "",
            Swatches(entries),
        ),
        chart=chart,
        key=True,
        summary=f"Memory by kind and stage: {said}.",
        below=(_folded(table),),
    )


def _of_stage(state: State, number: int) -> str:
    """Return the address of a stage."""
    there = replace(state, view="pipeline").with_options(stage=str(number))
    return f"{there}#part-stage"


def _confidence(state: State, answers: Answers) -> ViewPart | None:
    """Return the basis of the prediction interval, and similar measured runs."""
    result = answers.plan(state).brief
    if result is None or result.belief is None:
        return None
    belief: Mapping[str, Any] = result.belief
    said = result.digits.duration(result.value("total_time"))
    if result.ends:
        level = f"{100 * belief['level']:.0f} of 100"
        said += f"; {level} similar measured runs fell within {result.ends}"
    section = confidence_section(belief, memory=True)
    basis = dim(f"Based on {words(section.remark)}.")
    separate = dim(_SEPARATE) if plain_name(answers.system(state).name) in MEASURED else ""
    return ViewPart(
        title="Prediction interval", blocks=(f"{said}.", basis, separate, *section.blocks)
    )


_SEPARATE = (
    "The kernels of this system were measured on its own processors. The same plan can therefore be a few percent "
    "slower than on a similar system with lower rates (an H200 compared with an H100); such differences are smaller "
    "than the interval."
)


def _traffic(state: State, answers: Answers) -> ViewPart | None:
    """Return the traffic by kind of parallelism, and the process groups."""
    result = answers.plan(state).result
    if result is None:
        return None
    chart, section = traffic_chart(result), traffic_section(result)
    if chart is None:
        return ViewPart(title="Traffic", blocks=("None: one processor works alone.",))
    groups = groups_section(result.groups, result.domains)
    links = [f"{state.link()}#{_alternatives(one)}" for one in traffic_degrees(result)]
    return ViewPart(
        title="Traffic",
        blocks=(
            section.remark,
            *_over_pcie(state, answers),
            dim("Click a bar for other degrees of its parallelism."),
        ),
        chart=linked(chart, links),
        summary=f"Traffic of each kind of parallelism in a step: {words(section.remark)}.",
        below=(_folded(*section.blocks), *([replace(groups, opened=True)] if groups else [])),
    )


def _over_pcie(state: State, answers: Answers) -> tuple[Block, ...]:
    """Return a note on tensor parallelism over PCIe, which is rarely used."""
    estimate = answers.plan(state).estimate
    assert estimate is not None
    degree, system = estimate.execution.tensor_par, estimate.system
    spanned = (i for i, one in enumerate(system.networks) if one.size >= degree)
    if degree == 1 or system.link(next(spanned, 0)).kind != "pcie":
        return ()
    return (
        "Tensor parallelism runs over PCIe. Its rates are those of cards below one switch that access each other's "
        "memory directly; without peer-to-peer access (GeForce cards) it is slower than predicted.",
    )


def _alternatives(degree: str) -> str:
    """Return the anchor of alternative degrees; data parallelism, which follows from the others, links to ZeRO."""
    return f"changes-{'zero_stage' if degree == 'data_par' else degree}"


def _whole(state: State, answers: Answers) -> ViewPart | None:
    """Return the page of the plan, as the command prints it."""
    result = answers.plan(state).result
    if result is None:
        return None
    whole = Section("Full output of calculon estimate", (estimate_page(result),))
    return ViewPart(title="", blocks=(whole,))


def _folded(*blocks: Block) -> Section:
    """Return the chart's data as a table in a closed section."""
    return Section("Data as a table", blocks)


PARTS = (
    ViewPartKind(name="problem", title="This plan cannot run", make=_problem),
    ViewPartKind(name="figures", title="The plan", make=_figures),
    ViewPartKind(name="time", title="Where the time goes", make=_time),
    ViewPartKind(name="memory", title="Memory of each stage", make=_memory, later=True),
    ViewPartKind(name="mend", title="What would make it run", make=fixes, later=True),
    ViewPartKind(name="against", title="From your plan to the best", make=against, later=True),
    ViewPartKind(
        name="changes", title="The effect of single changes", make=single_changes, later=True
    ),
    ViewPartKind(name="traffic", title="Traffic", make=_traffic, later=True),
    ViewPartKind(name="sure", title="Prediction interval", make=_confidence, later=True),
    ViewPartKind(name="whole", title="The whole page", make=_whole, later=True),
)
