"""The frontier of deployments in a terminal: a picture of characters, and the deployments of its points."""

from collections.abc import Iterator, Mapping, Sequence
from string import ascii_uppercase
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from calculon.base.units import Unit
from calculon.documents.frontier import Axis, Frontier
from calculon.documents.page_title import page_title
from calculon.documents.serving_page import (
    duration_of,
    rate,
    requests_words,
    split_words,
    types_words,
)
from calculon.render.grids import indented
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted

Document = Mapping[str, Any]

MOST = 9
"""Points of a frontier that are told."""

_RATE = Unit("tokens/s")


class ServingFrontierPage:
    """Frontiers of machines: tokens/s of a processor against those of a user.

    Parameters
    ----------
    document : mapping
        As of :func:`calculon.documents.charts.serving_frontier.serving_frontier`.
    """

    def __init__(self, document: Document):
        self.document = document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title = f"{self.document['model']} served by {counts_words(self.document['num_procs'])}"
        curves = self.document["curves"]
        yield from page_title(
            title, "", *(one.get("provenance", {}) | {"name": one["system"]} for one in curves)
        )
        yield indented(Text(requests_words(self.document["workload"])))
        types = all_types(self.document)
        if len(types) == 1:
            yield indented(Text(types[0]))
        yield Text()
        letters = ascii_uppercase if len(curves) > 1 else ("",)
        told = [
            (f"{letters[number % len(letters)]}{place}", curve["system"], point)
            for number, curve in enumerate(curves)
            for place, point in enumerate(chosen(curve["points"]), start=1)
        ]
        across, up = (
            [point[name] for _, _, point in told]
            for name in ("interactivity", "output_rate_per_proc")
        )
        x = Axis.of("tokens of a user", _RATE, across)
        y = Axis.of("generated tokens of a processor", _RATE, up)
        places = [(label, a, b) for (label, _, _), a, b in zip(told, across, up, strict=True)]
        yield indented(Frontier(x, y, places, steps=len(curves) == 1))
        yield Text()
        counts = self.document["num_procs"]
        differ = {
            "system": len(curves) > 1,
            "num_procs": len(counts) > 1,
            "types": len(types) > 1,
        }
        columns = [one for one in _COLUMNS if differ.get(one.key, True)]
        yield indented(Table(tuple(columns), [*_rows(told)]))
        for curve in curves:
            if not curve["points"]:
                yield indented(Text(f"{curve['system']}: {curve['none']}."))


def counts_words(counts: Sequence[int]) -> str:
    """Say on how many processors.

    >>> counts_words([8]), counts_words([8, 16, 64])
    ('8 processors', '8 to 64 processors')
    """
    several = f"{min(counts):,} to {max(counts):,} processors"
    return several if len(counts) > 1 else counted(counts[0], "processor")


def pools_words(d: Document) -> str:
    """Say how replicas are split, and those of processors that only prefill."""
    pool = d.get("prefill")
    if pool is None:
        return split_words(d)
    return f"{split_words(d)} + {pool['num_procs']:,} prefill"


def all_types(document: Document) -> list[str]:
    """Return the types of numbers of all points, in words."""
    every = (one["deployment"] for curve in document["curves"] for one in curve["points"])
    return list(dict.fromkeys(map(types_words, every)))


def chosen(points: Sequence[Document]) -> list[Document]:
    """Return a few points of a frontier, evenly spaced in tokens/s of a user, the first and the last among them."""
    if len(points) <= MOST:
        return list(points)
    ends = points[0]["interactivity"], points[-1]["interactivity"]
    wanted = [ends[0] + (ends[1] - ends[0]) * i / (MOST - 1) for i in range(MOST)]
    near = {
        min(range(len(points)), key=lambda i: abs(points[i]["interactivity"] - value))
        for value in wanted
    }
    return [points[i] for i in sorted(near)]


def _rows(told: Sequence[tuple[str, str, Document]]) -> Iterator[dict[str, str]]:
    for label, system, one in told:
        d = one["deployment"]
        yield {
            "label": label,
            "system": system,
            "user": rate(one["interactivity"]),
            "processor": rate(one["output_rate_per_proc"]),
            "all": rate(one["output_rate"]),
            "ttft": duration_of(one["ttft"]),
            "num_procs": f"{d['num_procs']:,}",
            "split": pools_words(d),
            "replicas": f"{d['replicas']:,}",
            "batch": f"{one['batch']:,.0f}",
            "budget": f"{d['token_budget']:,}",
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
