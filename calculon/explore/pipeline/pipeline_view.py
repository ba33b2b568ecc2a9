"""The pipeline view: the schedule, its stages (with the pipeline bubble), one stage, and the operators of a block."""

import re
from collections.abc import Sequence
from dataclasses import replace

from calculon.base.errors import Problem, SpecError
from calculon.declarations.statistics import memory_by_kind
from calculon.documents.charts.schedule_chart import (
    BUBBLE_AND_IDLE,
    LOOKS,
    Gantt,
    schedule,
    schedule_key,
)
from calculon.documents.page import exposed_grid, memory_grid, time_section
from calculon.documents.result import Result
from calculon.documents.stage_table import (
    Stage,
    folded_words,
    slowest_stage,
    stage_time,
    stages_section,
)
from calculon.estimate.estimate import Estimate
from calculon.explore.answers import Answers, DisplayedPlan
from calculon.explore.page_state import State
from calculon.explore.pipeline.block_parts import BLOCK_PARTS
from calculon.explore.view_part import ViewPart, ViewPartKind, html
from calculon.render.document import (
    Grid,
    Section,
    SideBySide,
    Styled,
    bold,
    dim,
    numbers,
    spaced,
    words,
)
from calculon.render.texts import counted

USUAL, MOST = 4_096, 16_384
"""Default and maximum number of drawn passes; Plotly becomes slow beyond the maximum."""

LISTED = 200
"""Maximum number of passes in a table."""


def _problem(state: State, answers: Answers) -> ViewPart | None:
    shown = answers.plan(state)
    if not shown.problem:
        return None
    link = Styled("What would make it run", link=state.link(view="plan"))
    return ViewPart(title="It cannot run", blocks=(shown.problem, link))


def _schedule(state: State, answers: Answers) -> ViewPart | None:
    """Return the schedule of the first microbatches."""
    shown = answers.plan(state)
    if shown.estimate is None:
        return None
    result, most = _result(shown), _microbatches(shown.estimate)
    number = _drawn(state, shown.estimate)
    gantt = answers.schedule(state, number)
    stages = shown.estimate.stages
    links = [state.with_options(stage=str(i)) for i in range(len(stages))]
    said, alone = gantt.subtitle, len(stages) == 1
    blocks = counted(int(stages[0]["blocks"]), "block")
    control = html(
        "schedule.html",
        number=number,
        most=min(most, _room(shown.estimate, MOST)),
        batch=most,
    )
    time = replace(time_section(result), title="The parts of an iteration", opened=alone)
    row = gantt.row.lower()
    click = () if alone else (dim(f"Click a row for details of that {row} below."),)
    return ViewPart(
        title="Schedule",
        blocks=(
            f"No pipeline: each processor has all {blocks}. {said}." if alone else f"{said}.",
            control,
            time,
            _order(gantt, result, _stage(state, stages)),
            *(() if alone else (dim(BUBBLE_AND_IDLE),)),
            *click,
            *schedule_key(gantt),
        ),
        key=True,
        chart=schedule(gantt, result.digits, links, _stage(state, stages)),
        summary=f"Passes of each stage over time: {said}. The table of stages has their times.",
    )


def _order(gantt: Gantt, result: Result, number: int) -> Section:
    """Return the first passes of a stage in execution order."""
    pieces = sorted(
        (piece for piece in gantt.pieces if piece.stage == number), key=lambda piece: piece.start
    )
    shown, digits = pieces[:LISTED], result.digits
    times = [piece.end - piece.start for piece in shown]
    starts = digits.seconds([piece.start for piece in shown], gantt.end)
    chunks = gantt.chunks > 1
    rows = (
        (
            LOOKS[piece.kind][0],
            f"{piece.microbatch + 1}",
            *[f"{piece.chunk + 1}"] * chunks,
            start,
            time,
        )
        for piece, start, time in zip(shown, starts, digits.seconds(times, max(times)), strict=True)
    )
    titles = ("pass", "microbatch", *["chunk"] * chunks, "from", "time")
    order = numbers(titles, rows)
    left = len(pieces) - len(shown)
    others = (dim(f"and {left:,} more"),) if left else ()
    return Section(f"Passes of {gantt.row.lower()} {number} in order", (order, *others))


