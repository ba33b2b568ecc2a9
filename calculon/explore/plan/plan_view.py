"""The view of one plan: what it costs, where time and memory go, how sure that is, and what would be better."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from calculon.advise.unfit import why_none
from calculon.documents.how_sure import memory_text, nearest_table, remarks
from calculon.documents.page import PARTS as PARTS_OF_TIME
from calculon.documents.page import estimate_page, traffic
from calculon.documents.rank_group_table import groups_section
from calculon.documents.result import Result
from calculon.explore.answers import Answers
from calculon.explore.charts.link_times import link_times
from calculon.explore.charts.memory_bars import kinds_of, memory_bars
from calculon.explore.charts.time_parts import time_parts
from calculon.explore.page_state import State
from calculon.explore.part import Part, PartKind, html
from calculon.explore.plan.key_figures import key_figures, words_of
from calculon.explore.plan.plan_changes import against, mend, single_changes
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Document, Facts, dim
from calculon.render.html import NOTEBOOK, fragment, page
from calculon.render.text_tables import Column, Table

_STAGES_SHOWN = 4
"""Stages up to which a table of them is not folded away."""


def _problem(state: State, answers: Answers) -> Part | None:
    """Say why the plan cannot run."""
    shown = answers.plan(state)
    if not shown.problem:
        return None
    words = words_of(state, answers, shown)
    problem = shown.problem if state.plan else why_none(answers.found(state).counts)
    lines = [line.removeprefix("execution: ") for line in problem.splitlines()]
    lines = [line[:1].upper() + line[1:] if " " in line.split(":")[0] else line for line in lines]
    title = "This plan cannot run" if state.plan else "No plan fits"
    told = html("plan_problem.html", words=words, lines=lines, spoken=f"{title}: {lines[0]}")
    return Part(title=title, blocks=(told,))


def _figures(state: State, answers: Answers) -> Part | None:
    """Return the plan in words and its key figures."""
    shown = answers.plan(state)
    result = shown.brief
    if result is None:
        return None
    facts = Facts((*key_figures(state, answers, result),))
    return Part(
        title="Your plan" if state.plan else "The best plan",
        blocks=(dim(words_of(state, answers, shown)), facts),
        spoken=", ".join(f"{label} {text}" for label, text, _ in facts.rows),
    )


def _time(state: State, answers: Answers) -> Part | None:
    """Return the parts of the time."""
    result = answers.plan(state).brief
    if result is None:
        return None
    total = result.value("total_time")
    times = sorted(((t, name) for name, t in result.times().items() if t > 0), reverse=True)
    texts = result.digits.seconds([time for time, _ in times], total)
    rows = [
        {"part": PARTS_OF_TIME[name][0], "time": text, "share": result.digits.share(time / total)}
        for (time, name), text in zip(times, texts, strict=True)
    ]
    columns = (
        Column("part", "part"),
        Column("time", "time", right=True),
        Column("share", "share", right=True),
    )
    largest = rows[0]
    return Part(
        title="Where the time goes",
        below=(_folded("The same as a table", Table(columns, rows)),),
        figure=time_parts(result),
        summary=f"Parts of the time of a step, {result.digits.duration(total)}; the largest is {largest['part']} "
        f"with {largest['share']}.",
    )


def _memory(state: State, answers: Answers) -> Part | None:
    """Return the memory of every stage."""
    stages = answers.stages(state)
    if not stages:
        return None
    result = answers.plan(state).brief
    digits = Digits(WITHOUT_INTERVAL) if result is None else result.digits
    worst = max(stages, key=lambda one: one.over(1))
    over = worst.over(1)
    place = f" on stage {worst.stage}" if len(stages) > 1 else ""
    said = f"{digits.gib(worst.needed[0])} of {digits.gib(worst.available[0])} usable{place}: "
    said += f"{digits.gib(over)} too much" if over > 0 else f"{digits.gib(-over)} free"
    kinds = kinds_of(stages)
    columns = (
        Column("stage", "stage"),
        Column("blocks", "blocks", right=True),
        *(Column(kind, kind, right=True) for kind in kinds),
        Column("sum", "sum", right=True),
        *([Column("tier2", "tier 2", right=True)] if any(one.needed[1] for one in stages) else []),
    )
    rows = [
        {
            "stage": str(one.stage),
            "blocks": str(one.blocks),
            **{kind: digits.gib(one.parts[0].get(kind, 0.0)) for kind in kinds},
            "sum": digits.gib(one.needed[0]),
            "tier2": digits.gib(one.needed[1]),
        }
        for one in stages
    ]
    figure = memory_bars(stages)
    return Part(
        title="Memory of each stage" if len(stages) > 1 else "Memory",
        blocks=(html("plan_memory.html", said=said, bars=figure["data"]),),
        below=(_folded("The same as a table", Table(columns, rows), most=len(rows)),),
        figure=figure,
        summary=f"Tier-1 memory by kind and stage: {said}.",
    )


def _sure(state: State, answers: Answers) -> Part | None:
    """Say what the interval rests on, and which measured runs are near."""
    result = answers.plan(state).brief
    if result is None or result.belief is None:
        return None
    belief: Mapping[str, Any] = result.belief
    runs = Markup(fragment([nearest_table(belief["nearest"])])) if belief["nearest"] else Markup()
    return Part(
        title="How sure this is",
        blocks=(
            html(
                "plan_sure.html",
                time=result.digits.duration(result.value("total_time")),
                ends=result.ends,
                level=f"{100 * belief['level']:.0f}",
                basis=belief["basis"],
                remarks=list(remarks(belief)),
                memory=memory_text(belief["memory"]) if belief["memory"] else "",
                runs=runs,
            ),
        ),
    )


def _traffic(state: State, answers: Answers) -> Part | None:
    """Return the traffic of each kind of parallelism, and the groups of ranks."""
    result = answers.plan(state).result
    if result is None:
        return None
    several = traffic(result)
    if not several:
        return Part(title="Traffic", blocks=(Markup("<p>None: one processor works alone.</p>"),))
    names = [words.strip() for words, *_ in several]
    links, exposed = [link for *_, link, _ in several], [out for *_, out in several]
    total, digits = result.value("total_time"), result.digits
    share = digits.share(sum(exposed) / total)
    said = f"{digits.duration(sum(links))} on the link, {digits.duration(sum(exposed))} exposed: {share} of the time"
    groups = groups_section(result.groups, result.domains)
    shown = (replace(groups, opened=True),) if groups else ()
    rows = _traffic_rows(result, several)
    return Part(
        title="Traffic",
        blocks=(Markup("<p>{}</p>").format(said),),
        below=(_folded("The same as a table", rows) + Markup(page(Document("", parts=shown))),),
        figure=link_times(names, links, exposed),
        summary=f"Traffic of each kind of parallelism in a step: {said}.",
    )


def _traffic_rows(result: Result, several: Sequence[tuple[str, str, float, float]]) -> Table:
    """Return times on the link and exposed as a table, in the words of the page of a command."""
    longest = max(max(link, out) for *_, link, out in several)
    total, digits = result.value("total_time"), result.digits
    columns = (
        Column("kind", "groups"),
        Column("network", "network"),
        Column("link", "on link", right=True),
        Column("exposed", "exposed", right=True),
    )
    rows = []
    for words, network, *times in several:
        link, out = digits.seconds(times, longest if digits.spread else total)
        rows.append({"kind": words.strip(), "network": network, "link": link, "exposed": out})
    return Table(columns, rows)


def _whole(state: State, answers: Answers) -> Part | None:
    """Return the page of the plan, as the command prints it."""
    result = answers.plan(state).result
    if result is None:
        return None
    return Part(
        title="", blocks=(html("plan_whole.html", page=Markup(page(estimate_page(result)))),)
    )


def _folded(title: str, rows: Table, most: int = 40) -> Markup:
    """Return a table that is folded away below its title."""
    inner = Markup(fragment([rows], replace(NOTEBOOK, rows=most)))
    return Markup("<details><summary>{}</summary>{}</details>").format(title, inner)


PARTS = (
    PartKind(name="problem", title="This plan cannot run", make=_problem),
    PartKind(name="figures", title="The plan", make=_figures),
    PartKind(name="time", title="Where the time goes", make=_time),
    PartKind(name="memory", title="Memory of each stage", make=_memory, later=True),
    PartKind(name="mend", title="What would make it run", make=mend, later=True),
    PartKind(name="against", title="From your plan to the best", make=against, later=True),
    PartKind(name="changes", title="The effect of single changes", make=single_changes, later=True),
    PartKind(name="traffic", title="Traffic", make=_traffic, later=True),
    PartKind(name="sure", title="How sure this is", make=_sure, later=True),
    PartKind(name="whole", title="The whole page", make=_whole, later=True),
)
