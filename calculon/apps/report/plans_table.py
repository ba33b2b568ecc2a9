"""The best plans of a search in words, with memory, time and its interval: as winners of edition corrected are told."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from calculon.apps.report.digits import WITHOUT_INTERVAL, Digits
from calculon.apps.report.text_tables import EARLY, Column, Table
from calculon.apps.report.texts import gibibytes, quantity
from calculon.frozen import dataclass
from calculon.records import Column as Statistic
from calculon.spec.axes import AXES
from calculon.spec.plan_words import choices_words, degrees_words
from calculon.statistics import BOUNDS
from calculon.units import between

MEANING = (
    "TP, PP, DP: tensor, pipeline and data parallelism, PP 4 x 2 with 2 chunks per stage; mbs: sequences of a "
    "microbatch; SP: sequence parallelism; GiB: needed of the tier-1 memory; 90 %: interval of the time; MFU: of the "
    "peak, without masked keys where the kernel skips them; seq/s: sequences per second, /proc of each processor"
)
"""The meaning of the short words."""

_MORE = "a wider screen or an output file"
_SHORT = {
    "sequence parallel": "SP",
    "no sequence parallelism": "no SP",
}
_NOTHING: Mapping[str, Any] = {}

_SPLIT = (
    "num_procs",
    *(axis.degree for axis in AXES),
    "pipeline_interleaving",
    "batch_size",
    "microbatch_size",
    "activation_recompute",
)
"""Fields in which plans differ that are worth a line each."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans in a table, and before it the words that all of them share."""

    shared: str
    table: Table


def apart(executions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the places of plans that differ from all before them in more than switches."""
    seen = set()
    places = []
    for place, execution in enumerate(executions):
        key = tuple(execution.get(name) for name in _SPLIT)
        if key not in seen:
            seen.add(key)
            places.append(place)
    return places


def ranks(executions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the rank of each plan, from 0 for each processor count."""
    seen: Counter[int] = Counter()
    found = []
    for execution in executions:
        found.append(seen[execution["num_procs"]])
        seen[execution["num_procs"]] += 1
    return found


def plans_table(
    executions: Sequence[Mapping[str, Any]],
    stats: Sequence[Mapping[str, Any]],
    asked: Sequence[Statistic] = (),
    usual: Sequence[Mapping[str, Any]] = (),
    numbers: Sequence[int] = (),
    *,
    whole: bool = False,
) -> Plans:
    """List plans, best first, one line each: 80 columns are enough.

    Parameters
    ----------
    executions, stats : sequence of mapping
        Execution fields and statistics of each plan.
    asked : sequence of Column
        Statistics that are shown in any case: the objectives.
    usual : sequence of mapping
        Values that need no word, for each plan; by default those of the record.
    numbers : sequence of int
        What each is called; by default its rank.
    whole : bool
        Words that are too long take several lines, rather than being cut.
    """
    words = [_words(e, u) for e, u in zip_longest(executions, usual, fillvalue=_NOTHING)]
    shared = [word for word in words[0] if all(word in one for one in words)] if words else []
    numbers = numbers or ranks(executions)
    more = [one for one in asked if one.name not in {*_SHOWN.values(), *map(_mfu, executions)}]
    rows = []
    for number, e, s, own in zip(numbers, executions, stats, words, strict=True):
        digits, interval = _digits(s)
        procs, mfu = e["num_procs"], s.get(_mfu(e))
        rows.append(
            {
                "rank": number,
                "procs": procs,
                "plan": degrees_words(e),
                "words": ", ".join(_short(w) for w in own if w not in shared),
                "memory": gibibytes(s["proc_mem_tier1_cap_req"], 1),
                "time": digits.duration(s["total_time"]),
                "interval": interval,
                "share": "" if mfu is None else digits.efficiency(mfu),
                "rate": digits.rate(s["sample_rate"]),
                "each": digits.small(s["sample_rate"] / procs),
                **{x.name: "-" if s[x.name] is None else quantity(s[x.name], x.unit) for x in more},
            }
        )
    columns = [
        *((Column("rank", "#", right=True),) if len({*numbers}) > 1 else ()),
        *_columns(executions, {one.name for one in asked}, whole=whole),
        *(Column(x.name, x.name.replace("_", "_\n"), right=True) for x in more),
    ]
    told = {name for name in ("words", "interval", "share") if any(row[name] for row in rows)}
    empty = {"words", "interval", "share"} - told
    shown = tuple(column for column in columns if column.key not in empty)
    return Plans(_headline(shared, len(rows)), Table(shown, rows, _MORE))


def _columns(
    executions: Sequence[Mapping[str, Any]], asked: set[str], *, whole: bool
) -> Iterator[Column]:
    """Yield the columns of a table of plans: what is asked for is not left out, however narrow the screen."""
    several, sweep = len(executions) > 1, len({e["num_procs"] for e in executions}) > 1
    asked_mfu = not asked.isdisjoint(map(_mfu, executions))

    def drop(key: str, number: int) -> int:
        return 0 if _SHOWN[key] in asked else number

    if sweep:
        yield Column("procs", "procs", right=True)
    yield Column("plan", "plan")
    if several:
        yield Column("words", "with", cut=not whole, fold=whole, drop=1)
    yield Column("memory", "GiB", right=True, drop=drop("memory", 2))
    yield Column("time", "time", right=True)
    yield Column("interval", "90 %", right=True, drop=3)
    yield Column("share", "MFU", right=True, drop=0 if asked_mfu else EARLY)
    yield Column("rate", "seq/s", right=True, drop=drop("rate", EARLY + 1 if sweep else 4))
    if sweep:
        yield Column("each", "/proc", right=True, drop=4)


_SHOWN = {
    "time": "total_time",
    "memory": "proc_mem_tier1_cap_req",
    "rate": "sample_rate",
}
"""Statistics that have a column in any case."""


def _mfu(execution: Mapping[str, Any]) -> str:
    """Return the statistic that is called MFU: of what the attention kernel computes, as on the page of a result."""
    return "mfu_causal" if execution.get("attn_impl") == "flash" else "mfu"


def _short(word: str) -> str:
    """Shorten what every reader of plans knows."""
    return _SHORT.get(word, word.replace("microbatch ", "mbs "))


def _headline(shared: Sequence[str], plans: int) -> str:
    """Say what all plans share."""
    text = ", ".join(shared)
    return f"{'All with' if plans > 1 else 'With'} {text}:" if text else ""


def _words(execution: Mapping[str, Any], usual: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a plan beside its degrees, its batch first."""
    batch = f"batch {execution['batch_size']:,}"
    return (batch, *choices_words(execution, usual))


def _digits(stats: Mapping[str, Any]) -> tuple[Digits, str]:
    """Return how numbers are written, with one digit more than is known, as plans are compared; and the interval."""
    total, (low, high) = stats["total_time"], map(stats.get, BOUNDS)
    if low is None or high is None:
        return Digits(WITHOUT_INTERVAL / 10), ""
    spread = (high - low) / 2 / total
    known = Digits(spread)
    ends = between(known.duration(low, like=total), known.duration(high, like=total))
    return Digits(spread / 10), ends.replace(" to ", "-")
