"""The view of the pipeline: its schedule, its stages, one of them, and the operators of a block."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from calculon.base.errors import Problem, SpecError
from calculon.declarations.statistics import memory_by_kind
from calculon.documents.page import PARTS as PARTS_OF_TIME
from calculon.documents.pictures.gantt import LOOKS, Gantt
from calculon.documents.result import Result
from calculon.documents.stage_table import PAIRED, folded_words, stage_time
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers, Shown
from calculon.explore.charts.schedule_chart import schedule_chart
from calculon.explore.page_state import State
from calculon.explore.part import Part, PartKind, html
from calculon.explore.pipeline.block_parts import BLOCK_PARTS
from calculon.render.html import more
from calculon.render.texts import counted

USUAL, MOST = 4_096, 16_384
"""Passes that are drawn unless more are asked for, and at most."""

LISTED = 200
"""Passes that a table lists."""

Stage = Mapping[str, Any]


def _problem(state: State, answers: Answers) -> Part | None:
    shown = answers.plan(state)
    if not shown.problem:
        return None
    told = html("no_pipeline.html", problem=shown.problem, state=state)
    return Part(title="It cannot run", blocks=(told,))


def _schedule(state: State, answers: Answers) -> Part | None:
    """Return the passes of the first microbatches."""
    shown = answers.plan(state)
    if shown.estimate is None:
        return None
    result, most = _result(shown), _microbatches(shown.estimate)
    number = _drawn(state, shown.estimate)
    gantt = answers.schedule(state, number)
    stages = shown.estimate.stages
    links = [state.with_options(stage=str(i)) for i in range(len(stages))]
    words = gantt.title.split("\n")[1]
    told = html(
        "schedule.html",
        words=words,
        number=number,
        most=min(most, _room(shown.estimate, MOST)),
        batch=most,
        parts=_parts_of_step(result),
        shown=shown,
        alone=len(stages) == 1,
        order=_order(gantt, result, _stage(state, stages)),
        blocks=counted(int(stages[0]["blocks"]), "block"),
        passes=len(gantt.pieces),
    )
    return Part(
        title="Schedule",
        blocks=(told,),
        figure=schedule_chart(gantt, result.digits, links, _stage(state, stages)),
        summary=f"Passes of each stage over time: {words}. The table of stages says how long they take.",
    )


def _order(gantt: Gantt, result: Result, number: int) -> dict[str, Any]:
    """Return the first passes of a stage in order, as a table."""
    pieces = [piece for piece in gantt.pieces if piece.stage == number]
    shown = sorted(pieces, key=lambda piece: piece.start)[:LISTED]
    times = [piece.end - piece.start for piece in shown]
    starts = result.digits.seconds([piece.start for piece in shown], gantt.end)
    return {
        "title": f"Passes of {gantt.row.lower()} {number} in order",
        "chunks": gantt.chunks > 1,
        "rows": [
            (LOOKS[piece.kind][0], piece.microbatch + 1, piece.chunk + 1, start, time)
            for piece, start, time in zip(
                shown, starts, result.digits.seconds(times, max(times)), strict=True
            )
        ],
        "more": Markup(more(len(pieces) - len(shown))),
    }


def _stages(state: State, answers: Answers) -> Part | None:
    """Return time and memory of each of several stages."""
    shown = answers.plan(state)
    if shown.estimate is None or len(shown.estimate.stages) == 1:
        return None
    stages, result = shown.estimate.stages, _result(shown)
    times, digits = [stage_time(stage) for stage in stages], result.digits
    memory = [stage["proc_mem_tier1_cap_req"] for stage in stages]
    longest, capacity = max(times), _capacity(result)
    columns = [
        "forward",
        "backward",
        *(["hidden"] if any(s["hidden_time"] for s in stages) else []),
    ]
    rows = [
        {
            "number": i,
            "link": state.with_options(stage=str(i)),
            "blocks": stage["blocks"],
            "times": digits.seconds([stage[f"{name}_time"] for name in columns], longest),
            "time": digits.seconds([times[i]], longest)[0],
            "memory": digits.gib(memory[i]),
            "used": digits.share(memory[i] / capacity) if capacity else "",
            "width": round(100 * times[i] / longest, 1),
        }
        for i, stage in enumerate(stages)
    ]
    ends = digits.seconds([longest, sum(times) / len(times)], longest)  # as in the table
    told = html(
        "stages.html",
        rows=rows,
        columns=columns,
        word=_word(stages),
        selected=_stage(state, stages),
        slowest=_slowest(stages),
        level=longest <= sum(times) / len(times) * (1 + 1e-9),
        fullest=memory.index(max(memory)),
        longest=ends[0],
        mean=ends[1],
        capacity=digits.capacity(capacity),
        notes=[note for note in (folded_words(stages), PAIRED if len(columns) > 2 else "") if note],
    )
    return Part(title=f"{_word(stages).capitalize()}s", blocks=(told,))


def _one_stage(state: State, answers: Answers) -> Part | None:
    """Return what one stage has and does."""
    shown = answers.plan(state)
    if shown.estimate is None:
        return None
    stages, result = shown.estimate.stages, _result(shown)
    word, number = _word(stages), _stage(state, stages)
    asked = _whole(state, "stage")
    if asked is not None and asked >= len(stages):
        there = f"{word}s 0 to {len(stages) - 1}" if len(stages) > 1 else "no pipeline"
        told = f"There is no {word} {asked}: this plan has {there}."
        link = state.with_options(stage="")
        return Part(
            title=f"{word.capitalize()} {asked}",
            blocks=(html("no_such.html", told=told, link=link),),
        )
    stage, digits = stages[number], result.digits
    together = stage_time(stage)
    microbatches = _microbatches(shown.estimate)
    passing = (
        microbatches / 2 if _mirrored(shown.estimate) else microbatches
    )  # half in each direction
    memory = _memory(shown.estimate, result, stage)
    largest = sum(memory.values())
    times = {
        "forward": stage["forward_time"],
        "backward": stage["backward_time"],
        "of which recomputation": stage["recompute_time"],
        "of which weight gradients": stage["weight_grad_time"],
        "hidden beside other passes": -stage["hidden_time"],
    }
    told = html(
        "stage.html",
        word=word,
        number=number,
        count=len(stages),
        before=state.with_options(stage=str(number - 1)) if number else "",
        after=state.with_options(stage=str(number + 1)) if number + 1 < len(stages) else "",
        has=_has(shown.estimate, stages, number),
        times=list(
            zip(times, digits.seconds(times.values(), together), times.values(), strict=True)
        ),
        together=digits.seconds([together], together)[0],
        busy=digits.share(together * passing / result.value("total_time")),
        microbatches=microbatches,
        memory=[
            (name, digits.gib(size), digits.share(size / largest))
            for name, size in sorted(memory.items(), key=lambda one: -one[1])
            if size
        ],
        needed=digits.gib(largest),
        capacity=digits.capacity(_capacity(result)),
        sent=_sent(result),
    )
    title = f"{word.capitalize()} {number}" if len(stages) > 1 else "The processor"
    return Part(title=title, blocks=(told,))


# What the address asks for


def _whole(state: State, name: str) -> int | None:
    """Return an option that is a whole number; None where it is not stated."""
    text = state.option(name)
    if not text:
        return None
    if not re.fullmatch(r"\d{1,7}", text):
        raise SpecError("address", Problem(name, "a whole number from 0", repr(text)))
    return int(text)


def _stage(state: State, stages: Sequence[Stage]) -> int:
    """Return the stage that is looked at: the slowest where none is asked for, or none of that number is there."""
    asked = _whole(state, "stage")
    return _slowest(stages) if asked is None or asked >= len(stages) else asked


def _drawn(state: State, found: Estimate) -> int:
    """Return how many microbatches are drawn: twice as many as stages, if that are not too many passes."""
    asked, most = _whole(state, "microbatches"), _microbatches(found)
    if asked:
        return min(asked, most, _room(found, MOST))
    return min(2 * found.execution.pipeline_par, most, _room(found, USUAL))


def _room(found: Estimate, passes: int) -> int:
    """Return how many microbatches have so many passes, at least one."""
    execution = found.execution
    return max(1, passes // (2 * execution.pipeline_par * execution.pipeline_interleaving))


def _microbatches(found: Estimate) -> int:
    """Return the microbatches of a pipeline's batch."""
    execution = found.execution
    return execution.batch_size // execution.data_par // execution.microbatch_size


