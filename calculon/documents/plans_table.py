"""Table of the best plans of a search in words, with memory, time and interval (edition corrected)."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from calculon.base.frozen import dataclass
from calculon.base.records import Column as Statistic
from calculon.base.units import between, chance
from calculon.declarations.axes import AXES
from calculon.declarations.named_values import SHARDING
from calculon.declarations.plan_words import choices_words, degrees_words
from calculon.declarations.run_figures import TIMED_FIGURES
from calculon.declarations.statistics import BOUNDS, FITS, MFU, mfu_name
from calculon.render.digits import Digits
from calculon.render.text_tables import EARLY, Column, Table
from calculon.render.texts import gibibytes, quantity

TIED = "~"
"""Mark of plans that are not distinguishable from the fastest."""

_WORDS: Mapping[str, str] = {
    " x ": "PP 4 x 2: 4 stages of 2 chunks each",
    "CP ": "CP: ranks over which each sequence is split",
    "EP ": "EP: ranks over which experts are spread, ETP: ranks over which each is split",
    "mbs ": "mbs: sequences of a microbatch",
    "SP": "SP: sequence parallelism",
}
"""Legend of the abbreviations of plans."""

_COLUMNS: Mapping[str, str] = {
    "memory": "GiB: memory needed",
    "fits": "fits: probability of fitting in memory",
    "interval": "90 %: interval of the time",
    "share": "MFU: share of the peak in the precision of the plan, without masked keys if the kernel skips them",
    "rate": "seq/s: sequences per second",
    "each": "/proc: per processor",
    "tie": f"{TIED}: too close to the fastest to call, judging by measured runs of similar plans",
}
"""Legend of columns, by key."""

_MORE = "a wider terminal or an output file"
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
"""Fields whose differences are worth a line each."""


@dataclass(frozen=True, slots=True)
class Plans:
    """Table of plans, and the words that all of them share."""

    shared: str
    table: Table

    @property
    def meaning(self) -> str:
        """Legend of the abbreviations and columns in use."""
        cells = [f"{row['plan']}, {row['words']}" for row in self.table.rows]
        words = (text for part, text in _WORDS.items() if any(part in cell for cell in cells))
        shown = {column.key for column in self.table.columns}
        columns = (text for key, text in _COLUMNS.items() if key in shown)
        return "; ".join(("TP, PP, DP: tensor, pipeline and data parallelism", *words, *columns))


def apart(executions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the positions of plans that differ from all earlier ones in more than switches."""
    seen = set()
    places = []
    for place, execution in enumerate(executions):
        # Switches do not make a plan worth a line of its own.
        key = tuple(execution.get(name) for name in _SPLIT)
        if key not in seen:
            seen.add(key)
            places.append(place)
    return places


