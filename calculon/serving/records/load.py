"""Record of a workload: requests, arrivals, prefix sharing, and latency limits."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, NamedTuple

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.goals import Latency, Length, TimeSpan
from calculon.declarations.fields import declare, spec_fields
from calculon.serving.records.output_lengths import length_quantile

SATURATED, OPEN, CLOSED = "saturated", "rate", "users"
"""Kinds of load: as many requests as possible, arrivals at a rate (open loop), or users who wait (closed loop)."""

DEFAULT_WORKLOAD = "chat"
"""Workload of the catalog for questions that state none."""


class PromptLength(NamedTuple):
    """A prompt length with its share of the prompts, and the tokens that prefill computes after a cache hit."""

    share: float
    tokens: float
    computed: float

    @property
    def cached(self) -> float:
        """Tokens of the prompt that are cached."""
        return self.tokens - self.computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests: their lengths, arrivals and latency limits."""

    unknown_keys: ClassVar[str] = "error"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    prompt: Length = declare(
        "mean tokens of a prompt, including the earlier turns of its conversation",
        control="Prompt tokens",
        unit="tokens",
    )
    output: Length = declare(
        "mean generated tokens; prefill generates the first one",
        control="Output tokens",
        unit="tokens",
    )
    prompt_cv: float = declare(
        "standard deviation of prompt lengths over their mean; 0: all have the same length",
        at_least=0,
        default=0.0,
    )
    output_cv: float = declare(
        "standard deviation of output lengths over their mean; 0: all have the same length, 1: exponential",
        at_least=0,
        default=0.0,
    )
    rate: float | None = declare(
        "requests per second, independent of earlier requests (open loop)",
        unit="1/s",
        above=0,
        control="Requests/s",
        default=None,
    )
    users: int | None = declare(
        "concurrent users, each with one request at a time (closed loop)",
        at_least=1,
        control="Concurrent users",
        default=None,
    )
    think: TimeSpan = declare(
        "time from a response to the next request of the user", unit="s", default=TimeSpan(0)
    )
    arrival_cv: float = declare(
        "standard deviation of the time between requests over its mean, with a rate; 1: Poisson",
        at_least=0,
        default=1.0,
    )
    prefix_hit: float = declare(
        "share of the tokens of a prompt that are cached, as a prefix common to all requests; shared_prefix and turns "
        "derive it instead",
        at_least=0,
        below=1,
        control="Cached prompt share",
        default=0.0,
    )
    shared_prefix: Length | None = declare(
        "tokens at the start of all prompts, such as a system prompt, cached once; none if absent",
        unit="tokens",
        default=None,
    )
    turns: int = declare(
        "requests per conversation; each prompt contains the earlier turns, which are cached except the new message",
        at_least=1,
        default=1,
    )
    ttft_limit: Latency | None = declare(
        "longest time to the first token",
        unit="s",
        control="TTFT limit",
        default=None,
    )
    tpot_limit: Latency | None = declare(
        "longest time per token after the first",
        unit="s",
        control="TPOT limit",
        default=None,
    )
    percentile: float = declare(
        "share of the requests that have to meet the limits, with a rate",
        at_least=0.5,
        below=1,
        default=0.99,
    )
    requests: int | None = declare(
        "requests of a finite run; endless if absent", at_least=1, default=None
    )
    name: str = field(default="workload", compare=False)
    document: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Check that fields are consistent.

        Raises:
            SpecError: If they contradict each other.
        """
        if problems := list(self._contradictions()):
            raise SpecError("workload", problems)

    def _contradictions(self) -> Iterator[Problem]:
        if self.rate is not None and self.users is not None:
            yield Problem("rate", "one of rate and users", "both")
        # the time per output token is defined between two tokens
        if self.output < 2:
            hint = "an output of one token is prefill alone"
            yield Problem("output", "at least 2", str(self.output), hint)
        if self.think and self.users is None and self.turns == 1:
            wanted = "0, because there are no users who think"
            hint = "users states their number, turns the requests of each conversation"
            yield Problem("think", wanted, f"{self.think:g}", hint)
        yield from self._contradictory_prefixes()

    def _contradictory_prefixes(self) -> Iterator[Problem]:
        """Yield contradictions of the fields about shared prefixes."""
        if self.prefix_hit and (self.shared_prefix or self.turns > 1):
            hint = "the share of hits follows from shared_prefix and turns"
            yield Problem("prefix_hit", "0 together with these", f"{self.prefix_hit:g}", hint)
        if (common := self.common) >= self.prompt:
            yield Problem("shared_prefix", f"less than prompt={self.prompt:,}", f"{common:,}")
        elif self.turns > 1 and self.message < 1:
            before = self.prompt - self.message * (self.turns + 1) / 2
            least = math.ceil(before + (self.turns + 1) / 2)
            hint = f"earlier turns take {before:,.0f} of its tokens on average"
            yield Problem("prompt", f"at least {least:,}", f"{self.prompt:,}", hint)

    @property
    def kind(self) -> str:
        """Kind of load: :data:`SATURATED`, :data:`OPEN` or :data:`CLOSED`."""
        if self.rate is not None:
            return OPEN
        return SATURATED if self.users is None else CLOSED

    @property
    def saturating(self) -> "Workload":
        """The same requests without a rate, users or an end: replicas always have the largest batch."""
        think = self.think if self.turns > 1 else TimeSpan(0)
        return replace(self, rate=None, users=None, requests=None, think=think)

    @property
    def common(self) -> int:
        """Tokens of ``shared_prefix``, 0 without one."""
        return self.shared_prefix or 0

    @property
    def message(self) -> float:
        r"""New tokens per turn of a prompt.

        The prompt of turn `k` consists of the shared prefix `s`, `k` messages of `u` tokens and `k - 1` outputs. Over
        `n` turns its mean is

        .. math:: i = s + \frac{n + 1}{2} u + \frac{n - 1}{2} o

        of which `u` tokens are not cached in each turn.
        """
        before = self.common + (self.turns - 1) / 2 * self.output
        return 2 * (self.prompt - before) / (self.turns + 1)

    @property
    def hit(self) -> float:
        """Share of the tokens of a prompt that are cached."""
        return self.cached / self.prompt

    @property
    def computed(self) -> int:
        """Tokens of a prompt that prefill computes: the tokens that are not cached, at least one."""
        if self.common or self.turns > 1:
            return max(1, math.ceil(self.message))
        return max(1, math.ceil(self.prompt * (1 - self.prefix_hit)))

    @property
    def cached(self) -> int:
        """Tokens of a prompt that are cached."""
        return self.prompt - self.computed

    @property
    def kept(self) -> float:
        """Tokens of the cached prefix of a conversation beyond the common one; all turns but the first have one."""
        return (self.cached - self.common) / self.followed

    @property
    def followed(self) -> float:
        """Share of the requests with a prefix of their conversation; also the share that another turn follows."""
        return 1.0 if self.turns == 1 else (self.turns - 1) / self.turns

    def shared(self, *, fetched: bool = False) -> int:
        """Return the tokens of a prompt that are cached once for all concurrent requests.

        These are the tokens of ``shared_prefix``, or of ``prefix_hit`` unless each request fetches its prefix from tier
        2.
        """
        stated = self.common or self.turns > 1 or fetched
        return self.common if stated else self.cached

    def alone(self, *, fetched: bool = False) -> int:
        """Return the tokens of a prompt that are cached separately for each concurrent request."""
        return self.prompt - self.shared(fetched=fetched)

    @property
    def lengths(self) -> tuple[PromptLength, ...]:
        """Prompt lengths: the mean alone, or two lengths with the mean and variance that ``prompt_cv`` states.

        A mean over both is exact for any polynomial of second degree in the length, such as the cost of matrix products
        and attention. The shorter length is one standard deviation below the mean, with at least one new token. Longer
        prompts have the same cached share in addition to the common prefix.
        """
        if not self.prompt_cv:
            return (PromptLength(1.0, self.prompt, self.computed),)
        new = self.computed / (self.prompt - self.common)
        # a longer prompt has more new and more cached tokens, in the same proportion
        return self._two_lengths(self.prompt_cv * self.prompt, new)

    def prompt_at(self, share: float) -> PromptLength:
        """Return the length that a share of the prompts does not exceed; exponential if ``prompt_cv`` is 1."""
        new = self.computed / (self.prompt - self.common)
        least = self.common + 1 / new
        tokens = max(least, length_quantile(float(self.prompt), self.prompt_cv, share))
        return PromptLength(1.0, tokens, (tokens - self.common) * new)

    @property
    def longest_computed(self) -> float:
        """Largest number of tokens that prefill computes for one of these lengths."""
        return max(one.computed for one in self.lengths)

    @property
    def lengths_without(self) -> tuple[PromptLength, ...]:
        """Prompt lengths if only the common prefix is cached; with several turns the lengths vary more."""
        # variance of a uniform turn number from 1 to n, times the growth per turn squared
        grown = (self.message + self.output) ** 2 * (self.turns**2 - 1) / 12
        return self._two_lengths(math.hypot(self.prompt_cv * self.prompt, math.sqrt(grown)), 1.0)

    def _two_lengths(self, spread: float, new: float) -> tuple[PromptLength, ...]:
        """Return two lengths with a standard deviation, of which prefill computes a share after the common prefix."""
        common = self.common
        if not spread or self.prompt - common <= 1 / new:
            return (PromptLength(1.0, self.prompt, (self.prompt - common) * new),)
        # one standard deviation on each side would be symmetric; a shorter step below needs a longer one above
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
    def running_output(self) -> float:
        r"""Mean output length of a running sequence: longer than the mean request, because long ones run longer.

        .. math:: \frac{E[o (o - 1)]}{E[o - 1]} = \bar o + \frac{c^2 \bar o^2}{\bar o - 1}

        for outputs with the coefficient of variation `c`, each of which runs for ``o - 1`` passes. On average half of
        the output is in the KV cache. Source: Cox, *Renewal Theory*, 1962, section 5.4 (length-biased sampling).
        """
        return self.output + (self.output_cv * self.output) ** 2 / (self.output - 1)

    @property
    def context(self) -> float:
        """Mean cached tokens that a decoded token attends to: from ``prompt + 1`` to ``prompt + output - 1``."""
        return self.prompt + self.running_output / 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields in the form of a file, without fields that are left open."""
        values = ((one.key, getattr(self, one.name)) for one in spec_fields(Workload))
        return {name: value for name, value in values if value is not None}
