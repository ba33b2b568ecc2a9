"""Why nothing fits: the reasons in words, the nearest miss, and what would mend it."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from calculon.errors import in_words
from calculon.estimate import Estimate
from calculon.frozen import dataclass
from calculon.planner.nearest_miss import Miss, nearest_misses
from calculon.planner.remedies import Remedy, remedies
from calculon.search.effect import Wording
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.search_counts import Counts
from calculon.search.space import Space
from calculon.search.where import Condition
from calculon.spec.axes import FURTHER_AXES
from calculon.spec.execution import Execution
from calculon.units import GIB, duration

UNWANTED = "they do not meet the condition"
"""Why executions that can run are not wanted."""

_SHOWN_REASONS, _SHOWN_PARTS = 4, 5


@dataclass(frozen=True, slots=True)
class Reason:
    """Why some executions cannot run: the identifier of the rule, the words for it, and how many they are."""

    reason: str
    words: str
    executions: int


@dataclass(frozen=True)
class Unfit:
    """Why nothing of a space fits, and what would mend it.

    Attributes
    ----------
    space : Space
        The space that was searched.
    executions : int
        Executions of the space; 0 where no split of the processors divides model and batch.
    reasons : tuple of Reason
        Why they cannot run, the most frequent reason first.
    misses : tuple of Miss
        Where memory is too small, the executions that come nearest to fitting, by tier.
    remedies : tuple of Remedy
        What would mend it, each tried by a search.
    """

    space: Space
    executions: int
    reasons: tuple[Reason, ...]
    misses: tuple[Miss, ...]
    remedies: tuple[Remedy, ...]

    def lines(self, wording: Wording | None = None) -> list[str]:
        """Return it in plain words, a line each; with options as they are written by those who ask, where given."""
        lines = [f"Nothing fits: {self._why()}."]
        lines += [_nearest(miss) for miss in self.misses]
        if self.remedies:
            lines.append("What would do (each tried by a search):")
            lines += [f"  - {text}" for text in self._remedies(wording)]
        return lines

    def _why(self) -> str:
        if not self.executions:
            return _no_split(self.space)
        shown = [f"{one.words} ({one.executions:,})" for one in self.reasons[:_SHOWN_REASONS]]
        if (more := len(self.reasons) - _SHOWN_REASONS) > 0:
            shown.append(f"{more} more reason{'s' * (more > 1)}")
        return f"of {self.executions:,} executions, {'; '.join(shown)}"

    def _remedies(self, wording: Wording | None) -> Iterator[str]:
        for one in self.remedies:
            yield f"{change_in_words(one, self.space, wording)}: {figures(one.found)}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "executions": self.executions,
            "reasons": [
                {"reason": one.reason, "words": one.words, "executions": one.executions}
                for one in self.reasons
            ],
            "nearest_misses": [
                {
                    "tier": miss.tier,
                    "needed": miss.needed,
                    "available": miss.available,
                    "over": miss.over,
                    "parts": dict(miss.parts),
                    "execution": miss.estimate.execution.to_dict(),
                }
                for miss in self.misses
            ],
            "remedies": [
                {
                    "kind": one.kind,
                    "change": dict(one.change),
                    "execution": one.found.execution.to_dict(),
                    "total_time": one.found.stats["total_time"],
                    "proc_mem_tier1_cap_req": one.found.stats["proc_mem_tier1_cap_req"],
                }
                for one in self.remedies
            ],
            "lines": self.lines(),
        }

    def __repr__(self) -> str:
        return f"<Unfit: {self._why()}; {len(self.remedies)} remedies>"


def unfit(space: Space, counts: Counts | None = None, where: Condition | None = None) -> Unfit:
    """Say why nothing of a space fits, and what would mend it.

    Parameters
    ----------
    space : Space
        A space of which a search found nothing.
    counts : Counts, optional
        The counts of that search; without them it is counted again.
    where : Condition, optional
        The condition of that search.
    """
    if counts is None:
        counts = run(space, Best(Objective.parse("proc_mem_tier1_cap_req:min"), 1)).counts
    misses = nearest_misses(space, counts.reasons, where) if not counts.good else ()
    return Unfit(
        space=space,
        executions=counts.total,
        reasons=reasons_of(counts),
        misses=misses,
        remedies=remedies(space, misses, where),
    )


def reasons_of(counts: Counts) -> tuple[Reason, ...]:
    """Return why executions are no answer, the most frequent reason first."""
    unwanted = {"": counts.good} if counts.good else {}
    return tuple(
        Reason(reason, in_words(reason) if reason else UNWANTED, times)
        for reason, times in sorted({**counts.reasons, **unwanted}.items(), key=lambda x: -x[1])
    )


def why_none(counts: Counts) -> str:
    """Say in a line why a search found nothing: the most frequent reason, and how much memory is missing."""
    if not counts.total:
        return "no split of the processors divides model and batch"
    first = reasons_of(counts)[0]
    over = counts.nearest_miss.get(first.reason)
    return first.words + ("" if over is None else f" (by {_gib(over)} at least)")


def plan_in_words(execution: Execution) -> str:
    """Write the split of an execution, and what saves memory in it.

    >>> from calculon import inputs
    >>> plan_in_words(inputs.execution("3072_t4_p64_d12_mbs4_full"))
    'TP 4, PP 64 x 2 chunks, DP 12, microbatch 4, full recomputation, optimizer state split'
    """
    e = execution
    chunks = f" x {e.pipeline_interleaving} chunks" if e.pipeline_interleaving > 1 else ""
    parts = [f"TP {e.tensor_par}", f"PP {e.pipeline_par}{chunks}", f"DP {e.data_par}"]
    parts += [
        f"{axis.name.upper()} {degree}"
        for axis in FURTHER_AXES
        if (degree := getattr(e, axis.degree)) > 1
    ]
    parts.append(f"microbatch {e.microbatch_size}")
    recompute = {"full": "full recomputation", "attn_only": "attention recomputed"}
    parts += [recompute[e.activation_recompute]] if e.activation_recompute in recompute else []
    if e.zero_stage not in ("auto", "0"):
        parts.append("FSDP" if e.zero_stage == "fsdp" else f"ZeRO-{e.zero_stage}")
    elif e.optimizer_sharding:
        parts.append("optimizer state split")
    moved = [what for what, on in _moved(e) if on]
    return ", ".join([*parts, *([f"{' and '.join(moved)} offloaded"] if moved else [])])


def _moved(e: Execution) -> tuple[tuple[str, bool], ...]:
    return (
        ("weights", e.weight_offload),
        ("activations", e.activations_offload),
        ("optimizer state", e.optimizer_offload),
    )


def figures(found: Estimate) -> str:
    """Write the plan of an execution with its memory and the time of a step."""
    time, belief = found.stats["total_time"] or 0.0, found.belief
    error = 0.0 if belief is None else (belief.high - belief.low) / 2
    memory = _gib(found.stats["proc_mem_tier1_cap_req"] or 0.0)
    return f"{plan_in_words(found.execution)} ({memory}, {duration(time, error)} a step)"


def change_in_words(remedy: Remedy, space: Space, wording: Wording | None = None) -> str:
    """Write what a remedy changes of a space."""
    change = remedy.change
    if remedy.kind == "memory":
        return _memory_in_words(change)
    if remedy.kind == "processors":
        return f"{change['num_procs']:,} processors instead of {space.num_procs:,}"
    if remedy.kind == "batch":
        return f"a batch of {change['batch_size']:,} instead of {space.max_batch_size:,}"
    if remedy.kind == "sequence":
        return f"sequences of {change['seq_length']:,} tokens instead of {space.model.seq_size:,}"
    if remedy.kind == "freed":
        (name,) = change
        held = ", ".join(map(_plain, space.fix[name]))
        return f"another {name} than {held}"
    settings = " and ".join(f"{name}={_plain(value)}" for name, value in change.items())
    if wording is None:
        return settings
    return " ".join(wording.setting("add", name, (value,)) for name, value in change.items())


def _memory_in_words(change: Mapping[str, float]) -> str:
    """Write memory that is enough: rounded up, so that what is written is enough too."""
    sizes = [
        f"{ceil(change[name] / GIB * 10) / 10:g} GiB of {words} memory"
        for name, words in (("mem1", "tier-1"), ("mem2", "tier-2"))
        if name in change
    ]
    return f"{' and '.join(sizes)} per processor"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nearest(miss: Miss) -> str:
    """Write a nearest miss, and what fills the memory."""
    parts = list(miss.parts.items())
    shown = [f"{kind} {_gib(size)}" for kind, size in parts[:_SHOWN_PARTS]]
    if rest := sum(size for _, size in parts[_SHOWN_PARTS:]):
        shown.append(f"the rest {_gib(rest)}")
    return (
        f"Nearest miss: {plan_in_words(miss.estimate.execution)} needs {_gib(miss.needed)} of tier-{miss.tier} "
        f"memory, {_gib(miss.over)} more than the {_gib(miss.available)} there: {', '.join(shown)}."
    )


def _gib(size: float) -> str:
    """Write a size with a decimal; one that is smaller with more, so that nothing that counts reads as 0."""
    gib = size / GIB
    return f"{gib:,.1f} GiB" if gib >= 0.1 else f"{gib:,.2g} GiB"


def _no_split(space: Space) -> str:
    """Say why no split of the processors has an execution: what each degree alone may be."""
    names = {"tensor_par": "TP", "pipeline_par": "PP", "data_par": "DP"}
    degrees = ", ".join(
        f"{names[name]} {_listed(values) if values else 'nothing'}"
        for name, values in space.degrees.items()
    )
    return (
        f"no split of {_factors(space.num_procs)} processors divides the model and the batch of "
        f"{space.max_batch_size:,}: alone may be {degrees}"
    )


def _listed(values: Sequence[int]) -> str:
    shown = [f"{value:,}" for value in values]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:3], "...", shown[-1]])  # noqa: PLR2004


def _factors(number: int) -> str:
    """Write a count with its prime factors.

    >>> _factors(1000), _factors(7)
    ('1,000 = 2^3 x 5^3', '7')
    """
    powers: dict[int, int] = {}
    rest, prime = number, 2
    while prime * prime <= rest:
        while rest % prime == 0:
            powers[prime] = powers.get(prime, 0) + 1
            rest //= prime
        prime += 1
    if rest > 1:
        powers[rest] = powers.get(rest, 0) + 1
    if len(powers) < 2 and set(powers.values()) <= {1}:  # noqa: PLR2004
        return f"{number:,}"
    return f"{number:,} = " + " x ".join(f"{p}^{n}" if n > 1 else f"{p}" for p, n in powers.items())
