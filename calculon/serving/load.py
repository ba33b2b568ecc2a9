"""A workload: the record of what is asked of a deployment."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar

from calculon.campaign.goals import Interval, Length, TimeSpan
from calculon.errors import Problem, SpecError
from calculon.frozen import dataclass
from calculon.spec.fields import declare, spec_fields

SATURATED, OPEN, CLOSED = "saturated", "rate", "users"
"""Kinds of load: as many requests as it takes, requests at a rate, or users of whom each waits for the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests: their lengths, how many come, and within what time they are to be answered."""

    unknown_keys: ClassVar[str] = "error"
    silent_keys: ClassVar[tuple[str, ...]] = ("about",)

    prompt: Length = declare("tokens of a prompt, on average", unit="tokens")
    output: Length = declare(
        "generated tokens, on average; prefill gives the first of them", unit="tokens"
    )
    prompt_cv: float = declare(
        "standard deviation of prompts over their mean; 0: all have the same length",
        at_least=0,
        default=0.0,
    )
    rate: float | None = declare(
        "requests in a second, which come whatever is waiting (an open loop)",
        unit="1/s",
        above=0,
        default=None,
    )
    users: int | None = declare(
        "users, each with one request at a time (a closed loop)", at_least=1, default=None
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
        "share of the tokens of a prompt that the cache has", at_least=0, below=1, default=0.0
    )
    ttft_limit: Interval | None = declare("longest time to the first token", unit="s", default=None)
    tpot_limit: Interval | None = declare(
        "longest time per token after the first", unit="s", default=None
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
        if self.think and self.users is None:
            wanted = "0, since there are no users who think"
            yield Problem("think", wanted, f"{self.think:g}", "users states how many there are")

    @property
    def kind(self) -> str:
        """Which of :data:`SATURATED`, :data:`OPEN` and :data:`CLOSED` it is."""
        if self.rate is not None:
            return OPEN
        return SATURATED if self.users is None else CLOSED

    @property
    def computed(self) -> int:
        """Tokens of a prompt that prefill computes: those that the cache lacks, one at least."""
        return max(1, math.ceil(self.prompt * (1 - self.prefix_hit)))

    @property
    def cached(self) -> int:
        """Tokens of a prompt that the cache has."""
        return self.prompt - self.computed

    @property
    def context(self) -> float:
        """Cached tokens that a decoded token sees, on average: from ``prompt + 1`` to ``prompt + output - 1``."""
        return self.prompt + self.output / 2

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as in a file, without those that leave something open."""
        values = ((one.key, getattr(self, one.name)) for one in spec_fields(Workload))
        return {name: value for name, value in values if value is not None}
