"""Section on the latencies of single requests, from a replay of the scheduler."""

from collections.abc import Callable, Iterator

from calculon.render.document import Block, Grid, Section, dim
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, percent
from calculon.serving.records.load import Workload
from calculon.serving.replay.replay_record import ReplayRecord
from calculon.serving.served_record import ServedRecord

_COLUMNS = {"mean": "mean", "median": "median", "p90": "90 %", "p99": "99 %"}
"""Labels of the figures of a time."""

_TIMES = {"ttft": "time to first token", "tpot": "time per token", "latency": "whole request"}
"""Labels of the times."""


def replay_section(
    served: ServedRecord, write: Callable[[float], str], rate: Callable[[float], str]
) -> Iterator[Section]:
    """Yield the section if the scheduler was replayed; `write` formats times, and `rate` rates."""
    found = served.replay
    if found is None:
        return
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
        Grid(("left", "right"), tuple(_rates(found, served.workload, rate))),
        dim(
            "Every pass of one replica is replayed, with its queue; figures above are a closed form."
        ),
    ]
    remark = f"{counted(found.requests, 'request')}, {found.load}"
    yield Section("Replay of the scheduler", tuple(blocks), remark, opened=True)


def _rates(
    found: ReplayRecord, workload: Workload, rate: Callable[[float], str]
) -> Iterator[tuple[str, str]]:
    """Yield rates, and the requests that meet the limits."""
    yield "generated tokens/s", rate(found.output_rate)
    yield "requests/s", rate(found.request_rate)
    if found.highest_rate is not None:
        yield "within the latency limits", percent(found.good_share)
        yield "goodput, requests/s", rate(found.goodput)
        label = f"highest rate with {100 * workload.percentile:g} % within them, requests/s"
        yield label, rate(found.highest_rate)
    if found.preempted:
        yield "preempted", counted(found.preempted, "request")
