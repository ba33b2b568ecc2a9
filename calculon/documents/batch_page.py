"""What a deployment gives over its batch, as a table of a terminal."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from calculon.documents.page_title import page_title
from calculon.documents.serving_page import deployment_words, duration_of, rate, requests_words
from calculon.render.grids import indented
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent

Document = Mapping[str, Any]

CUTS = {
    "memory": "memory",
    "token_budget": "token_budget",
    "max_batch": "max_batch",
    "prefill": "prefill",
    "tpot": "TPOT limit",
    "ttft": "TTFT limit",
}
"""Words for bounds of the batch, in few letters."""

_GROUPS = {
    "memory": ("weights", "cache", "activations"),
    "FLOP": ("arithmetic",),
    "net": ("network",),
    "fixed": ("floors", "host"),
}
"""Causes of the time of a decode pass that stand together."""


class BatchPage:
    """Times and rates at batches that double, and at those where a bound cuts.

    Parameters
    ----------
    document : mapping
        :meth:`calculon.serving.by_batch.ByBatch.to_dict`.
    """

    def __init__(self, document: Document):
        self.document = document

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        d, w = self.document["deployment"], self.document["workload"]
        title = f"{self.document['model']} served by {d['num_procs']:,} x {self.document['system']}"
        yield from page_title(title, "", self.document["provenance"])
        yield indented(Text(deployment_words(d)))
        yield indented(Text(requests_words(w)))
        yield Text()
        yield indented(Table(tuple(_columns()), [*self._rows()]))
        yield Text()
        yield indented(Text(_NOTE, "dim"))

    def _rows(self) -> Iterator[dict[str, str]]:
        """Yield a row for each batch that is told."""
        columns, cuts = self.document["columns"], self.document["cuts"]
        batches = columns["batch"]
        last = int(batches[-1])
        marks = {batch: CUTS[name] for name, batch in cuts.items() if 1 <= batch <= last}
        doubled = {2**n for n in range(last.bit_length())}
        places = {min(range(len(batches)), key=lambda i: abs(batches[i] - n)) for n in doubled}
        at = {int(batches[i]): i for i in places}
        for batch in sorted({*at, *(n for n in marks if float(n) in batches)}):
            i = batches.index(float(batch))
            one = {name: column[i] for name, column in columns.items()}
            row = {
                "batch": f"{batch:,}",
                "tpot": duration_of(one["tpot"]),
                "rate": rate(one["output_rate_per_proc"]),
                "ttft": duration_of(one["ttft"]),
                "bound": marks.get(batch, ""),
            }
            shares = {
                group: sum(one[f"decoding_{name}"] for name in causes) / one["tpot"]
                for group, causes in _GROUPS.items()
            }
            left = 1 - sum(shares.values())
            shares["prompts"] = left if left > _ROUNDING else 0.0
            yield row | {name: percent(share) for name, share in shares.items()}


_ROUNDING = 1e-9
_NOTE = (
    "Shares are of the time per token: decoding is due to memory (weights, caches, activations), arithmetic "
    "(FLOP), the network (net), and what is fixed (floors of kernels, the host); the rest are prompts of other "
    "requests."
)


def _columns() -> Iterator[Column]:
    yield Column("batch", "batch", right=True)
    yield Column("tpot", "TPOT", right=True)
    yield Column("rate", "processor\ntokens/s", right=True)
    yield Column("ttft", "TTFT", right=True)
    yield Column("prompts", "prompts", right=True)
    for drop, group in enumerate(_GROUPS):
        yield Column(group, group, right=True, drop=drop)
    yield Column("bound", "bound", fold=True)