def _stages(state: State, answers: Answers) -> ViewPart | None:
    """Return time and memory of each stage, if there are several."""
    shown = answers.plan(state)
    if shown.estimate is None or len(shown.estimate.stages) == 1:
        return None
    stages, result = shown.estimate.stages, _result(shown)
    section = stages_section(
        stages,
        result.digits,
        capacity=_capacity(result),
        links=[state.with_options(stage=str(i)) for i in range(len(stages))],
        selected=_stage(state, stages),
    )
    said = words(section.remark)
    title = f"{_word(stages).capitalize()}s"
    return ViewPart(title=title, blocks=(f"{said[:1].upper()}{said[1:]}.", *section.blocks))


def _one_stage(state: State, answers: Answers) -> ViewPart | None:
    """Return the layers, time and memory of one stage."""
    shown = answers.plan(state)
    if shown.estimate is None:
        return None
    stages, result = shown.estimate.stages, _result(shown)
    word, number = _word(stages), _stage(state, stages)
    asked = _whole(state, "stage")
    if asked is not None and asked >= len(stages):
        there = f"{word}s 0 to {len(stages) - 1}" if len(stages) > 1 else "no pipeline"
        told = f"There is no {word} {asked}: this plan has {there}. "
        link = Styled("Show another", link=state.with_options(stage=""))
        return ViewPart(title=f"{word.capitalize()} {asked}", blocks=((told, link),))
    microbatches = _microbatches(shown.estimate)
    directions = 2 if _mirrored(shown.estimate) else 1  # each has half of the microbatches
    share = stage_time(stages[number]) * microbatches / directions / result.value("total_time")
    several = f"{microbatches:,} microbatches" if microbatches > 1 else "the only microbatch"
    has = ", ".join(_has(shown.estimate, stages, number))
    said = f"It has {has}. The passes of {several} are {result.digits.share(share)} of the time of an iteration."
    ends = {"Previous": number - 1, "Next": number + 1}
    links = spaced(
        Styled(text, link=state.with_options(stage=str(other)))
        for text, other in ends.items()
        if 0 <= other < len(stages)
    )
    tables = _stage_tables(shown.estimate, result, number)
    return ViewPart(
        title=f"{word.capitalize()} {number}" if len(stages) > 1 else "The processor",
        blocks=(links, said, tables),
    )


def _stage_tables(plan_estimate: Estimate, result: Result, number: int) -> SideBySide:
    """Return the passes of a stage, its memory, and its exposed communication."""
    stage, digits, word = plan_estimate.stages[number], result.digits, _word(plan_estimate.stages)
    times = {
        "forward": stage["forward_time"],
        "backward": stage["backward_time"],
        "of which recomputation": stage["recompute_time"],
        "of which weight gradients": stage["weight_grad_time"],
        "overlapped with other passes": -stage["hidden_time"],
    }
    times = {name: time for name, time in times.items() if time}
    *texts, whole = digits.seconds([*times.values(), stage_time(stage)], stage_time(stage))
    rows = (*zip(times, texts, strict=True), (bold("together"), bold(whole)))
    memory = _memory(plan_estimate, result, stage)
    used = f"{digits.gib(sum(memory.values()))} of {digits.capacity(_capacity(result))}"
    passes = Section(
        "Passes of a microbatch",
        (Grid(("left", "right"), rows),),
        "including waiting times",
        opened=True,
    )
    needed = Section(
        "Memory of a processor", (memory_grid(memory, 0.0, digits),), used, opened=True
    )
    columns = [(passes,), (needed,)]
    if exposed := exposed_grid(result):
        where = f"on the limiting {word}" if len(plan_estimate.stages) > 1 else ""
        columns.append((Section("Exposed in an iteration", (exposed,), where, opened=True),))
    return SideBySide(tuple(columns), 0)


