"""Infeasibility report: why no execution of a search space fits, the nearest infeasible executions, and fixes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from calculon.advise.in_words import memory_and_time, plan_in_words
from calculon.advise.nearest_infeasible import NearestInfeasible, nearest_infeasible
from calculon.advise.space_fixes import SpaceFix, space_fixes
from calculon.base.errors import in_words
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, chance, gib
from calculon.declarations.axes import PUBLISHED_AXES
from calculon.declarations.preset_file import plain
from calculon.declarations.statistics import FITS, MAY_FIT, MEMORIES, RISK
from calculon.search.conditions import Condition
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.override_checks import Wording
from calculon.search.ranking import Best
from calculon.search.search_counts import Counts
from calculon.search.space import Space

UNWANTED = "they do not meet the condition"
"""Reason for executions that can run but violate a search condition."""

PROPOSED = "What would make it fit (each tried by a search)"

_SHOWN_REASONS, _SHOWN_PARTS = 4, 5


@dataclass(frozen=True, slots=True)
class Reason:
    """Reason why executions cannot run: identifier of the rule, description, and number of executions."""

    reason: str
    words: str
    executions: int


@dataclass(frozen=True)
class InfeasibilityReport:
    """Reasons why no execution of a search space fits, and fixes.

    Attributes:
        space: Searched space.
        executions: Number of executions in the space; 0 if no split of the processors divides model and batch.
        reasons: Reasons why executions cannot run, most frequent first.
        nearest: If memory is too small, the executions nearest to fitting, by tier.
        fixes: Changes of the space that make something fit, each verified by a search.
    """

    space: Space
    executions: int
    reasons: tuple[Reason, ...]
    nearest: tuple[NearestInfeasible, ...]
    fixes: tuple[SpaceFix, ...]

    @property
    def why(self) -> str:
        """Reasons as a sentence."""
        if not self.executions:
            return _no_split(self.space)
        shown = [f"{one.words} ({one.executions:,})" for one in self.reasons[:_SHOWN_REASONS]]
        if (more := len(self.reasons) - _SHOWN_REASONS) > 0:
            shown.append(f"{more} more reason{'s' * (more > 1)}")
        return f"of {self.executions:,} executions, {'; '.join(shown)}"

    @property
    def uncertain(self) -> str:
        """The risk of the nearest infeasible execution in words, if it may fit; else empty."""
        fits = max((one.fits or 0.0 for one in self.nearest), default=0.0)
        return (
            f"the nearest has a risk of running out of {chance(1 - fits)}"
            if fits >= MAY_FIT
            else ""
        )

    @property
    def nearest_in_words(self) -> list[str]:
        """Nearest infeasible executions, one line each."""
        return [_nearest_in_words(one) for one in self.nearest]

    def in_short(self, wording: Wording | None = None) -> list[str]:
        """Return the report in fewer lines: what fills the memory and the least memory that is enough are left out."""
        products = any(one.kind == "product" for one in self.fixes)
        fixes = tuple(one for one in self.fixes if one.kind != "memory" or not products)
        nearest = tuple(replace(one, parts={}) for one in self.nearest)
        return replace(self, nearest=nearest, fixes=fixes).lines(wording)

    def fixes_in_words(self, wording: Wording | None = None) -> list[str]:
        """Return the fixes, one line each; `wording` formats the options."""
        return [
            f"{fix_in_words(one, self.space, wording)}: "
            f"{plan_in_words(one.found.execution)} ({memory_and_time(one.found)})"
            for one in self.fixes
        ]

    def lines(self, wording: Wording | None = None) -> list[str]:
        """Return the report as lines of text; `wording` as in :meth:`fixes_in_words`."""
        wanted = any(not one.reason for one in self.reasons)
        lines = [
            f"{'Nothing meets the condition' if wanted else 'Nothing fits'}: {self.why}.",
            *self.nearest_in_words,
        ]
        fixes = [f"  - {text}" for text in self.fixes_in_words(wording)]
        return [*lines, f"{PROPOSED}:", *fixes] if fixes else lines

    def to_dict(self, wording: Wording | None = None) -> dict[str, Any]:
        """Return the report as plain data, including its lines; `wording` as in :meth:`fixes_in_words`."""
        return {
            "executions": self.executions,
            "reasons": [
                {"reason": one.reason, "words": one.words, "executions": one.executions}
                for one in self.reasons
            ],
            "nearest_misses": [
                {
                    "tier": one.tier,
                    "needed": one.needed,
                    "available": one.available,
                    "over": one.over,
                    FITS: one.fits,
                    "parts": dict(one.parts),
                    "execution": one.estimate.execution.to_dict(),
                }
                for one in self.nearest
            ],
            "remedies": [
                {
                    "kind": one.kind,
                    "change": dict(one.change),
                    "execution": one.found.execution.to_dict(),
                    "total_time": one.found.stats["total_time"],
                    "proc_mem_tier1_cap_req": one.found.stats["proc_mem_tier1_cap_req"],
                    FITS: one.found.stats.get(FITS),
                }
                for one in self.fixes
            ],
            "lines": self.lines(wording),
        }

    def __repr__(self) -> str:
        return f"<InfeasibilityReport: {self.why}; {len(self.fixes)} fixes>"


def infeasibility_report(
    space: Space,
    counts: Counts | None = None,
    where: Condition | None = None,
    risk: float = RISK,
) -> InfeasibilityReport:
    """Report why no execution of a space fits, and what would make one fit.

    Args:
        space: A space of which a search found nothing.
        counts: The counts of that search; without them it is counted again.
        where: The condition of that search.
        risk: Probability of running out of memory that is accepted.
    """
    if counts is None:
        counts = run(space, Best(Objective.parse("proc_mem_tier1_cap_req:min"), 1)).counts
    # If executions fit but miss the condition, memory is not the problem.
    nearest = nearest_infeasible(space, counts.reasons, where) if not counts.good else ()
    return InfeasibilityReport(
        space=space,
        executions=counts.total,
        reasons=reasons_of(counts),
        nearest=nearest,
        fixes=space_fixes(space, nearest, where, unwanted=counts.good > 0, risk=risk),
    )


def reasons_of(counts: Counts) -> tuple[Reason, ...]:
    """Return the reasons why executions are not answers, most frequent first."""
    unwanted = {"": counts.good} if counts.good else {}
    return tuple(
        Reason(reason, in_words(reason) if reason else UNWANTED, times)
        for reason, times in sorted({**counts.reasons, **unwanted}.items(), key=lambda x: -x[1])
    )


def why_none(counts: Counts) -> str:
    """Return a line about why a search found nothing: the missing memory, or else the most frequent reason."""
    if not counts.total:
        return "no split of the processors divides model and batch"
    several = reasons_of(counts)
    # An execution that only lacks memory breaks no rule: it is nearer to running than the others.
    first = next((one for one in several if one.reason in counts.nearest_miss), several[0])
    over = counts.nearest_miss.get(first.reason)
    return first.words + ("" if over is None else f" (by at least {gib(over)})")


def fix_in_words(fix: SpaceFix, space: Space, wording: Wording | None = None) -> str:
    """Describe the change of a space that a fix makes."""
    change = fix.change
    settings = " and ".join(f"{name}={plain(value)}" for name, value in change.items())
    options = [wording.setting("add", n, (v,)) for n, v in change.items()] if wording else []
    first, value = next(iter(change.items()))
    held = ", ".join(map(plain, space.fix.get(first, ())))
    texts: Mapping[str, Callable[[], str]] = {
        "memory": lambda: _memory_in_words(change),
        "product": lambda: f"processors with {value / GIB:g} GB of memory",
        "processors": lambda: f"{value:,} processors instead of {space.num_procs:,}",
        "batch": lambda: f"a batch of {value:,} instead of {space.max_batch_size:,}",
        "sequence": lambda: f"sequences of {value:,} tokens instead of {space.model.seq_size:,}",
        "freed": lambda: f"another {first} than {held}",
        "options": lambda: " ".join(options) or settings,
    }
    return texts[fix.kind]()


def _memory_in_words(change: Mapping[str, float]) -> str:
    """Describe sufficient memory, rounded up so that the stated size suffices, too."""
    sizes = [
        f"{ceil(change[name] / GIB * 10) / 10:g} GiB of {words}"
        for name, words in zip(("mem1", "mem2"), MEMORIES, strict=True)
        if name in change
    ]
    return f"{' and '.join(sizes)} per processor"


def _nearest_in_words(one: NearestInfeasible) -> str:
    """Describe a nearest infeasible execution, and the contents of its memory."""
    parts = list(one.parts.items())
    shown = [f"{kind} {gib(size)}" for kind, size in parts[:_SHOWN_PARTS]]
    if rest := sum(size for _, size in parts[_SHOWN_PARTS:]):
        shown.append(f"the rest {gib(rest)}")
    filled = f": {', '.join(shown)}" if shown else ""
    risk = "" if one.fits is None else f"; risk of running out {chance(1 - one.fits)}"
    return (
        f"Nearest miss: {plan_in_words(one.estimate.execution)} needs {gib(one.needed)} of "
        f"{MEMORIES[one.tier - 1]}, {gib(one.over)} more than the {gib(one.available)} available{filled}{risk}."
    )


def _no_split(space: Space) -> str:
    """Describe why no split of the processors is possible: the values that each degree alone allows."""
    names = {axis.degree: axis.name.upper() for axis in PUBLISHED_AXES}
    degrees = ", ".join(
        f"{names[name]} {_listed(values) if values else 'none'}"
        for name, values in space.degrees.items()
    )
    held = ", ".join(
        f"{name}={', '.join(map(plain, values))}"
        for name, values in space.fix.items()
        if name != "batch_size"
    )
    processors = f"{_factors(space.num_procs)} processor{'s' * (space.num_procs > 1)}"
    return (
        f"no split of {processors} divides the model and the batch of "
        f"{space.max_batch_size:,}{held and f', with {held}'}; possible values of each degree: {degrees}"
    )


def _listed(values: Sequence[int]) -> str:
    shown = [f"{value:,}" for value in values]
    return ", ".join(shown if len(shown) <= 8 else [*shown[:3], "...", shown[-1]])


def _factors(number: int) -> str:
    """Format a count with its prime factorization.

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
    # A prime number has nothing to show.
    if len(powers) < 2 and set(powers.values()) <= {1}:
        return f"{number:,}"
    return f"{number:,} = " + " x ".join(f"{p}^{n}" if n > 1 else f"{p}" for p, n in powers.items())
