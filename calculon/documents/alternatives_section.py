"""Section of a page: the best deployment of each kind, aggregated or disaggregated, by data types."""

from collections.abc import Iterator, Sequence
from typing import Any

from calculon.documents.serving_page import duration_of, pool_words, rate
from calculon.render.document import Block, Section, dim
from calculon.render.text_tables import EARLY, Column, Table
from calculon.search.deployments.first_answer import Alternative
from calculon.search.deployments.serving_search import OBJECTIVE
from calculon.serving.records.load import SATURATED

NOTE = (
    "The first is chosen. Other data types than the released ones may change answers: the effect on quality is not "
    "modeled. Pools of disaggregated deployments are sized by equal rates (--apart tries all pairs)."
)


def alternatives_section(alternatives: Sequence[Alternative]) -> Section | None:
    """Return the table of the best deployment of each kind; None without alternatives."""
    shown = [one for one in alternatives if one.served is not None]
    if len(shown) < 2:
        return None
    columns = [
        Column("kind", "kind"),
        Column("precision", "precision"),
        Column("count", "count", right=True),
        Column("deployment", "replicas", fold=True),
        Column("prefill", "prefill by", fold=True),
        Column("rate", "tokens/s", right=True),
        Column("gain", "", right=True, drop=EARLY),
        Column("ttft", "TTFT", right=True),
        Column("tpot", "TPOT", right=True),
        Column("usd", "USD/M", right=True),
    ]
    found = [one.served for one in shown if one.served is not None]
    # The load determines the rate; a single count is in the title of the page.
    hidden = {"gain"} if found[0].workload.kind != SATURATED else set()
    hidden |= {"count"} if len({one.deployment.num_procs for one in found}) == 1 else set()
    columns = [one for one in columns if one.key not in hidden]
    missing = [f"{one.kind}, {one.precision}" for one in alternatives if one.served is None]
    blocks: list[Block] = [Table(tuple(columns), [*_rows(shown)])]
    if missing:
        blocks.append(dim(f"None meets the limits: {'; '.join(missing)}."))
    remark = "tokens/s per processor"
    return Section("Best of each kind", (*blocks, dim(NOTE)), remark, opened=True)


def _rows(shown: Sequence[Alternative]) -> Iterator[dict[str, Any]]:
    assert shown[0].served is not None
    first = shown[0].served[OBJECTIVE]
    for place, one in enumerate(shown):
        assert one.served is not None
        deployment, figures = one.served.deployment, one.served.stats
        usd, gain = figures["usd_per_mtoken"], one.served[OBJECTIVE] / first - 1
        yield {
            "kind": one.kind,
            "precision": one.precision,
            "count": deployment.num_procs,
            "deployment": pool_words(deployment),
            "prefill": "" if deployment.prefill is None else pool_words(deployment.prefill),
            "rate": rate(one.served[OBJECTIVE]),
            "gain": f"{gain:+.0%}".replace("%", " %") if place else "chosen",
            "ttft": duration_of(one.served["ttft"]),
            "tpot": duration_of(one.served["tpot"]),
            "usd": "" if usd is None else rate(usd),
        }
