"""Record of a replay, as files contain it."""

from typing import ClassVar

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Seconds
from calculon.declarations.fields import declare
from calculon.declarations.result_numbers import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Mean and percentiles of a time over requests, in seconds."""

    unknown_keys: ClassVar[str] = "ignored"

    mean: float = number("mean")
    median: float = number("median")
    p90: float = number("time that 90 % of the requests do not exceed")
    p99: float = number("time that 99 % of the requests do not exceed")

    @classmethod
    def of(cls, times: Seconds) -> "Percentiles":
        """Return the percentiles of times; NaN is left out."""
        known = times[np.isfinite(times)]
        if not len(known):
            known = np.zeros(1)
        median, p90, p99 = np.percentile(known, (50, 90, 99))
        return cls(mean=float(known.mean()), median=float(median), p90=float(p90), p99=float(p99))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRecord:
    """Figures of a replay, of all replicas together."""

    unknown_keys: ClassVar[str] = "ignored"

    load: str = declare("arrivals of the requests")
    requests: int = declare("requests that one replica answered", at_least=1)
    seed: int = declare("seed of random lengths and arrivals", at_least=0)
    ttft: Percentiles = declare("time to the first token")
    tpot: Percentiles = declare("time per token after the first")
    latency: Percentiles = declare("time from arrival to the last token")
    duration: float = number("time from the first arrival to the last token, in s")
    request_rate: float = number("requests per second")
    output_rate: float = number("generated tokens per second")
    goodput: float = number("requests per second that meet the latency limits")
    good_share: float = number("share of the requests that meet the latency limits")
    highest_rate: float | None = number(
        "highest rate of requests at which enough of them meet the limits, in requests/s; null without limits",
        default=None,
        nullable=True,
    )
    preempted: int = declare("requests that lost their KV cache and started again", at_least=0)
