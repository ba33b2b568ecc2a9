"""The pipeline stages of an estimate: which one limits time, and which one memory."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import RenderableType

from calculon.apps.report.bars import Bar, Share
from calculon.apps.report.digits import Digits
from calculon.apps.report.grids import grid, indented, styled
from calculon.apps.report.texts import counted, heading

Stage = Mapping[str, Any]

_SAME = 1e-9  # relative: times that differ by rounding only


def stages_group(stages: Sequence[Stage], digits: Digits) -> list[RenderableType]:
    """Set the time of a microbatch and the memory of every stage against those of the one that limits them."""
    times = [_time(stage) for stage in stages]
    slowest, longest = max(range(len(times)), key=lambda i: (times[i], i)), max(times)
    memory = [stage["proc_mem_tier1_cap_req"] for stage in stages]
    fullest = memory.index(max(memory))
    mean = sum(times) / len(times)
    level = longest <= mean * (1 + _SAME)
    remark = f"{digits.duration(longest)} per microbatch"
    if not level:
        remark = f"stage {slowest} limits the time: {remark} (mean {digits.duration(mean)})"
    table = grid("left", *["right"] * 4, "wide")
    names = ("", "", "forward", "backward", "tier 1", "time of a microbatch")
    table.add_row(*styled(names, "dim"))
    for alike in _alike(stages):
        first, last = alike[0], alike[-1]
        number = str(first["stage"])
        if len(alike) > 1:
            number += f" to {last['stage']}"
        table.add_row(
            f"stage {number}",
            counted(first["blocks"], "block"),
            *digits.seconds([first["forward_time"], first["backward_time"]], longest),
            digits.gib(max(stage["proc_mem_tier1_cap_req"] for stage in alike)),
            Bar((Share(_time(first) / longest, "blue"),)),
        )
    return [
        heading("Stages", f"{remark}; memory is tightest on stage {fullest}"),
        indented(table),
    ]


def _time(stage: Stage) -> float:
    """Return the time of both passes of a microbatch."""
    return float(stage["forward_time"] + stage["backward_time"])


def _alike(stages: Sequence[Stage]) -> list[list[Stage]]:
    """Group neighbours that take as long; the first and the last stage are never grouped."""

    def key(stage: Stage) -> tuple[Any, ...]:
        outer = stage["stage"] in (0, len(stages) - 1) and stage["stage"] + 1
        return stage["blocks"], stage["forward_time"], stage["backward_time"], outer

    return [list(group) for _, group in groupby(stages, key)]
