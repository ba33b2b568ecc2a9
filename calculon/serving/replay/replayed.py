"""Result of a replay: latencies of all requests with their percentiles, throughput, goodput, and the highest rate."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.activity import announce
from calculon.base.display import Tabular
from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import GIB, Array, Bytes, Count, Fraction, Seconds
from calculon.serving.caches.rank_memory import cached_bytes
from calculon.serving.records.load import Workload
from calculon.serving.replay.pass_table import PassTable
from calculon.serving.replay.replay_record import Percentiles, ReplayRecord
from calculon.serving.replay.requests import Drawn, ReplayOptions, draw_requests
from calculon.serving.replay.scheduler import (
    MIXED,
    REMOTE,
    SEPARATE,
    Loads,
    PoolTimes,
    Rules,
    Timeline,
    replay,
)
from calculon.serving.replay.traces import Trace
from calculon.serving.states.operating_point import OperatingPointSolver

RATES, ROUNDS = 16, 2
"""Rates that are replayed together in each round of the search for the highest rate, and rounds: to 1 in 256."""

_LOOK = 1.25
"""Rate up to which the search looks, over the closed form's maximum."""


@dataclass(frozen=True)
class Replay(Tabular):
    """Result of a replay.

    Attributes:
        record: Its figures.
        prompt, output (shape (requests,)): Tokens of the requests.
        arrival, ttft, tpot, latency (shape (requests,)): Their times in seconds; `tpot` is NaN for a single token.
    """

    record: ReplayRecord
    prompt: Count
    output: Count
    arrival: Seconds
    ttft: Seconds
    tpot: Seconds
    latency: Seconds

    def table(self) -> dict[str, list[Any]]:
        """Return a row per request in the order of arrival: arrival, prompt, output, ttft, tpot and latency of each."""
        names = ("arrival", "prompt", "output", "ttft", "tpot", "latency")
        return {name: getattr(self, name).tolist() for name in names}

    def __repr__(self) -> str:
        r = self.record
        times = f"ttft {r.ttft.mean:.4g} s (p99 {r.ttft.p99:.4g}), tpot {r.tpot.mean:.4g} s"
        return (
            f"<Replay: {r.requests:,} requests, {times}, output_rate {r.output_rate:.6g} tokens/s>"
        )


