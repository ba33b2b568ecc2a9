"""Page of the frontier of deployments: a chart, and the deployments of its points."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from calculon.base.records import Plain
from calculon.base.units import Unit
from calculon.documents.page_title import titled
from calculon.documents.serving_page import (
    duration_of,
    rate,
    requests_words,
    split_words,
    types_words,
)
from calculon.render.document import Document, Section
from calculon.render.frontier import Axis, Frontier
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted
from calculon.serving.records.deployment import Deployment

MOST = 9
"""Maximum number of points in the table."""

_RATE = Unit("tokens/s")


def serving_frontier_page(data: Plain) -> Document:
    """Return the frontiers of machines: tokens/s per processor and tokens/s per user.

    `data` is the result of :func:`calculon.documents.served_frontier.frontier_of`.
    """
    curves, types, counts = data["curves"], all_types(data), data["num_procs"]
    letters = ascii_uppercase if len(curves) > 1 else ("",)
    shown = [
        (f"{letters[number % len(letters)]}{place}", curve["system"], point)
        for number, curve in enumerate(curves)
        for place, point in enumerate(chosen(curve["points"]), start=1)
    ]
    differ = {
        "system": len(curves) > 1,
        "num_procs": len(counts) > 1,
        "types": len(types) > 1,
    }
    columns = tuple(one for one in _COLUMNS if differ.get(one.key, True))
    empty = (f"{one['system']}: {one['none']}." for one in curves if not one["points"])
    return titled(
        f"{data['model']} served by {counts_words(counts)}",
        "",
        *(one.get("provenance", {}) | {"name": one["system"]} for one in curves),
        lead=(requests_words(data["workload"]), *(types if len(types) == 1 else ())),
        parts=(
            Section("", (_picture(shown, steps=len(curves) == 1),)),
            Section("", (Table(columns, [*_rows(shown)]), *empty)),
        ),
    )


def _picture(shown: Sequence[tuple[str, str, Plain]], *, steps: bool) -> Frontier:
    points = [
        (label, point["interactivity"], point["output_rate_per_proc"]) for label, _, point in shown
    ]
    _, across, up = zip(*points, strict=True)
    x = Axis.of("tokens per user", _RATE, across)
    y = Axis.of("generated tokens per processor", _RATE, up)
    return Frontier(x, y, points, steps=steps)


def counts_words(counts: Sequence[int]) -> str:
    """Return the number of processors.

    >>> counts_words([8]), counts_words([8, 16, 64])
    ('8 processors', '8 to 64 processors')
    """
    several = f"{min(counts):,} to {max(counts):,} processors"
    return several if len(counts) > 1 else counted(counts[0], "processor")


def pools_words(d: Deployment) -> str:
    """Return the split of replicas, and the number of prefill processors."""
    if d.prefill is None:
        return split_words(d)
    return f"{split_words(d)} + {d.prefill.num_procs:,} prefill"


def all_types(document: Plain) -> list[str]:
    """Return the data types of all points, in words."""
    every = (one["deployment"] for curve in document["curves"] for one in curve["points"])
    return list(dict.fromkeys(map(types_words, every)))


def chosen(points: Sequence[Plain]) -> list[Plain]:
    """Return a few points of a frontier, evenly spaced in tokens/s per user, including the first and the last."""
    if len(points) <= MOST:
        return list(points)
    ends = points[0]["interactivity"], points[-1]["interactivity"]
    wanted = [ends[0] + (ends[1] - ends[0]) * i / (MOST - 1) for i in range(MOST)]
    near = {
        min(range(len(points)), key=lambda i: abs(points[i]["interactivity"] - value))
        for value in wanted
    }
    return [points[i] for i in sorted(near)]


def _rows(shown: Sequence[tuple[str, str, Plain]]) -> Iterator[dict[str, str]]:
    for label, system, one in shown:
        d: Deployment = one["deployment"]
        yield {
            "label": label,
            "system": system,
            "user": rate(one["interactivity"]),
            "processor": rate(one["output_rate_per_proc"]),
            "all": rate(one["output_rate"]),
            "ttft": duration_of(one["ttft"]),
            "num_procs": f"{d.num_procs:,}",
            "split": pools_words(d),
            "replicas": f"{d.replicas:,}",
            "batch": f"{one['batch']:,.0f}",
            "budget": f"{d.token_budget:,}",
            "types": types_words(d),
        }


_COLUMNS = (
    Column("label", "#"),
    Column("system", "system"),
    Column("num_procs", "processors", right=True),
    Column("user", "user\ntokens/s", right=True),
    Column("processor", "processor\ntokens/s", right=True),
    Column("all", "all\ntokens/s", right=True, drop=3),
    Column("ttft", "TTFT", right=True),
    Column("split", "split"),
    Column("replicas", "replicas", right=True, drop=2),
    Column("batch", "batch of\na replica", right=True),
    Column("budget", "token\nbudget", right=True, drop=1),
    Column("types", "types", fold=True),
)
