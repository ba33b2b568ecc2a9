"""Page of a deployment by batch: TPOT, throughput and TTFT at every power of two, and at the batch limits."""

from collections.abc import Iterator

from calculon.documents.page_title import titled
from calculon.documents.serving_page import deployment_words, duration_of, rate, requests_words
from calculon.render.document import Document, Section, dim
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent
from calculon.serving.by_batch import ByBatch

CUTS = {
    "memory": "memory",
    "token_budget": "token_budget",
    "max_batch": "max_batch",
    "prefill": "prefill",
    "tpot": "TPOT limit",
    "ttft": "TTFT limit",
}
"""Short labels of the limits of the batch."""

_GROUPS = {
    "memory": ("weights", "cache", "activations"),
    "FLOP": ("arithmetic",),
    "net": ("network",),
    "fixed": ("floors", "host"),
}
"""Causes of the decode time that share a column."""


def batch_page(curve: ByBatch) -> Document:
    """Return the page of a deployment by batch."""
    served = curve.served
    table = Table(tuple(_columns()), [*_rows(curve)])
    return titled(
        f"{served.model.name} served by {served.deployment.num_procs:,} x {served.system.name}",
        "",
        served.system.provenance.to_dict(),
        lead=(deployment_words(served.deployment), requests_words(served.workload)),
        parts=(Section("", (table,)), Section("", (dim(_NOTE),))),
    )


def _rows(curve: ByBatch) -> Iterator[dict[str, str]]:
    """Yield a row for each batch in the table."""
    columns = {name: column.tolist() for name, column in curve.columns.items()}
    batches = columns["batch"]
    last = int(batches[-1])
    marks = {cut.batch: CUTS[cut.name] for cut in curve.cuts if 1 <= cut.batch <= last}
    # The curve skips batches, so that each power of two is shown by the nearest computed batch.
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
        # The rest of the time per token goes to prefill of other requests, which interrupts decoding.
        shares["prompts"] = left if left > _ROUNDING else 0.0
        yield row | {name: percent(share) for name, share in shares.items()}


_ROUNDING = 1e-9
_NOTE = (
    "Shares of the time per token: decode time is memory (weights, KV cache, activations), arithmetic "
    "(FLOP), network (net), and fixed overhead (kernel floors, host); the rest is prefill of other "
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