class ReplicaReplay:
    """Replays of a single deployment."""

    def __init__(self, solver: OperatingPointSolver, batch: int, options: ReplayOptions):
        self.solver, self.batch, self.options = solver, batch, options
        self.workload: Workload = solver.load
        self.deployments = solver.deployments
        self.record = self.deployments.record
        self._check()
        self.replicas = float(self.deployments.replicas[0])

    def _check(self) -> None:
        """Raise SpecError for deployments whose scheduler is not replayed."""
        problems = []
        if self.record.batching != "continuous":
            problems.append(Problem("batching", "continuous, for a replay", self.record.batching))
        if self.options.preempt and self.solver.pool is not None:
            hint = "a decode pool cannot compute a lost KV cache again"
            problems.append(Problem("preempt", "false with a prefill pool", "true", hint))
        if self.options.ramp and self.solver.pool is not None:
            problems.append(Problem("ramp", "0 with a prefill pool", f"{self.options.ramp:g}"))
        if problems:
            raise SpecError("replay", problems)

    def run(self, trace: Trace | None = None) -> Replay:
        """Replay the workload, or a trace."""
        drawn = draw_requests(self.workload, self.replicas, self.batch, self.options, trace)
        rules, table = self.rules(drawn), self.table(drawn)

        def say(share: float) -> None:
            announce(f"replaying {len(drawn.prompt):,} requests, {share:.0%} done")

        say(0.0)
        times = replay(table, rules, self.loads(drawn, rules), say)
        result = self._result(drawn, times, table)
        if self.workload.ttft_limit is None and self.workload.tpot_limit is None:
            return result
        announce("searching for the highest rate")
        highest = self._highest_rate(drawn, rules, table)
        return replace(result, record=replace(result.record, highest_rate=highest))

    def rules(self, drawn: Drawn) -> Rules:
        """Return the rules of the scheduler.

        Raises:
            Infeasible: If a request does not fit into the KV cache.
        """
        solver, d, replica = self.solver, self.deployments, self.solver.replica
        groups = int(d.attn_data_par[0])
        free = solver.memory.cache_capacity[0] - np.max(solver.sequences.shared)
        remote = solver.pool is not None
        prompts = REMOTE if remote else MIXED if d.mixes else SEPARATE
        capacity = float(groups * free)
        longest = int(np.argmax(drawn.prompt + drawn.output))
        whole = float(self._bytes(drawn.prompt + drawn.output)[longest])
        if whole > capacity / groups:
            tokens = drawn.prompt[longest] + drawn.output[longest]
            message = f"the KV cache of a request of {tokens:,.0f} tokens takes {whole / GIB:.3g} GiB per rank"
            raise Infeasible(
                "memory", f"memory: {message}, and {free / GIB:.3g} are free", whole, free, 1
            )
        return Rules(
            prompts=prompts,
            budget=float(d.token_budget[0]),
            max_batch=float(solver.allowed[0]),
            capacity=capacity,
            groups=groups,
            stages=int(d.pipeline_par[0]),
            rows=float(replica.rows),
            per_pass=float(replica.per_pass),
        )

    def _bytes(self, tokens: Count) -> Bytes:
        """Return the bytes on a rank of requests of some lengths, with their logits."""
        solver, fetched = self.solver, self.record.cache_offload != "none"
        alone = np.maximum(0.0, tokens - self.workload.shared(fetched=fetched))
        many = solver.replica.take(np.zeros(len(tokens), np.int64))
        logits = self.record.memory_fraction * solver.sequences.logits[0]
        return np.asarray(
            cached_bytes(many, alone + solver.replica.draft.speculation.tokens) + logits
        )

    def loads(self, drawn: Drawn, rules: Rules) -> Loads:
        """Return the requests as a single load, with the memory that they need."""
        whole = self._bytes(drawn.prompt + drawn.output)
        if self.options.preempt:
            held = self._bytes(drawn.prompt)
            growth = (whole - held) / drawn.output
        else:
            shares = {"reserve": 1.0, "mean": 0.5}
            held = self._bytes(drawn.prompt + shares[self.record.admission] * drawn.output)
            growth = np.zeros_like(held)
        return Loads(
            arrival=drawn.arrival[None],
            prompt=drawn.prompt[None],
            cached=drawn.cached[None],
            output=drawn.output[None],
            held=held[None],
            growth=growth[None],
            closed=drawn.closed,
            think=float(self.workload.think),
            overhead=self.options.overhead,
            pool=self._pool(drawn),
        )

    def _pool(self, drawn: Drawn) -> PoolTimes | None:
        """Return the times of prompts in the prefill pool; None without one.

        A decode replica has its share of the pool. If that is no whole number of replicas, the next larger number of
        them is busy longer with each prompt, so that the pool has the same throughput.
        """
        pool = self.solver.pool
        if pool is None:
            return None
        lengths, place = np.unique(
            np.stack([drawn.prompt, drawn.cached]), axis=1, return_inverse=True
        )
        many = pool.replica.take(np.zeros(lengths.shape[1], np.int64))
        together = many.deployments.attn_data_par
        computed: Any = lengths[0] - lengths[1]  # a column in place of a number
        cached: Any = lengths[1]
        time, busy = many.prefill_of(together, computed, cached)
        moved = pool.moved[0] * lengths[0] / self.workload.prompt
        share = float(pool.replicas[0]) / self.replicas
        servers = int(np.ceil(share))
        place = place.ravel()
        return PoolTimes(
            servers=servers,
            busy=(busy / together * (servers / share))[place][None],
            latency=(time + moved)[place][None],
        )

    def table(self, drawn: Drawn) -> PassTable:
        """Return the pass times of the replica for all requests."""
        rules, d = self.rules(drawn), self.deployments
        sequences = int(min(rules.most, len(drawn.prompt), self._fitting(drawn, rules)))
        longest = float(drawn.prompt.max() + drawn.output.max())
        tokens = longest if not d.mixes else float(d.token_budget[0])
        tokens = max(1.0, tokens) * (rules.groups if d.mixes or rules.groups > 1 else 1)
        return PassTable.of(
            self.solver.replica,
            max(1, sequences),
            longest,
            longest,
            tokens + max(1, sequences) * rules.rows,
        )

    def _fitting(self, drawn: Drawn, rules: Rules) -> float:
        """Return an upper bound of the requests whose KV caches fit together."""
        return float(np.ceil(rules.capacity / self._bytes(drawn.prompt).min()))

    def _result(self, drawn: Drawn, times: Timeline, table: PassTable) -> Replay:
        """Return the figures of a replay."""
        lag = np.zeros_like(drawn.prompt)
        if self.solver.pool is None:
            budget = float(self.deployments.token_budget[0]) or np.inf
            lag = table.lag(np.minimum(drawn.prompt - drawn.cached, budget))
        arrival, first, end = (one[0] for one in times[:3])
        latencies = _latencies(drawn.output, arrival, first + lag, end + lag)
        good = self._good(*latencies[:2])
        duration = float(end.max() - arrival.min())
        scale = 1 / (drawn.share * max(duration, 1e-300))
        record = ReplayRecord(
            load=drawn.load,
            requests=len(drawn.prompt),
            seed=self.options.seed,
            ttft=Percentiles.of(latencies[0]),
            tpot=Percentiles.of(latencies[1]),
            latency=Percentiles.of(latencies[2]),
            duration=duration,
            request_rate=len(drawn.prompt) * scale,
            output_rate=float(drawn.output.sum()) * scale,
            goodput=float(good.sum()) * scale,
            good_share=float(good.mean()),
            percentile=self.workload.percentile,
            preempted=int(times.preempted[0]),
        )
        ttft, tpot, latency = latencies
        return Replay(record, drawn.prompt, drawn.output, arrival, ttft, tpot, latency)

    def _good(self, ttft: Seconds, tpot: Seconds) -> Array:
        """Return the mask of requests that meet the limits."""
        w = self.workload
        most = (np.inf if one is None else float(one) for one in (w.ttft_limit, w.tpot_limit))
        ttft_limit, tpot_limit = most
        return (ttft <= ttft_limit) & ~(tpot > tpot_limit)

    def _highest_rate(self, drawn: Drawn, rules: Rules, table: PassTable) -> float:
        """Return the highest request rate at which the stated share of the requests meets the limits.

        The same random requests arrive at :data:`RATES` rates at once, in :data:`ROUNDS` rounds of narrower intervals.
        """
        generator = np.random.default_rng(self.options.seed)
        arrival = np.cumsum(generator.exponential(1.0, len(drawn.prompt)))
        single = replace(drawn, arrival=arrival, closed=False)
        one = replace(self.loads(single, rules), think=0.0)
        best = self.solver.state(self.solver.largest_batch()[0])[0].rate
        low, high = 0.0, _LOOK * float(best[0])
        lag = 0.0 if self.solver.pool is not None else table.lag(drawn.prompt - drawn.cached)
        for _ in range(ROUNDS):
            rates = low + (high - low) * np.arange(1, RATES + 1) / RATES
            times = replay(table, rules, _at_rates(one, rates))
            ttft, tpot, _ = _latencies(
                drawn.output, times.arrival, times.first + lag, times.end + lag
            )
            met: Fraction = self._good(ttft, tpot).mean(axis=1) >= self.workload.percentile
            count = RATES if met.all() else int(np.argmin(met))
            low, high = (low if not count else rates[count - 1]), rates[min(count, RATES - 1)]
            if count == RATES:
                break
        return float(low * self.replicas)


def _latencies(
    output: Count, arrival: Seconds, first: Seconds, end: Seconds
) -> tuple[Seconds, Seconds, Seconds]:
    """Return the times to the first token, per token after it, and to the last token."""
    steps = np.where(output > 1, output - 1, np.nan)
    return first - arrival, (end - first) / steps, end - arrival


def _at_rates(load: Loads, rates: Array) -> Loads:
    """Return one load with requests at several rates."""
    count = len(rates)

    def repeated(one: Array) -> Array:
        return np.repeat(one, count, axis=0)

    pool = load.pool
    if pool is not None:
        pool = replace(pool, busy=repeated(pool.busy), latency=repeated(pool.latency))
    return replace(
        load,
        arrival=load.arrival / rates[:, None],
        prompt=repeated(load.prompt),
        cached=repeated(load.cached),
        output=repeated(load.output),
        held=repeated(load.held),
        growth=repeated(load.growth),
        pool=pool,
    )
