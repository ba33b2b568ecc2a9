"""Requests of a replay: lengths and arrivals of one replica's share of a workload, drawn from a seed or of a trace."""

import math

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Seconds
from calculon.declarations.fields import declare
from calculon.serving.records.load import OPEN, SATURATED, Workload
from calculon.serving.records.output_lengths import weibull_shape
from calculon.serving.replay.traces import Trace

FEWEST, MOST = 200, 20_000
"""Requests of a replay with users, unless stated: ten per user within these bounds."""

PER_USER = 10
"""Requests of each user, as in public benchmarks (InferenceX: ten prompts per concurrent user)."""

OPEN_REQUESTS = 1000
"""Requests of a replay at a rate, unless stated; the default of ``vllm bench serve --num-prompts``."""

ROUTES = ("round-robin", "random")
"""Ways to distribute requests over replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Options of a replay."""

    requests: int | None = declare(
        "requests of one replica, or of a trace for all replicas; by default as the workload states, else 1,000 at a "
        "rate, and 10 per user but at least 200",
        at_least=1,
        default=None,
    )
    seed: int = declare("seed of random lengths and arrivals", at_least=0, default=0)
    range_ratio: float = declare(
        "lengths are uniform between 1 - r and 1 + r times their mean (vllm bench, --random-range-ratio); 0: by the "
        "variation that the workload states",
        at_least=0,
        below=1,
        default=0.0,
    )
    ramp: float = declare(
        "time in which users start; 0: all at once", unit="s", at_least=0, default=0.0
    )
    route: str = declare(
        "distribution of requests over replicas", choices=ROUTES, default=ROUTES[0]
    )
    overhead: float = declare(
        "time from the arrival of a request until the scheduler sees it: HTTP, tokenizer",
        unit="s",
        at_least=0,
        default=0.0,
    )
    preempt: bool = declare(
        "admit requests by their prompt alone; if the KV cache is full, the last one starts again (vLLM)",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Requests of one replica; arrays of shape ``(requests,)``.

    Attributes:
        arrival: Times of arrival; with users infinite after the first request of each.
        prompt, cached, output: Tokens.
        share: Share of the load of all replicas.
        closed: True for users who send a request after each response.
        load: The load in words.
    """

    arrival: Seconds
    prompt: Count
    cached: Count
    output: Count
    share: float
    closed: bool
    load: str


def draw_requests(
    workload: Workload, replicas: float, batch: int, options: ReplayOptions, trace: Trace | None
) -> Drawn:
    """Return the requests of one of several equal replicas.

    Args:
        workload: Workload of all replicas.
        replicas: Number of replicas.
        batch: Users of a replica if the load saturates it.
        options: Options of the replay.
        trace: Lengths and arrivals, if any, of all replicas; a workload with users or a rate overrides the arrivals.
    """
    timed = trace is not None and trace.arrival is not None
    closed = not (workload.kind == OPEN or (timed and workload.kind == SATURATED))
    if options.ramp and not closed:
        wanted = "0, because there are no users"
        raise SpecError("replay", Problem("ramp", wanted, f"{options.ramp:g}"))
    generator = np.random.default_rng(options.seed)
    users = _users(workload, replicas, batch) if closed else 0
    places = np.arange(_count(workload, replicas, users, options))
    if trace is not None:
        places = _of_replica(len(trace.prompt), replicas, options, generator)
    prompt, cached, output = _lengths(workload, options, trace, places, generator)
    share = 1 / replicas
    if closed:
        arrival = np.full(len(places), np.inf)
        some = min(users, len(places))
        arrival[:some] = options.ramp * np.arange(some) / users
        start = f"within {options.ramp:g} s" if options.ramp else "at once"
        load = f"{users:,} user{'s' * (users > 1)} per replica, starting {start}"
        if workload.users is not None:
            share = users / max(workload.users, users)
    elif trace is not None and trace.arrival is not None:
        faster = workload.rate / trace.rate if workload.rate and trace.rate else 1.0
        arrival = (trace.arrival / faster)[places]
        share = len(places) / len(trace.prompt[: options.requests])
        load = "arrivals as recorded"
        if not math.isclose(faster, 1.0, rel_tol=1e-6):
            load = f"recorded arrivals, {faster:.3g} times as fast"
    else:
        arrival = _arrivals(workload, replicas, options, len(places), generator)
        load = f"{workload.rate:g} requests/s, at random"
    return Drawn(
        arrival=arrival,
        prompt=prompt,
        cached=cached,
        output=output,
        share=share,
        closed=closed,
        load=load,
    )


def _users(workload: Workload, replicas: float, batch: int) -> int:
    """Return the users of the fullest replica; without stated users as many as keep its batch full."""
    return batch if workload.users is None else math.ceil(workload.users / replicas)


def _count(workload: Workload, replicas: float, users: int, options: ReplayOptions) -> int:
    """Return the requests of a replica."""
    if options.requests is not None:
        return options.requests
    if workload.requests is not None:
        return math.ceil(workload.requests / replicas)
    return max(users, min(MOST, max(FEWEST, PER_USER * users))) if users else OPEN_REQUESTS


def _of_replica(
    count: int, replicas: float, options: ReplayOptions, generator: np.random.Generator
) -> Array:
    """Return the numbers of the requests of a trace that one replica gets, of the first `requests` if stated."""
    count = min(count, options.requests or count)
    if options.route == "random":
        places = np.flatnonzero(generator.random(count) < 1 / replicas)
    else:
        places = np.arange(0, count, max(1, round(replicas)))
    if not len(places):
        places = np.arange(1)
    return places


def _lengths(
    workload: Workload,
    options: ReplayOptions,
    trace: Trace | None,
    places: Array,
    generator: np.random.Generator,
) -> tuple[Count, Count, Count]:
    """Return prompts, their cached tokens, and outputs."""
    w = workload
    if trace is not None:
        prompt, output = trace.prompt[places], trace.output[places]
        if trace.cached.any():
            return prompt, trace.cached[places], output
    else:
        prompt = _drawn(w.prompt, w.prompt_cv, options.range_ratio, len(places), generator)
        output = _drawn(w.output, w.output_cv, options.range_ratio, len(places), generator)
    new = w.computed / (w.prompt - w.common)
    computed = np.maximum(1.0, np.ceil(np.maximum(0.0, prompt - w.common) * new))
    return prompt, np.maximum(0.0, prompt - computed), output


def _drawn(
    mean: float, variation: float, ratio: float, count: int, generator: np.random.Generator
) -> Count:
    """Return random lengths: uniform in a range, or by a Weibull distribution with a coefficient of variation."""
    if ratio:
        low, high = math.floor(mean * (1 - ratio)), math.ceil(mean * (1 + ratio))
        return np.maximum(1.0, generator.integers(low, high, count, endpoint=True).astype(float))
    if not variation:
        return np.full(count, float(mean))
    shape = weibull_shape(variation)
    lengths = mean / math.gamma(1 + 1 / shape) * generator.weibull(shape, count)
    return np.maximum(1.0, np.rint(lengths))


def _arrivals(
    workload: Workload,
    replicas: float,
    options: ReplayOptions,
    count: int,
    generator: np.random.Generator,
) -> Seconds:
    """Return the arrivals at one of several replicas of requests at a rate."""
    assert workload.rate is not None
    every = 1.0 / workload.rate
    if not workload.arrival_cv:
        return every * replicas * np.arange(count)
    # times between arrivals with a gamma distribution, exponential for a variation of 1
    shape = 1 / workload.arrival_cv**2
    if options.route == "random" or replicas <= 1:
        gaps = generator.gamma(shape, every * replicas / shape, count)
    else:
        # the time between every n-th arrival is a sum of n times
        gaps = generator.gamma(shape * replicas, every / shape, count)
    return np.cumsum(gaps)
