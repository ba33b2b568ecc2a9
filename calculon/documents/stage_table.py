"""The pipeline stages of an estimate: which one limits time, and which one memory."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Cell, Grid, Section, dim
from calculon.render.texts import counted

Stage = Mapping[str, Any]

PAIRED = "time: both passes less what pairs of them hide of the exchange of experts, on average of the batch"

_SAME = 1e-9  # relative: times that differ by rounding only


def folded_words(stages: Sequence[Stage]) -> str:
    """Say which blocks ranks with two parts of the model have; nothing where each has one.

    In a V, rank 0 has both ends of the model. With both directions (DualPipe) it has the first stage of one and the
    last stage of the other, and all blocks are there twice.

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
    told = f"Each rank has {form}: rank 0 has blocks {of(0)}, rank {last} has {of(last)}"
    return told + ("; all weights are there twice" if twice else "")


def stages_section(stages: Sequence[Stage], digits: Digits) -> Section:
    """Return the time of a microbatch and the memory of every stage, and which stage limits each.

    Where passes run in pairs, the time is the mean of a batch, without what they hide of the exchange of experts.
    """
    times = [stage_time(stage) for stage in stages]
    slowest, longest = max(range(len(times)), key=lambda i: (times[i], i)), max(times)
    memory = [stage["proc_mem_tier1_cap_req"] for stage in stages]
    fullest = memory.index(max(memory))
    mean = sum(times) / len(times)
    paired = any(stage["hidden_time"] for stage in stages)
    level = longest <= mean * (1 + _SAME)
    folded = folded_words(stages)
    row = "rank" if folded else "stage"
    remark = f"{digits.duration(longest)} per microbatch"
    if not level:
        remark = f"{row} {slowest} limits the time: {remark} (mean {digits.duration(mean)})"
    columns = ["forward", "backward", *(["hidden"] if paired else []), "tier 1"]
    rows: list[tuple[Cell, ...]] = [(*map(dim, ("", "", *columns, "time of a microbatch")),)]
    for alike in _alike(stages):
        first, last = alike[0], alike[-1]
        number = str(first["stage"])
        if len(alike) > 1:
            number += f" to {last['stage']}"
        rows.append(
            (
                f"{row} {number}",
                counted(first["blocks"], "block"),
                *digits.seconds([first[f"{name}_time"] for name in columns[:-1]], longest),
                digits.gib(max(stage["proc_mem_tier1_cap_req"] for stage in alike)),
                Bar((Share(stage_time(first) / longest, "blue"),)),
            )
        )
    grid = Grid(("left", "right", *["right"] * len(columns), "wide"), tuple(rows), heads=1)
    notes = [note for note in (folded, PAIRED if paired else "") if note]
    return Section(
        "Ranks of the pipeline" if folded else "Stages",
        (grid, *map(dim, notes)),
        f"{remark}; memory is tightest on {row} {fullest}",
    )


def stage_time(stage: Stage) -> float:
    """Return the time of both passes of a microbatch, without what pairs of them hide."""
    return float(stage["forward_time"] + stage["backward_time"] - stage["hidden_time"])


def _alike(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Group neighbours that take as long; the first and the last stage are never grouped."""

    def key(stage: Stage) -> tuple[Any, ...]:
        outer = stage["stage"] in (0, len(stages) - 1) and stage["stage"] + 1
        names = ("blocks", "forward_time", "backward_time", "hidden_time")
        return *(stage[name] for name in names), outer

    return [list(group) for _, group in groupby(stages, key)]
