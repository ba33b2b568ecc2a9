"""Operating point of a deployment: the batch that a load leads to, with throughput, latency, memory and cost."""

from dataclasses import replace

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.errors import Infeasible
from calculon.base.units import Array, Count, Seconds
from calculon.campaign.money import Quote
from calculon.declarations.serving_figures import ServingFigures, ServingMemory, SpeculationFigures
from calculon.serving.caches.cache import CachedBlocks
from calculon.serving.caches.rank_memory import SequenceCapacity, unfit
from calculon.serving.records.output_lengths import PARTS, draining_batch
from calculon.serving.states.batch_search import Condition, largest, least
from calculon.serving.states.cohorts import users_at_once
from calculon.serving.states.disaggregated import PrefillPool, balanced
from calculon.serving.states.full_batches import FullBatches
from calculon.serving.states.queueing import (
    Wait,
    add_waits,
    batch_percentile,
    closed_rate,
    pass_left,
    wait,
    wait_for_batch,
)
from calculon.serving.states.served_points import (
    CUTS,
    AllReplicas,
    LimitColumn,
    Point,
    Points,
    energy_words,
    joules_per_token,
    price_of,
)
from calculon.serving.states.steady import (
    PrefillEffect,
    SteadyState,
    at_rate,
    concurrency,
    of_users,
    pass_at_work,
    queue_of_users,
    run_time,
    users_of,
    waves,
)

LATE = frozenset({"itl_max", "max_context", "even_context", "prefill_time"})
"""Figures that take passes of their own, and together longer than all others: searches leave them to the winners."""

_ALL = slice(None)