# What stages are


def _result(shown: Shown) -> Result:
    assert shown.brief is not None
    return shown.brief


def _word(stages: Sequence[Stage]) -> str:
    return "rank" if folded_words(stages) else "stage"


def _mirrored(found: Estimate) -> bool:
    """Tell whether each rank has a stage of both directions."""
    return found.execution.pp_schedule == "dualpipe"


def _slowest(stages: Sequence[Stage]) -> int:
    """Return the stage that limits the time; of several the last, as the command says it."""
    return max(range(len(stages)), key=lambda i: (stage_time(stages[i]), i))


def _capacity(result: Result) -> float:
    return result.capacities[0] if result.capacities else 0.0


def _memory(found: Estimate, result: Result, stage: Stage) -> dict[str, float]:
    """Return bytes in tier 1 by kind."""
    here, _ = memory_by_kind({**found.stats, **stage}, result.execution or {}, stage["blocks"])
    return here


def _has(found: Estimate, stages: Sequence[Stage], number: int) -> list[str]:
    """Say which part of the model a stage has."""
    stage, chunks = stages[number], found.execution.pipeline_interleaving
    of, blocks = found.model.num_blocks, int(stage["blocks"])
    told = f"{blocks:,} of {counted(of, 'block')}" if blocks < of else f"all {counted(of, 'block')}"
    if "parts" in stage:
        told += " (" + " and ".join(f"{a} to {b}" for a, b in stage["parts"]) + ")"
    elif chunks > 1:
        told += f" in {chunks:,} chunks"
    elif len(stages) > 1:
        before = sum(int(one["blocks"]) for one in stages[:number])
        last = before + blocks
        told += f" ({before + 1} to {last})" if last > before + 1 else f" ({last})"
    has = [told]
    if found.model.vocab:
        last = len(stages) - 1
        both = {0, last} if _mirrored(found) else {0}
        first, ends = (both, both) if "parts" in stage else ({0}, {last})
        has += ["the embedding"] * (number in first) + ["the LM head with the loss"] * (
            number in ends
        )
    return has


def _parts_of_step(result: Result) -> list[tuple[str, str, str]]:
    """Return words, time and share of the parts of an iteration, the longest first."""
    times = {name: time for name, time in result.times().items() if time > 0}
    total, digits = result.value("total_time"), result.digits
    names = sorted(times, key=lambda name: -times[name])
    texts = digits.seconds([times[name] for name in names], total)
    return [
        (PARTS_OF_TIME[name][0], text, digits.share(times[name] / total))
        for name, text in zip(names, texts, strict=True)
    ]


def _sent(result: Result) -> list[tuple[str, str, str]]:
    """Return the collectives and transfers that an iteration waits for."""
    waiting = {name for name, (_, group) in PARTS_OF_TIME.items() if group == "communicating"}
    words = {PARTS_OF_TIME[name][0] for name in waiting}
    return [one for one in _parts_of_step(result) if one[0] in words]


PARTS = (
    PartKind(name="no-pipeline", title="It cannot run", make=_problem),
    PartKind(name="schedule", title="Schedule", make=_schedule),
    PartKind(name="stages", title="Stages", make=_stages),
    PartKind(name="stage", title="Stage", make=_one_stage),
    *BLOCK_PARTS,
)