def ranks(executions: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the rank of each plan, counted from 0 for each processor count."""
    seen: Counter[int] = Counter()
    result = []
    for execution in executions:
        result.append(seen[execution["num_procs"]])
        seen[execution["num_procs"]] += 1
    return result


def plans_table(
    executions: Sequence[Mapping[str, Any]],
    stats: Sequence[Mapping[str, Any]],
    statistics: Sequence[Statistic] = (),
    usual: Sequence[Mapping[str, Any]] = (),
    numbers: Sequence[int] = (),
    *,
    ties: Sequence[bool] = (),
    whole: bool = False,
) -> Plans:
    """Return a table of plans, best first, one line each; 80 columns are enough.

    Args:
        executions, stats: Execution fields and statistics of each plan.
        statistics: Statistics that are always shown: the objectives.
        usual: Values without words, for each plan; by default the defaults of the record.
        numbers: Number of each plan; by default its rank.
        ties: Marks of plans that are not distinguishable from the fastest.
        whole: Wrap long words instead of truncating them.
    """
    words = [_words(e, u) for e, u in zip_longest(executions, usual, fillvalue=_NOTHING)]
    pairs = list(zip(words, executions, strict=True))
    # Words that all plans share move to the line above; words of an absent axis match trivially.
    shared = [word for word in words[0] if all(word in one or _moot(word, e) for one, e in pairs)]
    own = [", ".join(_short(w) for w in one if w not in shared) for one in words]
    known = {*_SHOWN.values(), *map(mfu_name, executions)}
    more = [one for one in statistics if one.name not in known]
    # Ranks restart at 0 for each processor count.
    called = numbers or ranks(executions)
    marks = [TIED if tie else "" for tie in ties] or [""] * len(own)
    rows = [
        {"rank": number, "tie": mark, "words": text} | _cells(e, s, more)
        for number, mark, text, e, s in zip(called, marks, own, executions, stats, strict=True)
    ]
    named = {one.name for one in statistics}
    columns = (
        Column("rank", "#", right=True),
        Column("tie", TIED),
        Column("procs", "procs", right=True),
        Column("plan", "plan"),
        Column("words", "with", cut=not whole, fold=whole, drop=1),
        *_numbers(named, mfu=not named.isdisjoint(map(mfu_name, executions))),
        *(Column(one.name, one.name.replace("_", "_\n"), right=True) for one in more),
    )
    sweep = len({row["procs"] for row in rows}) > 1
    several = {
        "rank": len({row["rank"] for row in rows}) > 1,
        "procs": sweep,
        "each": sweep,
        **{
            name: any(row[name] for row in rows)
            for name in ("tie", "words", "fits", "interval", "share")
        },
    }
    shown = tuple(column for column in columns if several.get(column.key, True))
    return Plans(_headline(shared, len(rows)), Table(shown, rows, _MORE))


def _cells(
    execution: Mapping[str, Any], stats: Mapping[str, Any], more: Sequence[Statistic]
) -> dict[str, Any]:
    """Return the cells of a plan, except its rank and words."""
    digits = digits_of(stats).closer
    procs, mfu = execution["num_procs"], stats.get(mfu_name(execution))
    return {
        "procs": procs,
        "plan": degrees_words(execution),
        "memory": gibibytes(stats["proc_mem_tier1_cap_req"], 1),
        "fits": "" if (fits := stats.get(FITS)) is None else chance(fits),
        "time": digits.duration(stats["total_time"]),
        "interval": duration_between(stats).replace(" to ", "-"),
        "share": "" if mfu is None else digits.efficiency(mfu),
        "rate": digits.rate(stats["sample_rate"]),
        "each": digits.small(stats["sample_rate"] / procs),
        **{one.name: _figure(one, stats[one.name], digits) for one in more},
    }


def figure(one: Statistic, value: float, stats: Mapping[str, Any]) -> str:
    """Write a statistic of a plan with its unit, as the table does.

    Args:
        one: The statistic.
        value: Value of the plan.
        stats: All statistics of the plan; the interval of the time determines the digits.
    """
    digits = digits_of(stats).closer
    if one.unit.symbol == "s":
        return digits.duration(value)
    if one.name in MFU:
        return digits.efficiency(value)
    if one.name == _SHOWN["memory"]:
        return f"{gibibytes(value, 1)} GiB"
    if one.name == _SHOWN["rate"]:
        return f"{digits.rate(value)} seq/s"
    return _figure(one, value, digits)


def _figure(one: Statistic, value: float | None, digits: Digits) -> str:
    """Write a statistic; quantities derived from the time get the digits of the time."""
    if value is None:
        return "-"
    if one.name in TIMED_FIGURES:
        return f"{digits.rate(value)} {one.unit.symbol}"
    return quantity(value, one.unit)


def _numbers(names: Collection[str], *, mfu: bool) -> Iterator[Column]:
    """Yield the columns of numbers; requested ones are never hidden."""
    yield Column("memory", "GiB", right=True, drop=0 if _SHOWN["memory"] in names else 2)
    yield Column("fits", "fits", right=True, drop=0 if FITS in names else 2)
    yield Column("time", "time", right=True)
    yield Column("interval", "90 %", right=True, drop=3)
    yield Column("share", "MFU", right=True, drop=0 if mfu else EARLY)
    yield Column("rate", "seq/s", right=True, drop=0 if _SHOWN["rate"] in names else 5)
    yield Column("each", "/proc", right=True, drop=4)


_SHOWN = {
    "time": "total_time",
    "memory": "proc_mem_tier1_cap_req",
    "fits": FITS,
    "rate": "sample_rate",
}
"""Statistics that always have a column."""


def _moot(word: str, execution: Mapping[str, Any]) -> bool:
    """Return True if a word is about a kind of parallelism that a plan does not use."""
    axis = "data_par" if word in SHARDING.values() else "tensor_par" if word in _SHORT else ""
    return bool(axis) and execution[axis] == 1


def _short(word: str) -> str:
    """Abbreviate words that every reader knows."""
    return _SHORT.get(word, word.replace("microbatch ", "mbs "))


def _headline(shared: Sequence[str], plans: int) -> str:
    """Return the line of words that all plans share."""
    text = ", ".join(shared)
    return f"{'All with' if plans > 1 else 'With'} {text}:" if text else ""


def _words(execution: Mapping[str, Any], usual: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a plan in addition to its degrees, the batch first."""
    batch = f"batch {execution['batch_size']:,}"
    return (batch, *choices_words(execution, usual))


def digits_of(stats: Mapping[str, Any]) -> Digits:
    """Return the digits that the interval of the time allows for a plan's numbers."""
    return Digits.within(stats["total_time"], *map(stats.get, BOUNDS))


def duration_between(stats: Mapping[str, Any]) -> str:
    """Write the interval of a plan's time; empty without one."""
    low, high = map(stats.get, BOUNDS)
    if low is None or high is None:
        return ""
    digits, total = digits_of(stats), stats["total_time"]
    return between(*(digits.duration(end, like=total) for end in (low, high)))
