"""A workload: the record of what is asked of a deployment."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.goals import Interval, Length, TimeSpan
from calculon.declarations.fields import declare, spec_fields
from calculon.serving.records.output_lengths import length_quantile

SATURATED, OPEN, CLOSED = "saturated", "rate", "users"
"""Kinds of load: as many requests as it takes, requests at a rate, or users of whom each waits for the answer."""


class PromptLength(NamedTuple):
    """A length that some share of the prompts has, of which the cache has some tokens."""

    share: float
    tokens: float
    computed: float

    @property
    def cached(self) -> float:
        """Tokens of the prompt that the cache has."""
        return self.tokens - self.computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests: their lengths, how many come, and within what time they are to be answered."""

    unknown_keys: ClassVar[str] = "error"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    prompt: Length = declare(
        "tokens of a prompt, on average, with all that comes before in its conversation",
        control="Prompt",
        unit="tokens",
    )
    output: Length = declare(
        "generated tokens, on average; prefill gives the first of them",
        control="Output",
        unit="tokens",
    )
    prompt_cv: float = declare(
        "standard deviation of prompts over their mean; 0: all have the same length",
        at_least=0,
        default=0.0,
    )
    output_cv: float = declare(
        "standard deviation of outputs over their mean; 0: all have the same length, 1: as exponential ones",
        at_least=0,
        default=0.0,
    )
    rate: float | None = declare(
        "requests in a second, which come whatever is waiting (an open loop)",
        unit="1/s",
        above=0,
        control="Requests/s",
        default=None,
    )
    users: int | None = declare(
        "users, each with one request at a time (a closed loop)",
        at_least=1,
        control="Users",
        default=None,
    )
    think: TimeSpan = declare(
        "from an answer to the next request of a user", unit="s", default=TimeSpan(0)
    )
    arrival_cv: float = declare(
        "standard deviation of the time between requests over its mean, of a rate; 1: Poisson",
        at_least=0,
        default=1.0,
    )
    prefix_hit: float = declare(
        "share of the tokens of a prompt that the cache has, as a prefix that all requests have in common; "
        "shared_prefix and turns state where it comes from",
        at_least=0,
        below=1,
        control="Cached share",
        default=0.0,
    )
    shared_prefix: Length | None = declare(
        "tokens with which all prompts begin, such as a system prompt: cached once; if absent there are none",
        unit="tokens",
        default=None,
    )
    turns: int = declare(
        "requests of a conversation, each with all before it in its prompt: cached, but for the new message",
        at_least=1,
        default=1,
    )
    ttft_limit: Interval | None = declare(
        "longest time to the first token",
        unit="s",
        control="TTFT limit",
        default=None,
    )
    tpot_limit: Interval | None = declare(
        "longest time per token after the first",
        unit="s",
        control="TPOT limit",
        default=None,
    )
    percentile: float = declare(
        "share of the requests that keep the limits, of a rate",
        at_least=0.5,
        below=1,
        default=0.99,
    )
    requests: int | None = declare(
        "requests of a finite run; if absent it never ends", at_least=1, default=None
    )
    name: str = field(default="workload", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check what the fields say together; SpecError where they contradict each other."""
        if problems := list(self._contradictions()):
            raise SpecError("workload", problems)

    def _contradictions(self) -> Iterator[Problem]:
        if self.rate is not None and self.users is not None:
            yield Problem("rate", "one of rate and users", "both")
        if self.output < 2:
            hint = "an output of one token is prefill alone"
            yield Problem("output", "at least 2", str(self.output), hint)
        if self.think and self.users is None and self.turns == 1:
            wanted = "0, since there are no users who think"
            hint = "users states how many there are, turns how often each asks"
            yield Problem("think", wanted, f"{self.think:g}", hint)
        yield from self._contradictory_prefixes()

    def _contradictory_prefixes(self) -> Iterator[Problem]:
        """Yield what is wrong with the tokens that prompts share."""
        if self.prefix_hit and (self.shared_prefix or self.turns > 1):
            hint = "the share of hits follows from shared_prefix and turns"
            yield Problem("prefix_hit", "0 beside these", f"{self.prefix_hit:g}", hint)
        if (common := self.common) >= self.prompt:
            yield Problem("shared_prefix", f"less than prompt={self.prompt:,}", f"{common:,}")
        elif self.turns > 1 and self.message < 1:
            before = self.prompt - self.message * (self.turns + 1) / 2
            least = math.ceil(before + (self.turns + 1) / 2)
            hint = f"outputs of earlier turns take {before:,.0f} of its tokens, on average"
            yield Problem("prompt", f"at least {least:,}", f"{self.prompt:,}", hint)

    @property
    def kind(self) -> str:
        """Which of :data:`SATURATED`, :data:`OPEN` and :data:`CLOSED` it is."""
        if self.rate is not None:
            return OPEN
        return SATURATED if self.users is None else CLOSED

    @property
    def common(self) -> int:
        """Tokens of ``shared_prefix``, 0 without one."""
        return self.shared_prefix or 0

    @property
    def message(self) -> float:
        r"""New tokens of a prompt: those of a turn.

        The prompt of turn `k` has the shared prefix `s`, `k` messages of `u` tokens and `k - 1` outputs. Over `n` turns
        its mean is

        .. math:: i = s + \frac{n + 1}{2} u + \frac{n - 1}{2} o

        of which the cache lacks `u` in each.
        """
        before = self.common + (self.turns - 1) / 2 * self.output
        return 2 * (self.prompt - before) / (self.turns + 1)

    @property
    def hit(self) -> float:
        """Share of the tokens of a prompt that the cache has."""
        return self.cached / self.prompt

    @property
    def computed(self) -> int:
        """Tokens of a prompt that prefill computes: those that the cache lacks, one at least."""
        if self.common or self.turns > 1:
            return max(1, math.ceil(self.message))
        return max(1, math.ceil(self.prompt * (1 - self.prefix_hit)))

    @property
    def cached(self) -> int:
        """Tokens of a prompt that the cache has."""
        return self.prompt - self.computed

    @property
    def kept(self) -> float:
        """Tokens of a cached prefix that is a request's own, where it has one: of turns all but the first have."""
        return (self.cached - self.common) / self.followed

    @property
    def followed(self) -> float:
        """Share of the requests that have a prefix of their own, and of those that another turn follows."""
        return 1.0 if self.turns == 1 else (self.turns - 1) / self.turns

    def shared(self, *, fetched: bool = False) -> int:
        """Return the tokens of a prompt that are cached once for all requests at hand.

        Those of ``shared_prefix``, or of ``prefix_hit``, unless each request fetches its own from tier 2.
        """
        stated = self.common or self.turns > 1 or fetched
        return self.common if stated else self.cached

    def alone(self, *, fetched: bool = False) -> int:
        """Return the tokens of a prompt that are cached for each request at hand."""
        return self.prompt - self.shared(fetched=fetched)

    @property
    def lengths(self) -> tuple[PromptLength, ...]:
        """Lengths of prompts: the mean alone, or of ``prompt_cv`` two with the same mean and variance.

        A mean over both is exact for whatever is a polynomial of second degree in the length, as products and attention
        are. The shorter is one standard deviation below the mean, and has one new token at least. Of longer prompts the
        cache has the same share beside the prefix that all have in common.
        """
        if not self.prompt_cv:
            return (PromptLength(1.0, self.prompt, self.computed),)
        new = self.computed / (self.prompt - self.common)
        return self._two_lengths(self.prompt_cv * self.prompt, new)

    def prompt_at(self, share: float) -> PromptLength:
        """Return the length that a share of the prompts does not exceed; exponential ones where ``prompt_cv`` is 1."""
        new = self.computed / (self.prompt - self.common)
        least = self.common + 1 / new
        tokens = max(least, length_quantile(float(self.prompt), self.prompt_cv, share))
        return PromptLength(1.0, tokens, (tokens - self.common) * new)

    @property
    def longest_computed(self) -> float:
        """Tokens that prefill computes of the longest of these."""
        return max(one.computed for one in self.lengths)

    @property
    def lengths_without(self) -> tuple[PromptLength, ...]:
        """The same where of each prompt the cache has only what all have in common; prompts of turns differ more."""
        grown = (self.message + self.output) ** 2 * (self.turns**2 - 1) / 12
        return self._two_lengths(math.hypot(self.prompt_cv * self.prompt, math.sqrt(grown)), 1.0)

    def _two_lengths(self, spread: float, new: float) -> tuple[PromptLength, ...]:
        """Return lengths with a standard deviation, of which prefill computes a share beside the common prefix."""
        common = self.common
        if not spread or self.prompt - common <= 1 / new:
            return (PromptLength(1.0, self.prompt, (self.prompt - common) * new),)
        below = min(spread, self.prompt - common - 1 / new)
        above = spread**2 / below
        found = []
        for share, tokens in (
            (above / (above + below), self.prompt - below),
            (below / (above + below), self.prompt + above),
        ):
            found.append(PromptLength(share, tokens, (tokens - common) * new))
        return tuple(found)

    @property
    def output_at_hand(self) -> float:
        r"""Tokens that a sequence at hand generates in all, on average: more than a request, as long ones stay longer.

        .. math:: \frac{E[o (o - 1)]}{E[o - 1]} = \bar o + \frac{c^2 \bar o^2}{\bar o - 1}

        for outputs with the coefficient of variation `c`, of which each is there for ``o - 1`` passes. Half of it is in
        the cache on average. Source: Cox, *Renewal Theory*, 1962, section 5.4 (length-biased sampling).
        """
        return self.output + (self.output_cv * self.output) ** 2 / (self.output - 1)

    @property
    def context(self) -> float:
        """Cached tokens that a decoded token sees, on average: from ``prompt + 1`` to ``prompt + output - 1``."""
        return self.prompt + self.output_at_hand / 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file, without those that leave something open."""
        values = ((one.key, getattr(self, one.name)) for one in spec_fields(Workload))
        return {name: value for name, value in values if value is not None}
