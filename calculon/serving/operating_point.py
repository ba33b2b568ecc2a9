"""The point at which a replica works under a load: its batch, and all that follows from it."""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from calculon.campaign.money import Quote, quote
from calculon.errors import Infeasible
from calculon.frozen import dataclass
from calculon.serving.batch_search import largest, least
from calculon.serving.load import SATURATED
from calculon.serving.queueing import Wait, batch_percentile, wait
from calculon.serving.rank_memory import (
    RankMemory,
    cached_bytes,
    logit_bytes,
    longest_context,
    rank_memory,
    sequences_that_fit,
)
from calculon.serving.replica import Replica
from calculon.serving.row_times import PassTimes
from calculon.serving.steady import (
    Prompts,
    Steady,
    at_rate,
    budget_batch,
    concurrency,
    of_users,
    run_time,
    saturated,
    static_rate,
    waves,
)
from calculon.serving_figures import ServingFigures, ServingMemory
from calculon.units import GIB, Array, Count, Seconds

MOST_SEQUENCES = 2**20
"""Sequences of a replica beyond which none are looked for."""

NO_WAIT = Wait(np.zeros(1), np.zeros(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the workload, and what there is.

    Attributes
    ----------
    name, unit : str
        The figure that is limited, and its unit.
    most, found : float
        The limit and the figure.
    """

    name: str
    unit: str
    most: float
    found: float

    @property
    def met(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.found <= self.most

    @property
    def in_words(self) -> str:
        """Say the figure and the limit, and by how much it is missed."""
        name = self.name.upper() if len(self.unit) == 1 else self.name
        unit = f" {self.unit}".rstrip()
        if not math.isfinite(self.found):
            return f"{name}: without end, of {self.most:.3g}{unit}"
        said = f"{name}: {self.found:.3g} of {self.most:.3g}{unit}"
        return said if self.met else f"{said}, {self.found / self.most:.3g} times as much"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point at which a deployment works.

    Attributes
    ----------
    figures : ServingFigures
        Arrays of one entry.
    batch : int
        Sequences that a replica decodes at a time; for a rate what it takes to keep up.
    cut : str
        What bounds the sequences of a replica: ``memory``, ``max_batch``, ``token_budget``, ``users``, ``rate``,
        ``requests``, ``tpot`` or ``ttft``.
    decode, prefill : PassTimes
        The pass that decodes the batch, and that of one whole prompt.
    limits : tuple of Limit
        Those that the workload states.
    run_time : float or None
        Seconds of a finite run.
    price : str
        Source of the price; empty without one.
    """

    figures: ServingFigures
    batch: int
    cut: str
    decode: PassTimes
    prefill: PassTimes
    limits: tuple[Limit, ...]
    run_time: float | None
    price: str


class Load:
    """A replica with its memory and its load, and the search for the batch that this leads to.

    Attributes
    ----------
    room : int
        Sequences that fit into the memory of a replica.
    """

    def __init__(self, replica: Replica):
        self.replica, self.load, self.deployment = replica, replica.workload, replica.deployment
        self.memory = self._memory()
        fitting = sequences_that_fit(
            replica.model, self.deployment, replica.types, self.memory, self.load
        )
        self.room = int(min(fitting[0], MOST_SEQUENCES))

    def _memory(self) -> RankMemory:
        """Return the memory of a rank, with activations of the largest pass."""
        d, w = self.deployment, self.load
        tokens = d.token_budget if d.mixes else w.computed
        args = self.replica.model, self.replica.system, d, self.replica.types
        return rank_memory(*args, np.full(1, float(tokens)))

    def most(self) -> tuple[int, str]:
        """Return the most sequences of a replica, and what bounds them."""
        d, w = self.deployment, self.load
        bounds = [(self.room, "memory")]
        if d.max_batch:
            bounds.append((d.max_batch, "max_batch"))
        if d.mixes:
            bounds.append((int(budget_batch(d.token_budget, w.computed, w.output)), "token_budget"))
        return min(bounds)

    def answer(self) -> Point:
        """Find the batch, and state all that follows from it.

        Raises
        ------
        Infeasible
            Where not a single sequence has room in memory, or in a pass.
        """
        if self.room < 1:
            raise self._unfit()
        most, cut = self.most()
        if most < 1:
            raise Infeasible(
                cut, f"{cut}: no pass has room for a token of a sequence and its prompt"
            )
        batch, cut = self._batch(most, cut)
        return self._point(batch, most, cut)

    def _unfit(self) -> Infeasible:
        """Say by how much memory does not do."""
        m = self.memory
        held = float(m.weights[0] + m.reserve[0] + m.activation[0])
        available = float(m.capacity[0])
        d, w = self.deployment, self.load
        one = float(
            cached_bytes(
                self.replica.model, d, self.replica.types, np.full(1, float(w.prompt + w.output))
            )[0]
        )
        needed = held + one / d.memory_fraction
        return Infeasible(
            "mem1_capacity",
            f"a sequence of {w.prompt + w.output:,} tokens does not fit: a rank needs {needed / GIB:.1f} GiB (weights "
            f"{float(m.weights[0]) / GIB:.1f}, activations {float(m.activation[0]) / GIB:.1f}, reserve "
            f"{float(m.reserve[0]) / GIB:.1f}, cache {one / GIB:.1f}) of {available / GIB:.1f} GiB",
            needed,
            available,
            1,
        )

    def _batch(self, most: int, cut: str) -> tuple[int, str]:
        """Return the sequences that a replica decodes, and what bounds them."""
        d, w = self.deployment, self.load
        if w.users is not None:
            own = math.ceil(w.users / d.replicas)
            return (own, "users") if own <= most else (most, cut)
        if w.rate is not None:
            rate = w.rate / d.replicas
            batch = least(most, lambda b: self.state(b)[0].rate >= rate)
            return (batch, "rate") if batch <= most else (most, cut)
        if w.requests is not None and (each := math.ceil(w.requests / d.replicas)) < most:
            most, cut = each, "requests"
        for name, limit in (("tpot", w.tpot_limit), ("ttft", w.ttft_limit)):
            if limit is None:
                continue
            kept = largest(most, partial(self._keeps, name=name, limit=limit))
            if kept < most:
                most, cut = max(1, kept), name
        return most, cut

    def _keeps(self, batch: Array, name: str, limit: float) -> Array:
        """Return which batches keep a limit."""
        state, prompts, _ = self.state(batch)
        found = state.tpot if name == "tpot" else prompts.latency
        return found <= limit

    def state(self, batch: Count) -> tuple[Steady, Prompts, Seconds]:
        """Return the steady state of full batches, what prompts add, and the time of a decode pass."""
        decode = self.replica.decode(batch)
        prompts = self.replica.prompts(batch, decode)
        output = np.full_like(decode, self.load.output)
        if self.deployment.batching == "static":
            prefill, _ = self.replica.prefill(batch)
            mean = self.replica.mean_decode(batch)
            rate = static_rate(batch, prefill, mean, output)
            alone = Prompts(np.ones_like(prefill) / batch, prefill, prefill, mean)
            return Steady(rate, mean, rate * prefill / batch), alone, mean
        return saturated(batch, decode, prompts, output), prompts, decode

    def _loaded(
        self, full: Steady, prompts: Prompts, decode: Seconds, best: Steady, batch: int
    ) -> tuple[Steady, Wait]:
        """Return the state under the load of the workload, and the wait before prefill."""
        d, w = self.deployment, self.load
        if w.users is not None:
            own = w.users / d.replicas
            if own <= batch and d.batching == "continuous":
                output = np.full_like(decode, w.output)
                return of_users(np.full(1, own), decode, prompts, output, w.think), NO_WAIT
            late = np.maximum(0.0, own - batch) / full.rate
            return full, Wait(late, late)
        if w.rate is None:
            return full, NO_WAIT
        each = w.rate / d.replicas
        if each > best.rate[0]:
            return full, Wait(np.full(1, np.inf), np.full(1, np.inf))
        found = wait(
            np.full(1, w.rate), prompts.busy, d.replicas, w.arrival_cv, w.prompt_cv, w.percentile
        )
        half = decode / 2  # of the pass that runs when a request comes
        if d.batching == "static":
            return full._replace(rate=np.full(1, each)), Wait(
                found.mean + half, found.percentile + half
            )
        return at_rate(np.full(1, each), decode, prompts), Wait(
            found.mean + half, found.percentile + half
        )

    def _point(self, batch: int, most: int, cut: str) -> Point:
        """State everything about a batch."""
        d, w, replica = self.deployment, self.load, self.replica
        size = np.full(1, float(batch))
        full, prompts, decode = self.state(size)
        best, _, _ = self.state(np.full(1, float(most)))
        state, queue = self._loaded(full, prompts, decode, best, batch)
        price = self._price()
        figures = self._figures(size, most, best, state, prompts, decode, queue, price)
        ends = None
        if w.requests is not None:
            ends = float(self._run_time(math.ceil(w.requests / d.replicas), batch, state)[0])
            whole = np.full(1, w.requests * w.output / ends)
            figures = replace(figures, run_output_rate=whole)
        return Point(
            figures=figures,
            batch=batch,
            cut=cut,
            decode=replica.decode_pass(size),
            prefill=replica.prefill_pass(np.ones(1)),
            limits=self._limits(figures, best, most),
            run_time=ends,
            price="" if price is None else price.words,
        )

    def _run_time(self, requests: int, batch: int, state: Steady) -> Seconds:
        """Return the time in which a replica answers so many requests: in waves, or as they come."""
        if self.load.kind != SATURATED:
            return requests / state.rate + self.load.output * state.tpot
        left = waves(requests, batch)[1]
        last = self.state(np.full(1, float(left)))[0].rate if left else state.rate
        return run_time(requests, batch, state.rate, last)

    def _price(self) -> Quote | None:
        """Return the price of an hour of a processor: as the deployment says, or the rent of the system."""
        price = self.replica.system.ext.price
        if self.deployment.price is not None:
            return quote(price, given=self.deployment.price)
        rents = [
            one for one in ("on_demand", "reserved") if price is not None and one in price.kinds
        ]
        return quote(price, rents[0]) if rents else None

    def _figures(
        self,
        size: Count,
        most: int,
        best: Steady,
        state: Steady,
        prompts: Prompts,
        decode: Seconds,
        queue: Wait,
        price: Quote | None,
    ) -> ServingFigures:
        """Fill the figures of a state."""
        d, w, replica = self.deployment, self.load, self.replica
        held, open_loop = self._held(size), w.rate is not None
        busiest = np.full(1, 0.0) + concurrency(state, np.full(1, float(w.output)))
        tpot_p = state.tpot
        if open_loop:
            crowd = np.clip(batch_percentile(busiest, w.percentile), 1.0, float(most))
            tpot_p = np.maximum(tpot_p, replica.decode(crowd) / (1 - state.prefill_share))
        ttft, ttft_p = queue.mean + prompts.latency, queue.percentile + prompts.latency
        output = state.rate * w.output * d.replicas
        per_proc = output / d.num_procs
        alone, _ = replica.prefill(np.ones(1))
        dollars = np.full(1, np.nan)
        if price is not None:
            dollars = np.asarray(price.usd * d.num_procs / (3600 * output) * 1e6)
        used = held.weights + held.reserve + held.activation + held.cache
        return ServingFigures(
            ttft=ttft,
            ttft_p=ttft_p if open_loop else ttft,
            tpot=state.tpot,
            tpot_p=tpot_p,
            itl_max=np.maximum(prompts.longest, state.tpot),
            request_latency=ttft + (w.output - 1) * state.tpot,
            interactivity=1 / state.tpot,
            output_rate=output,
            output_rate_per_proc=per_proc,
            run_output_rate=output,
            total_rate_per_proc=per_proc * (1 + w.prompt / w.output),
            request_rate=state.rate * d.replicas,
            capacity_rate=best.rate * d.replicas,
            concurrency=busiest,
            max_concurrency=np.full(1, float(min(self.room, d.max_batch or self.room))),
            max_context=longest_context(replica.model, d, replica.types, self.memory),
            utilisation=(w.rate or float(state.rate[0] * d.replicas)) / (best.rate * d.replicas),
            prefill_share=state.prefill_share,
            queue_time=queue.mean,
            prefill_time=alone,
            decode_time=decode,
            usd_per_mtoken=dollars,
            mem_used=used,
            mem_free=self.memory.capacity - used,
            memory=held,
        )

    def _held(self, size: Count) -> ServingMemory:
        """Return what a rank holds with so many sequences, each in the middle of its output."""
        m, w = self.memory, self.load
        args = self.replica.model, self.deployment, self.replica.types
        own = w.computed + w.output / 2
        cache = size * cached_bytes(*args, np.full(1, own))
        if w.cached:
            cache = cache + cached_bytes(*args, np.full(1, float(w.cached)))
        logits = size * logit_bytes(self.replica.model, self.deployment.tensor_par)
        activation = m.activation + logits
        return ServingMemory(
            weights=m.weights, reserve=m.reserve, activation=activation, cache=cache
        )

    def _limits(self, figures: ServingFigures, best: Steady, most: int) -> tuple[Limit, ...]:
        """Return the limits of the workload, and whether its figures keep them."""
        w, found = self.load, []
        if w.rate is not None:
            rate = float(best.rate[0]) * self.deployment.replicas
            found.append(Limit(name="rate", unit="requests/s", most=rate, found=w.rate))
            crowd = float(batch_percentile(figures.concurrency, w.percentile)[0])
            name = f"sequences of a replica at {100 * w.percentile:g} %"
            found.append(Limit(name=name, unit="", most=float(most), found=crowd))
        for name, limit, figure in (
            ("ttft", w.ttft_limit, figures.ttft_p),
            ("tpot", w.tpot_limit, figures.tpot_p),
        ):
            if limit is not None:
                found.append(Limit(name=name, unit="s", most=limit, found=float(figure[0])))
        return tuple(found)
