"""The outcome of a search in tables: its winners, and why the other executions cannot run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from calculon.apps.report.digits import WITHOUT_INTERVAL, Digits
from calculon.apps.report.text_tables import Column, Table
from calculon.apps.report.texts import percent
from calculon.errors import in_words
from calculon.frozen import dataclass
from calculon.spec.execution import PUBLISHED, Execution
from calculon.spec.fields import spec_fields
from calculon.statistics import BOUNDS
from calculon.units import GIB, between

SHOWN = ("sample_rate", "total_time", "proc_mem_tier1_cap_req")
"""Statistics that the table of winners has in any case."""

_NOTHING: Mapping[str, Any] = {}
_SHORT = {"full": "full", "attn_only": "attn", "none": "-"}
_COMM = {"ar": "ar", "p2p_rs_ag": "p2p", "rs_ag": "sp"}


def winners_table(
    executions: Sequence[Mapping[str, Any]],
    stats: Sequence[Mapping[str, Any]],
    extra: Sequence[str] = (),
    usual: Sequence[Mapping[str, Any]] = (),
) -> Table:
    """List the winners, one line each: 80 columns are enough for one processor count and nothing extra.

    Ranks count from 0 for each processor count. `extra` statistics follow in raw units.

    Parameters
    ----------
    executions, stats : sequence of mapping
        Execution fields and statistics of each winner, best first.
    extra : sequence of str
        Statistics in addition to those shown always: the objectives.
    usual : sequence of mapping
        Values of optional fields that need no word, for each winner; by default those of the record.
    """
    sweep = len({e["num_procs"] for e in executions}) > 1
    own = [_own(e, u) for e, u in zip_longest(executions, usual, fillvalue=_NOTHING)]
    sure = [
        _written(e.get("edition", PUBLISHED), s) for e, s in zip(executions, stats, strict=True)
    ]
    interval = any(written.interval for written in sure)
    columns = _columns(extra, sweep=sweep, own=bool(set(own) - {"-"}), interval=interval)
    rows = []
    ranks: Counter[int] = Counter()
    for e, s, also, written in zip(executions, stats, own, sure, strict=True):
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
                "own": also,
                "mem1": written.memory,
                "time": written.digits.duration(s["total_time"]),
                "interval": written.interval,
                "rate": written.digits.rate(s["sample_rate"]),
                "each": written.digits.small(s["sample_rate"] / procs),
                **{name: "-" if s[name] is None else f"{s[name]:.6g}" for name in extra},
            }
        )
        ranks[procs] += 1
    return Table(columns, rows)


def _columns(extra: Sequence[str], *, sweep: bool, own: bool, interval: bool) -> tuple[Column, ...]:
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
        *((Column("own", "also"),) if own else ()),
        Column("mem1", "GiB", right=True),
        Column("time", "time", right=True),
        *((Column("interval", "90 %", right=True),) if interval else ()),
        Column("rate", "samples/s", right=True),
        *((Column("each", "/proc", right=True),) if sweep else ()),
        *(Column(name, name, right=True) for name in extra),
    )


LEGEND = (
    "TP.PP.DP: tensor, pipeline and data parallelism; v: chunks per stage; mbs: microbatch; rec: recomputation "
    "(attn: of attention only); TP comm: ar all-reduce, p2p all-reduce, split between stages (p2p_rs_ag), "
    "sp sequence parallelism (rs_ag), +ring or +pipe overlapped; on: S optimizer sharding, R gather "
    "again, O overlapped data parallelism, w/a/o weights, activations, optimizer offloaded; GiB: needed of the "
    "tier-1 memory; /proc: samples/s per processor, for several counts"
)
"""The meaning of the short columns."""

LEGEND_OF_INTERVALS = "; 90 %: interval of the time"
"""That of the column which winners of edition ``corrected`` have, too."""

_LETTERS = {
    "optimizer_sharding": "S",
    "seq_par_ag_redo": "R",
    "data_par_overlap": "O",
    "weight_offload": "w",
    "activations_offload": "a",
    "optimizer_offload": "o",
}


@dataclass(frozen=True, slots=True)
class _Written:
    """How the numbers of a winner are written: its digits, and memory and interval of the time as texts."""

    digits: Digits
    memory: str
    interval: str


def _written(edition: str, stats: Mapping[str, Any]) -> _Written:
    """Write the numbers of a winner; with one digit more than is known, as winners are compared with each other."""
    memory = stats["proc_mem_tier1_cap_req"]
    if edition == PUBLISHED:
        return _Written(Digits(), _gibibytes(memory), "")
    total, (low, high) = stats["total_time"], map(stats.get, BOUNDS)
    if low is None or high is None:
        return _Written(Digits(WITHOUT_INTERVAL / 10), _gibibytes(memory, 1), "")
    spread = (high - low) / 2 / total
    known = Digits(spread)
    ends = between(known.duration(low, like=total), known.duration(high, like=total))
    return _Written(Digits(spread / 10), _gibibytes(memory, 1), ends.replace(" to ", "-"))


def _gibibytes(size: float, decimals: int = 2) -> str:
    """Write a size in GiB without the unit, so that a column is read at a glance."""
    least = 10.0**-decimals
    small = 0 < size < least / 2 * GIB
    return f"<{least:.{decimals}f}" if small else f"{size / GIB:,.{decimals}f}"


def _least(size: float | None) -> str | None:
    """Write the smallest of many excesses, in GiB."""
    text = None if size is None else _gibibytes(size)
    return text if text is None or text.startswith("<") else f">= {text}"


def _collectives(execution: Mapping[str, Any]) -> str:
    """Write tensor-parallel collectives and their overlap; a dash without tensor parallelism."""
    overlap = execution["tensor_par_overlap"]
    comm = _COMM[execution["tensor_par_comm_type"]] + ("" if overlap == "none" else f"+{overlap}")
    return comm if execution["tensor_par"] > 1 else "-"


def _switches(execution: Mapping[str, Any]) -> str:
    """Write the switches that are on as letters."""
    return "".join(letter for name, letter in _LETTERS.items() if execution[name]) or "-"


def _own(execution: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Name the choices that only the corrected edition has, where they are not the usual ones."""
    words = []
    for field in spec_fields(Execution):
        mark, value = field.declaration.mark, execution.get(field.name, field.default)
        if not mark or value == usual.get(field.name, field.default):
            continue
        if value == field.default:
            words.append(f"{field.name}={str(value).lower()}")
        else:
            words.append(mark.format(value) if isinstance(mark, str) else mark[value])
    return ", ".join(words) or "-"


def reasons_table(
    total: int, good: int, reasons: Mapping[str, int], nearest_miss: Mapping[str, float]
) -> Table:
    """List why executions cannot run, most frequent first, and for memory how near the nearest came."""
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
