"""The pipeline stages of an estimate: which one limits time, and which one memory."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Cell, Grid, Section, Styled, dim
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


def stages_section(
    stages: Sequence[Stage],
    digits: Digits,
    *,
    capacity: float = 0.0,
    links: Sequence[str] = (),
    selected: int | None = None,
) -> Section:
    """Return the time of a microbatch and the memory of every stage, and which stage limits each.

    Where passes run in pairs, the time is the mean of a batch, without what they hide of the exchange of experts.

    Parameters
    ----------
    stages : sequence of mapping
        The stages of an estimate.
    digits : Digits
        Digits of its numbers.
    capacity : float
        Usable bytes of tier 1, of which the share in use is shown; 0 shows none.
    links : sequence of str
        An address for each stage: then each has a row, else stages that are alike share one.
    selected : int, optional
        The stage whose row is marked.
    """
    times = [stage_time(stage) for stage in stages]
    slowest, longest, mean = slowest_stage(stages), max(times), sum(times) / len(times)
    memory = [stage["proc_mem_tier1_cap_req"] for stage in stages]
    paired = any(stage["hidden_time"] for stage in stages)
    folded = folded_words(stages)
    row = "rank" if folded else "stage"
    remark = f"{digits.duration(longest)} per microbatch"
    if longest > mean * (1 + _SAME):
        remark = f"{row} {slowest} limits the time: {remark} (mean {digits.duration(mean)})"
    passes = ["forward", "backward", *(["hidden"] if paired else [])]
    together, share = (
        ["together"] * bool(links),
        [f"of {digits.capacity(capacity)}"] * bool(capacity),
    )
    columns = (*passes, *together, "tier 1", *share)

    def cells(alike: Sequence[Stage]) -> tuple[Cell, ...]:
        first, last = alike[0], alike[-1]
        number, time = int(first["stage"]), stage_time(first)
        name = f"{row} {number}" + (f" to {last['stage']}" if len(alike) > 1 else "")
        style = "current" if number == selected else ""
        parts = [*(first[f"{name}_time"] for name in passes), *[time] * len(together)]
        needed = max(stage["proc_mem_tier1_cap_req"] for stage in alike)
        return (
            Styled(name, style, link=links[number]) if links else name,
            counted(first["blocks"], "block"),
            *digits.seconds(parts, longest),
            digits.gib(needed),
            *([digits.share(needed / capacity)] if capacity else []),
            Bar((Share(time / longest, "blue"),)),
        )

    heads = (*map(dim, ("", "", *columns, "time of a microbatch")),)
    rows = map(cells, [[stage] for stage in stages] if links else _alike(stages))
    grid = Grid(("left", "right", *["right"] * len(columns), "wide"), (heads, *rows), heads=1)
    notes = [note for note in (folded, PAIRED if paired else "") if note]
    return Section(
        "Ranks of the pipeline" if folded else "Stages",
        (grid, *map(dim, notes)),
        f"{remark}; memory is tightest on {row} {memory.index(max(memory))}",
    )


def slowest_stage(stages: Sequence[Stage]) -> int:
    """Return the stage that limits the time; the last of several."""
    return max(range(len(stages)), key=lambda i: (stage_time(stages[i]), i))


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