# Options of the address


def _whole(state: State, name: str) -> int | None:
    """Return an integer option; None if it is not stated."""
    text = state.option(name)
    if not text:
        return None
    if not re.fullmatch(r"\d{1,7}", text):
        raise SpecError("address", Problem(name, "a whole number from 0", repr(text)))
    return int(text)


def _stage(state: State, stages: Sequence[Stage]) -> int:
    """Return the selected stage; the slowest one if none or a nonexistent one is selected."""
    asked = _whole(state, "stage")
    return slowest_stage(stages) if asked is None or asked >= len(stages) else asked


def _drawn(state: State, plan_estimate: Estimate) -> int:
    """Return the number of microbatches to draw: by default two per stage, within the limit on passes."""
    asked, most = _whole(state, "microbatches"), _microbatches(plan_estimate)
    if asked:
        return min(asked, most, _room(plan_estimate, MOST))
    return min(2 * plan_estimate.execution.pipeline_par, most, _room(plan_estimate, USUAL))


def _room(plan_estimate: Estimate, passes: int) -> int:
    """Return the largest number of microbatches with at most this number of passes, at least one."""
    execution = plan_estimate.execution
    return max(1, passes // (2 * execution.pipeline_par * execution.pipeline_interleaving))


def _microbatches(plan_estimate: Estimate) -> int:
    """Return the number of microbatches in a pipeline's batch."""
    execution = plan_estimate.execution
    return execution.batch_size // execution.data_par // execution.microbatch_size


# Properties of stages


def _result(shown: DisplayedPlan) -> Result:
    assert shown.brief is not None
    return shown.brief


def _word(stages: Sequence[Stage]) -> str:
    return "rank" if folded_words(stages) else "stage"


def _mirrored(plan_estimate: Estimate) -> bool:
    """Return True if each rank has a stage of both directions (DualPipe)."""
    return plan_estimate.execution.pp_schedule == "dualpipe"


def _capacity(result: Result) -> float:
    return result.capacities[0] if result.capacities else 0.0


def _memory(plan_estimate: Estimate, result: Result, stage: Stage) -> dict[str, float]:
    """Return the bytes in tier 1 by kind."""
    here, _ = memory_by_kind(
        {**plan_estimate.stats, **stage}, result.execution or {}, stage["blocks"]
    )
    return here


def _has(plan_estimate: Estimate, stages: Sequence[Stage], number: int) -> list[str]:
    """Describe the part of the model on a stage."""
    stage, chunks = stages[number], plan_estimate.execution.pipeline_interleaving
    of, blocks = plan_estimate.model.num_blocks, int(stage["blocks"])
    text = f"{blocks:,} of {counted(of, 'block')}" if blocks < of else f"all {counted(of, 'block')}"
    if "parts" in stage:
        text += " (" + " and ".join(f"{a} to {b}" for a, b in stage["parts"]) + ")"
    elif chunks > 1:
        text += f" in {chunks:,} chunks"
    elif len(stages) > 1:
        before = sum(int(one["blocks"]) for one in stages[:number])
        last = before + blocks
        text += f" ({before + 1} to {last})" if last > before + 1 else f" ({last})"
    has = [text]
    if plan_estimate.model.vocab:
        last = len(stages) - 1
        both = {0, last} if _mirrored(plan_estimate) else {0}
        first, ends = (both, both) if "parts" in stage else ({0}, {last})
        has += ["the embedding"] * (number in first) + ["the LM head with the loss"] * (
            number in ends
        )
    return has


PARTS = (
    ViewPartKind(name="no-pipeline", title="It cannot run", make=_problem),
    ViewPartKind(name="schedule", title="Schedule", make=_schedule),
    ViewPartKind(name="stages", title="Stages", make=_stages),
    ViewPartKind(name="stage", title="Stage", make=_one_stage),
    *BLOCK_PARTS,
)
