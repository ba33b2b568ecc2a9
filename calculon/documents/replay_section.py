"""Section on the latencies of single requests, from a replay of the scheduler."""

from collections.abc import Callable, Iterator

from calculon.render.document import Block, Grid, Section, dim
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, percent
from calculon.serving.replay.replay_record import ReplayRecord

_COLUMNS = {"mean": "mean", "median": "median", "p90": "90 %", "p99": "99 %"}
"""Labels of the figures of a time."""

_TIMES = {"ttft": "time to first token", "tpot": "time per token", "latency": "whole request"}
"""Labels of the times."""


def replay_section(
    found: ReplayRecord, write: Callable[[float], str], rate: Callable[[float], str]
) -> Section:
    """Return the section; `write` formats times, and `rate` rates."""
    columns = (
        Column("name", ""),
        *(Column(name, label, right=True) for name, label in _COLUMNS.items()),
    )
    rows = []
    for name, label in _TIMES.items():
        times = getattr(found, name)
        rows.append({"name": label} | {one: write(getattr(times, one)) for one in _COLUMNS})
    blocks: list[Block] = [
        Table(columns, rows),
        Grid(("left", "right"), tuple(_rates(found, rate))),
        dim(
            "Every pass of one replica is replayed, with its queue; figures above are a closed form."
        ),
    ]
    remark = f"{counted(found.requests, 'request')}, {found.load}"
    return Section("Replay of the scheduler", tuple(blocks), remark, opened=True)


def _rates(found: ReplayRecord, rate: Callable[[float], str]) -> Iterator[tuple[str, str]]:
    """Yield rates, and the requests that meet the limits."""
    yield "generated tokens/s", rate(found.output_rate)
    yield "requests/s", rate(found.request_rate)
    if found.highest_rate is not None:
        yield "within the latency limits", percent(found.good_share)
        yield "goodput, requests/s", rate(found.goodput)
        label = f"highest rate with {100 * found.percentile:g} % within them, requests/s"
        yield label, rate(found.highest_rate)
    if found.preempted:
        yield "preempted", counted(found.preempted, "request")
