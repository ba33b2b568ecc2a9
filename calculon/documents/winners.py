"""Tables of a search: its winners, and the reasons why other executions cannot run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.advise.candidate import tied_candidates
from calculon.advise.in_words import memory_and_time, plan_in_words
from calculon.base.errors import in_words
from calculon.declarations.plan_words import degrees_words
from calculon.declarations.statistics import FITS
from calculon.documents.confidence import none_within, ties_in_words
from calculon.plan.columns import FIELDS
from calculon.render.digits import Digits
from calculon.render.text_tables import Column, Table
from calculon.render.texts import gibibytes, percent
from calculon.search.search_result import SearchResult

SHOWN = ("sample_rate", "total_time", "proc_mem_tier1_cap_req")
"""Statistics that the table of winners always has."""

_SHORT = {"full": "full", "attn_only": "attn", "none": "-"}
_COMM = {"ar": "ar", "p2p_rs_ag": "p2p", "rs_ag": "sp"}


def winners_table(
    executions: Sequence[Mapping[str, Any]],
    stats: Sequence[Mapping[str, Any]],
    extra: Sequence[str] = (),
) -> Table:
    """Return the winners in the format of edition ``sc23``, one line each.

    80 columns are enough for one processor count without extra statistics. Edition ``corrected`` writes plans in words
    (:mod:`calculon.documents.plans_table`).

    Ranks count from 0 for each processor count. `extra` statistics follow in raw units.

    Args:
        executions, stats: Execution fields and statistics of each winner, best first.
        extra: Additional statistics: the objectives.
    """
    sweep = len({e["num_procs"] for e in executions}) > 1
    columns, digits = _columns(extra, sweep=sweep), Digits()
    rows = []
    ranks: Counter[int] = Counter()
    for e, s in zip(executions, stats, strict=True):
        procs = e["num_procs"]
        rows.append(
            {
                "rank": ranks[procs],
                "procs": procs,
                "split": f"{e['tensor_par']}.{e['pipeline_par']}.{e['data_par']}",
                "chunks": e["pipeline_interleaving"],
                "batch": e["batch_size"],
                "mbs": e["microbatch_size"],
                "recompute": _SHORT[e["activation_recompute"]],
                "tensor": _collectives(e),
                "switches": _switches(e),
                "mem1": gibibytes(s["proc_mem_tier1_cap_req"]),
                "time": digits.duration(s["total_time"]),
                "rate": digits.rate(s["sample_rate"]),
                "each": digits.small(s["sample_rate"] / procs),
                **{name: "-" if s[name] is None else f"{s[name]:.6g}" for name in extra},
            }
        )
        ranks[procs] += 1
    return Table(columns, rows)


def _columns(extra: Sequence[str], *, sweep: bool) -> tuple[Column, ...]:
    return (
        Column("rank", "#", right=True),
        *((Column("procs", "procs", right=True),) if sweep else ()),
        Column("split", "TP.PP.DP"),
        Column("chunks", "v", right=True),
        Column("batch", "batch", right=True),
        Column("mbs", "mbs", right=True),
        Column("recompute", "rec"),
        Column("tensor", "TP comm"),
        Column("switches", "on"),
        Column("mem1", "GiB", right=True),
        Column("time", "time", right=True),
        Column("rate", "samples/s", right=True),
        *((Column("each", "/proc", right=True),) if sweep else ()),
        *(Column(name, name, right=True) for name in extra),
    )


LEGEND = (
    "TP.PP.DP: tensor, pipeline and data parallelism; v: chunks per stage; mbs: microbatch; rec: recomputation "
    "(attn: of attention only); TP comm: ar all-reduce, p2p all-reduce, split between stages (p2p_rs_ag), "
    "sp sequence parallelism (rs_ag), +ring or +pipe overlapped; on: S optimizer sharding, R gather "
    "again, O overlapped data parallelism, w/a/o weights, activations, optimizer offloaded; GiB: memory "
    "needed; /proc: samples/s per processor, for several counts"
)
"""Legend of the short columns."""

_LETTERS = {one.name: one.declaration.mark for one in FIELDS if not one.declaration.optional}


def _least(size: float | None) -> str | None:
    """Write the smallest of several excesses, in GiB."""
    text = None if size is None else gibibytes(size)
    return text if text is None or text.startswith("<") else f">= {text}"


def _collectives(execution: Mapping[str, Any]) -> str:
    """Write tensor-parallel collectives and their overlap; a dash without tensor parallelism."""
    overlap = execution["tensor_par_overlap"]
    comm = _COMM[execution["tensor_par_comm_type"]] + ("" if overlap == "none" else f"+{overlap}")
    return comm if execution["tensor_par"] > 1 else "-"


def _switches(execution: Mapping[str, Any]) -> str:
    """Write the enabled switches as letters."""
    return (
        "".join(str(letter) for name, letter in _LETTERS.items() if letter and execution[name])
        or "-"
    )


def reasons_table(
    total: int, good: int, reasons: Mapping[str, int], nearest_miss: Mapping[str, float]
) -> Table:
    """Return the reasons why executions cannot run, most frequent first; for memory, with the smallest excess."""
    columns = (
        Column("count", "executions", right=True),
        Column("share", "share", right=True),
        Column("reason", "why not", fold=True),
        Column("miss", "GiB over", right=True),
    )
    ranked = sorted(reasons.items(), key=lambda item: -item[1])
    rows: list[dict[str, Any]] = [
        {"count": good, "share": percent(good / max(1, total)), "reason": "feasible", "miss": None}
    ]
    rows += [
        {
            "count": count,
            "share": percent(count / max(1, total)),
            "reason": in_words(reason),
            "miss": _least(nearest_miss.get(reason)),
        }
        for reason, count in ranked
    ]
    return Table(columns, rows)


def risks(result: SearchResult) -> Iterator[str]:
    """Yield a note if no execution has an acceptable risk, and the best of all if the search prefers another."""
    if result.risk is None:
        return
    if (fits := float(result.evaluation[FITS][0])) < 1 - result.risk:
        yield none_within(result.risk, fits)
    if (best := result.best_of_all) is not None:
        first = result.objectives[0].statistic.name
        which = "Fastest" if first in ("sample_rate", "total_time") else "Best"
        yield f"{which} that is predicted to fit: {plan_in_words(best.execution)} ({memory_and_time(best)})"


def ties(result: SearchResult, *, ranked: bool = True) -> str:
    """Return the number of plans that tie with the fastest, and the simplest of them with its rank."""
    alike = sum(not order.distinguishable for order in result.orders)
    several = tied_candidates(result)
    if not several:  # the fastest ranks too low by another objective to be among them
        return ties_in_words(alike, len(result), f"# {result.fastest}")
    rank, one = several[0]
    rank_words = f" (# {rank})" if ranked else ""
    return ties_in_words(alike, len(result), f"{degrees_words(one.execution)}{rank_words}")
