"""Table of the pipeline stages of an estimate, with the stages that limit time and memory."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Cell, Section, Styled, dim, headed
from calculon.render.texts import counted

Stage = Mapping[str, Any]

PAIRED = (
    "time: both passes, minus the expert all-to-all hidden by pairs of passes; mean over the batch"
)

_SAME = 1e-9  # relative: times that differ by rounding only


def folded_words(stages: Sequence[Stage]) -> str:
    """Return the blocks of ranks with two parts of the model; empty if each rank has one.

    In a V schedule, rank 0 has both ends of the model. In a bidirectional schedule (DualPipe) it has the first stage of
    one direction and the last stage of the other, and all blocks exist twice.

    >>> folded_words([{"blocks": 4, "parts": [[1, 2], [7, 8]]}, {"blocks": 4, "parts": [[3, 4], [5, 6]]}])
    'Each rank has two parts of the model, in a V: rank 0 has blocks 1-2 and 7-8, rank 1 has 3-4 and 5-6'
    """
    if "parts" not in stages[0]:
        return ""
    whole = max(end for stage in stages for _, end in stage["parts"])
    twice = sum(stage["blocks"] for stage in stages) > whole

    def of(rank: int) -> str:
        ends = (f"{a}-{b}" if b > a else f"{b}" for a, b in stages[rank]["parts"])
        return " and ".join(ends)

    form = "two stages, one of each direction" if twice else "two parts of the model, in a V"
    last = len(stages) - 1
    text = f"Each rank has {form}: rank 0 has blocks {of(0)}, rank {last} has {of(last)}"
    return text + ("; all weights exist twice" if twice else "")


def stages_section(
    stages: Sequence[Stage],
    digits: Digits,
    *,
    capacity: float = 0.0,
    links: Sequence[str] = (),
    selected: int | None = None,
) -> Section:
    """Return time per microbatch and memory of every stage, and the stages that limit time and memory.

    If passes run in pairs, the time is the mean over a batch, without the expert all-to-all that pairs hide.

    With `links` (an address for each stage), each stage has a row; otherwise equal stages share one. The row of the
    `selected` stage is marked. With a `capacity` (usable bytes of tier 1), the share in use is shown.
    """
    paired = any(stage["hidden_time"] for stage in stages)
    passes = ("forward", "backward", *["hidden"] * paired)
    used = (f"of {digits.capacity(capacity)}",) if capacity else ()
    titles = ("", "", *passes, *["together"] * bool(links), "memory", *used, "time of a microbatch")
    folded = folded_words(stages)
    row, longest = "rank" if folded else "stage", max(map(stage_time, stages))
    rows: list[tuple[Cell, ...]] = []
    for alike in [[stage] for stage in stages] if links else _alike(stages):
        first, last = alike[0], alike[-1]
        number, time = int(first["stage"]), stage_time(first)
        style, link = "current" * (number == selected), links[number] if links else ""
        name = f"{row} {number}" + (f" to {last['stage']}" if len(alike) > 1 else "")
        parts = (*(first[f"{one}_time"] for one in passes), *[time] * bool(links))
        needed = max(stage["proc_mem_tier1_cap_req"] for stage in alike)
        cells = (
            Styled(name, style, link=link),
            counted(first["blocks"], "block") + " + MTP" * bool(first.get("modules")),
            *digits.seconds(parts, longest),
            digits.gib(needed),
            *(digits.share(needed / capacity) for _ in used),
            Bar((Share(time / longest, "blue"),)),
        )
        rows.append(cells)
    grid = headed(("left", *["right"] * (len(titles) - 2), "wide"), titles, rows)
    notes = [note for note in (folded, PAIRED if paired else "") if note]
    return Section(
        "Ranks of the pipeline" if folded else "Stages",
        (grid, *map(dim, notes)),
        _limits(stages, digits, row),
    )


def _limits(stages: Sequence[Stage], digits: Digits, row: str) -> str:
    """Return the stages that limit time and memory."""
    times = [stage_time(stage) for stage in stages]
    memory = [stage["proc_mem_tier1_cap_req"] for stage in stages]
    longest, mean = max(times), sum(times) / len(times)
    remark = f"{digits.duration(longest)} per microbatch"
    if longest > mean * (1 + _SAME):
        slowest = slowest_stage(stages)
        remark = f"{row} {slowest} limits the time: {remark} (mean {digits.duration(mean)})"
    return f"{remark}; memory is tightest on {row} {memory.index(max(memory))}"


def slowest_stage(stages: Sequence[Stage]) -> int:
    """Return the stage that limits the time; the last one in a tie."""
    return max(range(len(stages)), key=lambda i: (stage_time(stages[i]), i))


def stage_time(stage: Stage) -> float:
    """Return the time of both passes of a microbatch, without the part that pairs of passes hide."""
    return float(stage["forward_time"] + stage["backward_time"] - stage["hidden_time"])


def _alike(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Group neighboring stages with equal times; the first and the last stage remain separate."""

    def key(stage: Stage) -> tuple[Any, ...]:
        # Embedding and head make the outer stages special, even with equal times.
        outer = stage["stage"] in (0, len(stages) - 1) and stage["stage"] + 1
        names = ("blocks", "forward_time", "backward_time", "hidden_time")
        return *(stage[name] for name in names), outer

    return [list(group) for _, group in groupby(stages, key)]