class OperatingPointSolver(FullBatches):
    """Replicas under a load: the batch that it leads to, and all figures that follow."""

    def solve_single(self) -> Point:
        """Return the operating point of a single deployment.

        Raises:
            Infeasible: If not even one sequence fits into memory, or into a pass.
        """
        w = self.load
        if self.capacity[0] < 1:
            raise unfit(self.memory, self.replica, w.prompt + w.output)
        if self.pool is not None and self.pool.capacity[0] < 1:
            raise unfit(self.pool.memory, self.pool.replica, w.prompt, "prefill: ")
        most, cut = self.largest_batch()
        if most[0] < 1:
            name = CUTS[cut[0]]
            raise Infeasible(
                name, f"{name}: a pass is too small for a token of a sequence and its prompt"
            )
        points = self.solve()
        return Point(
            figures=points.figures,
            # `solve` works on columns; a single deployment is a column of one
            batch=int(points.batch[0]),
            cut=CUTS[points.cut[0]],
            decode=self.replica.decode_pass(points.batch),
            prefill=(self.pool or self).replica.prefill_pass(np.ones(1)),
            limits=tuple(one.of(0) for one in points.limits),
            run_time=None if points.run_time is None else float(points.run_time[0]),
            price=points.price,
            power=points.power,
        )

    def solve(self, *, brief: bool = False) -> Points:
        """Return the operating points of all deployments; with `brief`, the figures :data:`LATE` are undefined."""
        d, w = self.deployments, self.load
        most, cut = self.largest_batch()
        fits = most >= 1
        # infeasible rows are computed with one sequence and masked by `fits`, so that all columns keep their shape
        most = np.maximum(most, 1.0)
        alone = self._decoded(most)[0].rate
        if self.pool is not None:
            fits = fits & (self.pool.capacity >= 1)
            most, cut = self._prefilled(self.pool, most, cut)
        batch, cut = self._batch(most, cut)
        full, prompts, decode = self.state(batch)
        # the maximum rate needs the largest batch, not the batch of the load
        best, _, _ = self.state(most)
        state, queue = self._loaded(full, prompts, decode, best, batch, most)
        price = price_of(self.replica.system, d.record)
        ends = None
        if w.requests is not None:
            ends = self._run_time(np.ceil(w.requests / d.replicas), batch, state, prompts, queue)
        figures = self._figures(batch, most, best, state, prompts, decode, queue, price, ends)
        if not brief:
            figures = self._completed(figures, batch, state, prompts, decode)
        if self.pool is not None:
            figures = self._of_pools(self.pool, figures, batch, decode, alone)
        joules = joules_per_token(self.replica.system, d, figures, w.output)
        figures = replace(figures, joules_per_token=joules)
        return Points(
            figures=figures,
            batch=batch,
            cut=cut,
            limits=self._limits(figures, best, most),
            run_time=ends,
            fits=fits,
            price="" if price is None else price.words,
            power=energy_words(self.replica.system),
        )

    def pool_rates(self) -> tuple[Array, Array]:
        """Return the largest requests per second of a prefill replica, and of a decode replica within the TPOT limit.

        A replica that misses a limit on its own, or has no memory for a sequence, has the rate 0.
        """
        assert self.pool is not None
        w, most = self.load, self.largest_batch()[0]
        prefills, batch = self.pool.capacity >= 1, np.maximum(most, 1.0)
        if w.ttft_limit is not None:
            prefills = prefills & (self.pool.time <= w.ttft_limit)
        if w.tpot_limit is not None:
            batch = self.largest_within("tpot", w.tpot_limit, batch)
        decodes = self._decoded(np.maximum(batch, 1.0))[0].rate
        fits = (most >= 1) & (batch >= 1)
        return np.where(prefills, 1 / self.pool.busy, 0.0), np.where(fits, decodes, 0.0)

    def _prefilled(self, pool: PrefillPool, most: Count, cut: Array) -> tuple[Count, Array]:
        """Return the decode batch limited by prefill throughput, and its limiting reason."""
        each = pool.rate / self.deployments.replicas
        enough = _fewest(most, lambda at, b: self._decoded(b, at)[0].rate >= each[at])
        return _at_most(enough, most, cut, "prefill")

    def _of_pools(
        self,
        pool: PrefillPool,
        figures: ServingFigures,
        batch: Count,
        decode: Seconds,
        alone: Array,
    ) -> ServingFigures:
        """Return the figures completed for a prefill pool; `alone` is the rate of decode replicas without it."""
        w, replicas = self.load, self.deployments.replicas
        return replace(
            figures,
            prefill_time=pool.time,
            transfer_time=pool.moved,
            prefill_busy=figures.request_rate / pool.rate,
            decode_busy=figures.request_rate / (replicas * alone),
            balanced_prefill=balanced(pool.busy, decode / self.replica.per_pass, batch, w.output),
        )

    def _batch(self, most: Count, cut: Array) -> tuple[Count, Array]:
        """Return the sequences that a replica decodes, and the limiting reason."""
        d, w = self.deployments, self.load
        if w.users is not None:
            return _at_most(self._running(most), most, cut, "users")
        if w.rate is not None:
            each = w.rate / d.replicas
            enough = _fewest(most, lambda at, b: self.state(b, at)[0].rate >= each[at])
            return _at_most(enough, most, cut, "rate")
        if w.requests is not None:
            most, cut = _lower(np.ceil(w.requests / d.replicas), most, cut, "requests")
        for name, limit in (("tpot", w.tpot_limit), ("ttft", w.ttft_limit)):
            if limit is not None:
                most, cut = _lower(self.largest_within(name, limit, most), most, cut, name)
        return most, cut

    def _running(self, most: Count) -> Count:
        """Return the concurrent sequences of users; infinite if they exceed the largest batch."""
        d, w = self.deployments, self.load
        per_replica = self._users / d.replicas
        if self.pool is not None:
            return self._running_with_pool(self.pool, most)
        if not self._away or d.record.batching == "static":
            return np.ceil(per_replica)

        def enough(at: Array, batch: Count) -> Array:
            _, prompts, decode = self.state(batch, at)
            token = decode / self.replica.per_pass
            return users_of(batch, token, prompts, w.output, self._away) >= per_replica[at]

        return _fewest(most, enough)

    def _running_with_pool(self, pool: PrefillPool, most: Count) -> Count:
        """Return the concurrent sequences of users that are not in the prefill pool."""

        def enough(at: Array, batch: Count) -> Array:
            _, prompts, decode = self.state(batch, at)
            token = decode / self.replica.per_pass
            rate = self._closed(pool, self._without_wait(prompts, token), at)
            decoded = rate * (self.load.output - 1) * token / self.deployments.replicas[at]
            return (decoded <= batch) & (rate < pool.rate[at])

        return _fewest(most, enough)

    def largest_within(self, name: str, limit: float, most: Count) -> Count:
        """Return the largest batch within a limit of the workload, ``tpot`` or ``ttft``; 0 if no batch meets it."""

        def keeps(places: Array, batch: Count) -> Array:
            return self.limited_time(name, batch, places) <= limit

        return largest(most, keeps, self.replica.more_chunks if self.deployments.mixes else None)

    def limited_time(self, name: str, batch: Count, places: Array | None = None) -> Seconds:
        """Return the time that a limit of the workload bounds, ``tpot`` or ``ttft``, for full batches."""
        state, prompts, decode = self.state(batch, places)
        if name == "tpot":
            return state.tpot
        fixed = self.deployments.record.request_time
        return fixed + prompts.latency + self._collisions(batch, prompts, decode)

    def _collisions(self, batch: Count, prompts: PrefillEffect, decode: Seconds) -> Seconds:
        """Return the wait of a prompt for other prompts and for the running pass, at a number of sequences."""
        if self.deployments.record.batching == "static":
            return np.zeros_like(decode)
        load = (batch, decode / self.replica.per_pass, prompts, self.load.output)
        # a prefill pool decodes nothing, so no decode pass delays a prompt
        if self.pool is not None:
            return queue_of_users(*load)
        return queue_of_users(*load) + self.replica.per_pass * pass_at_work(*load)

    def _loaded(
        self,
        full: SteadyState,
        prompts: PrefillEffect,
        decode: Seconds,
        best: SteadyState,
        batch: Count,
        most: Count,
    ) -> tuple[SteadyState, Wait]:
        """Return the state under the load of the workload, and the wait before prefill."""
        d, w = self.deployments, self.load
        if w.users is not None:
            if self.pool is not None:
                return self._of_users_with_pool(self.pool, full, prompts, decode)
            return self._of_users(full, prompts, decode, batch)
        if w.rate is None:
            delay = self._collisions(batch, prompts, decode)
            return full, Wait(delay, delay)
        each, asked = w.rate / d.replicas, np.full_like(decode, w.rate)
        # arrivals above the maximum rate: the queue grows without end, and replicas work with full batches
        overloaded = each > best.rate
        if d.record.batching == "static":
            state = full._replace(rate=each)
            ends = (batch / full.rate, most, most / best.rate)
            queue = wait_for_batch(asked, d.replicas, *ends, w.arrival_cv, w.percentile)
        else:
            state = at_rate(each, decode / self.replica.per_pass, prompts)
            queue = self._wait_at_rate(
                asked, _where(overloaded, full, state), prompts, decode, most
            )
        return _where(overloaded, full, state), Wait(
            *(np.where(overloaded, np.inf, one) for one in queue)
        )

    def _wait_at_rate(
        self, asked: Array, state: SteadyState, prompts: PrefillEffect, decode: Seconds, most: Count
    ) -> Wait:
        """Return the wait for a free slot in the batch, for earlier prompts, and for the running pass."""
        d, w = self.deployments, self.load
        held = (w.output - 1) * state.tpot
        places = d.replicas * most
        found = wait(asked, held, places, w.arrival_cv, w.output_cv, w.percentile)
        if self.pool is not None:
            pool = self.pool.busy, self.pool.replicas, w.arrival_cv, w.prompt_cv
            return add_waits(found, wait(asked, *pool, w.percentile))
        before = prompts.busy, d.replicas, w.arrival_cv, prompts.variation
        found = add_waits(found, wait(asked, *before, w.percentile))
        return add_waits(found, pass_left(concurrency(state, w.output), decode, w.percentile))

    def _of_users_with_pool(
        self, pool: PrefillPool, full: SteadyState, prompts: PrefillEffect, decode: Seconds
    ) -> tuple[SteadyState, Wait]:
        """Return the state with users whose prompts have a separate pool, and the wait for this pool."""
        replicas, token = self.deployments.replicas, decode / self.replica.per_pass
        cycle = self._without_wait(prompts, token)
        rate = np.minimum(self._closed(pool, cycle), replicas * full.rate)
        queue = np.maximum(0.0, self._users / rate - cycle)
        return SteadyState(rate / replicas, token, 0 * token), Wait(queue, queue)

    @property
    def _users(self) -> int:
        """Users with one request at a time; in a finite run at most the number of requests."""
        w = self.load
        assert w.users is not None
        return w.users if w.requests is None else min(w.users, w.requests)

    @property
    def _away(self) -> float:
        """Seconds of each request of a user that it spends outside of passes: thinking, and fixed time."""
        return self.load.think + self.deployments.record.request_time

    def _without_wait(self, prompts: PrefillEffect, token: Seconds) -> Seconds:
        """Return the time from one request of a user to the next, without waiting."""
        return prompts.latency + (self.load.output - 1) * token + self._away

    def _closed(self, pool: PrefillPool, cycle: Seconds, at: Array | slice = _ALL) -> Array:
        """Return the requests per second of users in a closed loop, given the wait for the prefill pool."""
        users = np.full_like(cycle, self._users)
        return closed_rate(users, pool.busy[at], pool.replicas[at], self.load.prompt_cv, cycle)

    def _of_users(
        self, full: SteadyState, prompts: PrefillEffect, decode: Seconds, batch: Count
    ) -> tuple[SteadyState, Wait]:
        """Return the state with users, and the wait of users for whom the batch is full."""
        d, w = self.deployments, self.load
        per_replica = self._users / d.replicas
        if d.record.batching == "static":
            delay = np.maximum(0.0, per_replica - batch) / full.rate
            return full, Wait(delay, delay)
        supported, running = batch, np.minimum(per_replica, batch)
        token = decode / self.replica.per_pass
        if self._away:
            supported, running = users_of(batch, token, prompts, w.output, self._away), batch
        fits = per_replica <= supported
        delay = np.where(fits, 0.0, np.maximum(0.0, per_replica - supported) / full.rate)
        pause, before = self._collisions(running, prompts, decode), None
        effect = prompts
        load = (running, prompts, decode, pause, self._users)
        effect, before, pause = users_at_once(self.replica, *load)
        delay = delay + pause + effect.latency - prompts.latency
        state = of_users(per_replica, token, effect, w.output, self._away, running, before)
        cycle = delay + prompts.latency + (w.output - 1) * state.tpot + self._away
        return _where(fits, state._replace(rate=per_replica / cycle), full), Wait(delay, delay)

    def _run_time(
        self, requests: Count, batch: Count, state: SteadyState, prompts: PrefillEffect, queue: Wait
    ) -> Seconds:
        """Return the time in which a replica answers a number of requests: in waves, or as they arrive.

        Users ask one request after the other until all are answered, and do not think after the last one. With a rate,
        the last request arrives after all others and waits for the mean time if that is finite.
        """
        w = self.load
        if w.users is not None:
            per_replica = np.maximum(1.0, self._users / self.deployments.replicas)
            return np.ceil(requests / per_replica) * per_replica / state.rate - w.think
        if w.rate is not None:
            queued = np.where(np.isfinite(queue.mean), queue.mean, 0.0)
            answered = prompts.latency + (w.output - 1) * state.tpot
            last = self.deployments.record.request_time + queued + answered
            return (requests - 1) / state.rate + last
        if self.load.output_cv and self.deployments.record.batching == "continuous":
            return self._run_out(requests, batch)
        left = waves(requests, batch)[1]
        last = self.state(np.maximum(left, 1.0))[0].rate
        return run_time(requests, batch, state.rate, last)

    def _run_out(self, requests: Count, batch: Count) -> Seconds:
        """Return the time in which a replica answers a number of requests with outputs of different lengths.

        Batches are full while requests are waiting, and then run empty. If all requests fit at once, the batch runs
        empty from the start.
        """
        w, replica = self.load, self.replica
        steps, fresh = w.output - 1, requests <= batch
        _, prompts, decode = self.state(batch)
        # remaining steps of running sequences: the mean residual life of a renewal process
        begun = batch * steps * (1 + w.output_cv**2) / 2
        full = np.where(fresh, 0.0, np.maximum(0.0, requests * steps - begun))
        each = np.repeat(np.arange(len(batch)), PARTS)
        ends = []
        for under_way in (False, True):
            out = draining_batch(batch, steps, w.output_cv, under_way=under_way)
            made = w.context if under_way else w.prompt + 1 + out.made.ravel()
            times = replica.take(each).decode(np.maximum(1.0, out.left.ravel()), made)
            ends.append((out.passes * times.reshape(out.passes.shape)).sum(axis=1))
        decoding = full * decode / batch + np.where(fresh, *ends)
        return requests * prompts.busy + decoding / replica.per_pass

    def _figures(
        self,
        batch: Count,
        most: Count,
        best: SteadyState,
        state: SteadyState,
        prompts: PrefillEffect,
        decode: Seconds,
        queue: Wait,
        price: Quote | None,
        ends: Seconds | None,
    ) -> ServingFigures:
        """Return the figures of the states, without :data:`LATE`."""
        d, w, replica = self.deployments, self.load, self.replica
        held, open_loop = self._held(batch), w.rate is not None
        nothing, none = np.zeros_like(batch), np.full_like(batch, np.nan)
        busiest = concurrency(state, w.output)
        tpot_p = state.tpot
        if open_loop:
            # the percentile of the time per token is the time of the
            # batch that is rarely exceeded, not a tail of token times
            crowd = np.clip(batch_percentile(busiest, w.percentile), 1.0, most)
            token = replica.decode(crowd) / replica.per_pass
            tpot_p = np.maximum(tpot_p, token / (1 - state.prefill_share))
        ttft, ttft_p = self._first_token(batch, prompts, decode, queue)
        used = held.weights + held.reserve + held.activation + held.cache
        totals = AllReplicas.of(w, state.rate, best.rate, d.replicas, d.num_procs, price, ends)
        return ServingFigures(
            ttft=ttft,
            ttft_p=ttft_p,
            tpot=state.tpot,
            tpot_p=tpot_p,
            itl_max=none,
            request_latency=ttft + (w.output - 1) * state.tpot,
            interactivity=1 / state.tpot,
            **totals._asdict(),
            concurrency=busiest,
            max_concurrency=np.minimum(self.capacity, self.allowed),
            max_context=none,
            even_context=none,
            prefill_share=state.prefill_share,
            queue_time=queue.mean,
            prefill_time=none,
            transfer_time=nothing,
            joules_per_token=none,
            prefill_busy=none,
            decode_busy=none,
            balanced_prefill=none,
            decode_time=decode,
            mem_used=used,
            mem_free=self.memory.capacity - used,
            memory=held,
            prefixes=self.prefixes.figures(batch, state),
            speculation=self._speculation(batch),
        )

    def _first_token(
        self, batch: Count, prompts: PrefillEffect, decode: Seconds, queue: Wait
    ) -> tuple[Seconds, Seconds]:
        """Return the time to the first token: its mean, and for requests that arrive at a rate its percentile."""
        w, slow = self.load, prompts.latency
        fixed = self.deployments.record.request_time
        mean = fixed + queue.mean + prompts.latency
        if w.rate is None:
            return mean, mean
        if w.prompt_cv and self.pool is None:
            long = self.replica.prompts_of(batch, decode, w.prompt_at(w.percentile))
            slow = np.maximum(slow, long.latency)
        return mean, fixed + queue.percentile + slow

    def _completed(
        self,
        figures: ServingFigures,
        batch: Count,
        state: SteadyState,
        prompts: PrefillEffect,
        decode: Seconds,
    ) -> ServingFigures:
        """Return the figures with :data:`LATE`."""
        alone, _ = self.replica.take(self._firsts).prefill(np.ones(len(self._firsts)))
        return replace(
            figures,
            itl_max=self._longest_gap(batch, state, prompts, decode),
            max_context=self._longest_context(),
            even_context=self._even_context(batch),
            prefill_time=alone[self._alike],
        )

    def _longest_gap(
        self, batch: Count, state: SteadyState, prompts: PrefillEffect, decode: Seconds
    ) -> Seconds:
        """Return the longest time between two tokens; with a single request, no prompt comes between its tokens."""
        longest = prompts.longest
        if self.pool is None:
            longest = np.maximum(longest, self.replica.longest_gap(batch, decode))
        w, most = self.load, np.full_like(batch, np.inf)
        if w.users is not None:
            most = np.full_like(batch, self._users)
        elif w.requests is not None:
            most = np.full_like(batch, w.requests)
        # a single request at a time is never interrupted by a prompt
        alone = np.ceil(most / self.deployments.replicas) <= 1
        return np.maximum(np.where(alone, decode, longest), state.tpot)

    def _speculation(self, batch: Count) -> SpeculationFigures:
        """Return the gain from speculative decoding with full batches, and the batch up to which it pays off."""
        tokens = np.full_like(batch, self.replica.per_pass)
        if self.replica.rows == 1:
            nothing = np.full_like(batch, np.nan)
            return SpeculationFigures(tokens=tokens, speedup=nothing, break_even=nothing)
        drafted, plain = self.replica, self.replica.without_draft()

        def pays(places: Array, batch: Count) -> Array:
            token = drafted.take(places).decode(batch) / drafted.per_pass
            return token < plain.take(places).decode(batch)

        without, _, _ = OperatingPointSolver(plain).state(batch)
        return SpeculationFigures(
            tokens=tokens,
            speedup=without.tpot / self.state(batch)[0].tpot,
            break_even=largest(
                np.maximum(1.0, np.min([*self.batch_capacities().values()], axis=0)), pays
            ),
        )

    def _longest_context(self) -> Count:
        """Return the tokens of the longest sequence that fits on its own."""
        # many deployments share a replica, and the bisection is expensive
        firsts = self.replica.take(self._firsts), self.memory.take(self._firsts)
        return SequenceCapacity(*firsts).longest[self._alike]

    def _even_context(self, batch: Count) -> Count:
        """Return the context at which a decode pass reads as many bytes of KV cache as of weights."""
        _, numbers, first = distinct([self._alike, batch])
        times = self.replica.take(first).decode_pass(batch[first])
        blocks = CachedBlocks.of(self.replica.model)
        each = times.total("cache") / blocks.tokens(np.full(len(first), self.load.context))
        return blocks.length(times.total("weights") / each)[numbers]

    def _held(self, batch: Count) -> ServingMemory:
        """Return the memory of a rank with a number of sequences, each in the middle of its output."""
        m, sequences = self.memory, self.deployments.of_group(batch)
        cache = sequences * self.sequences.held + self.sequences.shared
        logits = sequences * self.sequences.logits
        return ServingMemory(
            weights=m.weights, reserve=m.reserve, activation=m.activation + logits, cache=cache
        )

    def _limits(
        self, figures: ServingFigures, best: SteadyState, most: Count
    ) -> tuple[LimitColumn, ...]:
        """Return the limits of the workload together with the figures that they bound."""
        w, found = self.load, []
        if w.rate is not None:
            rate, asked = best.rate * self.deployments.replicas, np.full_like(most, w.rate)
            found.append(LimitColumn(name="rate", unit="requests/s", most=rate, found=asked))
            crowd = batch_percentile(figures.concurrency, w.percentile)
            name = f"sequences per replica at {100 * w.percentile:g} %"
            found.append(LimitColumn(name=name, unit="", most=most, found=crowd))
        for name, limit, figure in (
            ("ttft", w.ttft_limit, figures.ttft_p),
            ("tpot", w.tpot_limit, figures.tpot_p),
        ):
            if limit is not None:
                at_most = np.full_like(most, limit)
                found.append(LimitColumn(name=name, unit="s", most=at_most, found=figure))
        return tuple(found)


def _where(first: Array, one: SteadyState, other: SteadyState) -> SteadyState:
    """Return the first state where a condition holds, otherwise the second."""
    return SteadyState(*(np.where(first, *both) for both in zip(one, other, strict=True)))


def _fewest(most: Count, holds: Condition) -> Count:
    """Return the smallest batch that meets a condition; infinite if none up to `most` does."""
    found = least(most, holds)
    return np.where(found > 0, found, np.inf)


def _at_most(wanted: Count, most: Count, cut: Array, name: str) -> tuple[Count, Array]:
    """Return the batch of a load and its name as the limiting reason; if it exceeds `most`, that and its reason."""
    return np.minimum(wanted, most), np.where(wanted <= most, CUTS.index(name), cut)


def _lower(bound: Count, most: Count, cut: Array, name: str) -> tuple[Count, Array]:
    """Return the largest batch, at least 1, under a further bound, and the limiting reason."""
    return np.maximum(1.0, np.minimum(bound, most)), np.where(bound < most, CUTS.index(name), cut)
