"""Replay of continuous batching: many independent loads of one replica at once, as columns.

A pass decodes every running sequence and then fills the token budget with prompts, first come, first served: the rest
of the prompt that the last pass cut, and then waiting requests as long as the batch and the KV cache have space. While
neither a prompt nor a completed sequence changes the batch, passes differ only in their contexts, so a replay sums them
up in one step. Sources: Yu et al., *Orca*, OSDI 2022; Agrawal et al., *Sarathi-Serve*, arXiv 2403.02310; vLLM,
``vllm/v1/core/sched/scheduler.py`` (running requests first, then the queue; if the cache is full, the request that
started last is preempted, returns to the head of the queue and is computed again).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Bytes, Count, Seconds
from calculon.serving.replay.pass_table import PassTable

MIXED, SEPARATE, REMOTE = "mixed", "separate", "remote"
"""Where prompts are computed: in passes that also decode, in passes of their own, or by other processors."""

_TOLERANCE = 1e-9
"""Part of a pass that a sequence may lack by rounding when it ends."""

_SPARSE = 0.8
"""Share of loads still running below which columns of finished loads are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules of the scheduler of a replica.

    Attributes:
        prompts: :data:`MIXED`, :data:`SEPARATE` or :data:`REMOTE`.
        budget: Tokens of a pass of a group of ranks.
        max_batch: Maximum running requests.
        capacity: Bytes of KV caches, of all groups.
        groups: Groups of ranks with different sequences.
        stages: Pipeline stages, each with its part of the sequences.
        rows: Rows of a decoded sequence in a pass.
        per_pass: Tokens of a decoded sequence that a pass yields.
    """

    prompts: str
    budget: float
    max_batch: float
    capacity: float
    groups: int = 1
    stages: int = 1
    rows: float = 1.0
    per_pass: float = 1.0

    @property
    def most(self) -> float:
        """Maximum running requests, each with its rows in every pass."""
        if self.prompts != MIXED:
            return self.max_batch
        return min(self.max_batch, self.budget * self.groups * self.stages // self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Requests of independent loads; arrays of shape ``(loads, requests)``, in the order of their arrival.

    Attributes:
        arrival: Time of arrival; in a closed loop of the first request of each user, and infinite for the others.
        prompt, cached, output: Tokens of prompts, of cached prefixes among these, and of outputs.
        held: Bytes of the KV cache that a request needs to start.
        growth: Bytes that each further token takes; 0 if they are reserved at the start, as with a prefill pool.
        closed: True if a user sends the next request when the last one is answered.
        think: Time from a response to the next request of a user.
        overhead: Time from the arrival of a request until the scheduler sees it.
        pool: Prefill of prompts by other processors, if any.
    """

    arrival: Seconds
    prompt: Count
    cached: Count
    output: Count
    held: Bytes
    growth: Bytes
    closed: bool = False
    think: float = 0.0
    overhead: float = 0.0
    pool: "PoolTimes | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTimes:
    """Prefill by other processors, in the order of arrival.

    Attributes:
        servers: Prompts that are computed at once.
        busy (shape (loads, requests)): Time that a server takes per prompt.
        latency (shape (loads, requests)): Time from the start of a prompt until its KV cache has been transferred.
    """

    servers: int
    busy: Seconds
    latency: Seconds


class Timeline(NamedTuple):
    """Times of requests, of shape ``(loads, requests)``; `preempted` counts preemptions of each load.

    ``arrival``, ``first`` and ``end`` are the times of arrival, of the first token and of the last token.
    """

    arrival: Seconds
    first: Seconds
    end: Seconds
    preempted: Count


def replay(
    table: PassTable,
    rules: Rules,
    loads: Loads,
    progress: Callable[[float], None] = lambda _: None,
) -> Timeline:
    """Return the times of all requests.

    Args:
        table: Times of passes.
        rules: Rules of the scheduler.
        loads: The requests. Each has to fit into the KV cache on its own.
        progress: Called with the share of the requests that have been answered.
    """
    return _Scheduler(table, rules, loads, progress).run()


class _Scheduler:
    """State of all loads; a row of each array is a load, `at` its number."""

    def __init__(
        self, table: PassTable, rules: Rules, loads: Loads, progress: Callable[[float], None]
    ):
        self.table, self.rules, self.loads, self.progress = table, rules, loads, progress
        count, requests = loads.prompt.shape
        self.requests = requests
        self.result = Timeline(
            loads.arrival + 0.0,
            np.full((count, requests), np.nan),
            np.full((count, requests), np.nan),
            np.zeros(count),
        )
        slots = int(min(rules.most, requests))
        self.columns = _start(loads, slots)
        if loads.pool is not None:
            self.columns["servers"] = np.zeros((count, loads.pool.servers))
        known = np.isfinite(loads.arrival).sum(axis=1)
        self.columns["issued"] = known
        for number in range(int(known.max(initial=0))):
            rows = np.flatnonzero(known > number)
            self._send(rows, np.full(len(rows), number), loads.arrival[rows, number])
        self.answered, self.total = 0, count * requests

    def __getattr__(self, name: str) -> Array:
        """Return a column of the state."""
        columns: dict[str, Array] = object.__getattribute__(self, "columns")
        if name not in columns:
            raise AttributeError(name)
        return columns[name]

    def run(self) -> Timeline:
        """Replay all loads until every request is answered."""
        while len(self.at):
            self._skip_idle()
            blocked = self._preempt()
            taken = self._take_prompts(blocked)
            self._pass(taken, blocked)
            self._complete()
            self._drop_finished()
        return self.result

    def _drop_finished(self) -> None:
        """Drop loads whose requests are all answered."""
        left = self.ended < self.requests
        if (count := np.count_nonzero(left)) < _SPARSE * len(left) or not count:
            self.columns = {name: column[left] for name, column in self.columns.items()}
            self.progress(self.answered / self.total)

    def _send(self, rows: Array, numbers: Array, times: Seconds) -> None:
        """Let requests arrive: from then on they wait for the scheduler, or first for the prefill pool."""
        at, ready = self.at[rows], times + self.loads.overhead
        self.result.arrival[at, numbers] = times
        if (pool := self.loads.pool) is not None:
            free = np.argmin(self.servers[rows], axis=1)
            begin = np.maximum(ready, self.servers[rows, free])
            self.servers[rows, free] = begin + pool.busy[at, numbers]
            ready = begin + pool.latency[at, numbers]
            self.result.first[at, numbers] = ready
            # caches are handed over in the order of arrival
            before = np.where(numbers > 0, self.ready[rows, numbers - 1], 0.0)
            ready = np.maximum(ready, before)
        self.ready[rows, numbers] = ready

    def _skip_idle(self) -> None:
        """Advance idle replicas to their next request."""
        head = self.ready[np.arange(len(self.at)), self.next]
        idle = (self.nfree == self.free.shape[1]) & (self.waiting == 0) & (head > self.time)
        idle &= np.isfinite(head)
        self.time[idle] = head[idle]

    # preemption

    def _preempt(self) -> Array:
        """Preempt the requests that started last until the next pass fits; return the mask of these loads."""
        blocked = np.zeros(len(self.at), bool)
        while True:
            full = (self.held + self.grows > self.rules.capacity) & (self.grows > 0)
            rows = np.flatnonzero(full & (self.nfree + 1 < self.free.shape[1]))
            if not len(rows):
                return blocked
            blocked[rows] = True
            slots = np.argmax(self.entered[rows], axis=1)
            numbers = self.request[rows, slots]
            decoding = np.isfinite(self.finish[rows, slots])
            made = np.where(decoding, self.generated(rows, slots), self.made[rows, numbers])
            self.made[rows, numbers] = made
            self._release(rows, slots)
            self.partial[rows[~decoding]] = -1
            self.returned[rows, numbers] = True
            self.waiting[rows] += 1
            self.result.preempted[self.at[rows]] += 1

    def generated(self, rows: Array, slots: Array) -> Count:
        """Return the tokens that decoded sequences have generated."""
        passes = self.passes[rows] - self.begun[rows, slots]
        return self.first_made[rows, slots] + passes * self.rules.per_pass

    def _release(self, rows: Array, slots: Array) -> None:
        """Free the slots of requests, at most one per row, with their KV caches."""
        decoding = np.isfinite(self.finish[rows, slots])
        passes = np.where(decoding, self.passes[rows] - self.begun[rows, slots], 0.0)
        numbers = self.request[rows, slots]
        made = np.where(decoding, self.generated(rows, slots), 0.0)
        length = self.loads.prompt[self.at[rows], numbers] + made
        self.running[rows] -= decoding
        self.length[rows] -= np.where(decoding, length, 0.0)
        grows = self.growth[rows, slots]
        self.grows[rows] -= np.where(decoding, grows, 0.0)
        self.held[rows] -= self.bytes[rows, slots] + grows * passes
        self.finish[rows, slots], self.entered[rows, slots] = np.inf, -1
        self.free[rows, self.nfree[rows]] = slots
        self.nfree[rows] += 1

    # prompts

    def _take_prompts(self, blocked: Array) -> "_Taken":
        """Return the prompts of the next pass of each load, and let their requests start."""
        rules, count = self.rules, len(self.at)
        left = np.full(count, np.inf)
        if rules.prompts == MIXED:
            left = rules.budget * rules.groups - self.running * rules.rows / rules.stages
        taken = _Taken.of(left, count)
        rows = np.flatnonzero((self.partial >= 0) & (left >= 1))
        if len(rows):
            self._compute(rows, self.partial[rows], taken)
        # a pass with a preemption, or with a prompt that it cuts, admits no further request
        closed = blocked | (self.partial >= 0)
        while len(rows := np.flatnonzero(self._admits(taken, closed))):
            self._admit(rows, taken)
            closed |= self.partial >= 0
        return taken

    def _admits(self, taken: "_Taken", closed: Array) -> Array:
        """Return the mask of loads whose first waiting request starts in this pass."""
        every = np.arange(len(self.at))
        can = ~closed & (self.nfree > 0) & (taken.left >= 1)
        if self.rules.prompts == SEPARATE:
            can &= taken.prompts < self.rules.groups
        if not can.any():
            return can
        head = self._head()
        can &= (self.ready[every, head] <= self.time) | (self.waiting > 0)
        if not can.any():
            return can
        number = np.minimum(head, self.requests - 1)
        return can & (self.held + self._needed(every, number) <= self.rules.capacity)

    def _head(self) -> Count:
        """Return the number of the first waiting request: one that was preempted, or the next one."""
        if not self.waiting.any():
            return self.next
        return np.where(self.waiting > 0, np.argmax(self.returned, axis=1), self.next)

    def _needed(self, rows: Array, numbers: Array) -> Bytes:
        """Return the bytes that requests need to start, with the tokens generated before a preemption."""
        at = self.at[rows]
        made = self.made[rows, numbers]
        return self.loads.held[at, numbers] + made * self.loads.growth[at, numbers]

    def _admit(self, rows: Array, taken: "_Taken") -> None:
        """Start the first waiting requests of some loads."""
        numbers = self._head()[rows]
        again = self.waiting[rows] > 0
        self.returned[rows[again], numbers[again]] = False
        self.waiting[rows[again]] -= 1
        self.next[rows[~again]] += 1
        self.nfree[rows] -= 1
        slots = self.free[rows, self.nfree[rows]]
        needed, at = self._needed(rows, numbers), self.at[rows]
        self.request[rows, slots] = numbers
        self.bytes[rows, slots] = needed
        self.growth[rows, slots] = self.loads.growth[at, numbers] * self.rules.per_pass
        self.held[rows] += needed
        self.entered[rows, slots] = self.order[rows]
        self.order[rows] += 1
        if self.rules.prompts == REMOTE:
            self._decode(rows, slots, self.passes[rows])
            self._add_started(rows, slots)
            return
        cached = self.loads.cached[at, numbers]
        self.done[rows] = cached
        self.rest[rows] = self.loads.prompt[at, numbers] - cached + self.made[rows, numbers]
        self._compute(rows, slots, taken)

    def _compute(self, rows: Array, slots: Array, taken: "_Taken") -> None:
        """Compute as many tokens of prompts as the pass has left; the rest remains for the next pass."""
        most = taken.left[rows]
        if self.rules.groups > 1 and self.rules.prompts == MIXED:
            # a prompt is computed by a single group
            used = self.running[rows] * self.rules.rows / (self.rules.stages * self.rules.groups)
            most = np.minimum(most, self.rules.budget - used)
        chunk = np.minimum(self.rest[rows], np.maximum(1.0, np.floor(most)))
        taken.tokens[rows] += chunk
        taken.keys[rows] += chunk * (self.done[rows] + (chunk + 1) / 2)
        taken.prompts[rows] += 1
        taken.left[rows] -= chunk
        self.done[rows] += chunk
        self.rest[rows] -= chunk
        ends = self.rest[rows] <= 0
        self.partial[rows] = np.where(ends, -1, slots)
        rows, slots = rows[ends], slots[ends]
        mixed = self.rules.prompts == MIXED
        self._decode(rows, slots, self.passes[rows] + mixed)
        taken.started.append((rows, slots))

    def _decode(self, rows: Array, slots: Array, begun: Count) -> None:
        """Note the pass in which sequences end, whose prefill generates a token."""
        numbers = self.request[rows, slots]
        made = self.made[rows, numbers] + 1
        left = self.loads.output[self.at[rows], numbers] - made
        self.first_made[rows, slots] = made
        self.begun[rows, slots] = begun
        steps = np.ceil(left / self.rules.per_pass - _TOLERANCE)
        self.finish[rows, slots] = begun + np.maximum(0.0, steps)

    def _add_started(self, rows: Array, slots: Array) -> None:
        """Add sequences whose prompts are computed to those that are decoded, at most one per row."""
        numbers = self.request[rows, slots]
        prompt = self.loads.prompt[self.at[rows], numbers]
        self.running[rows] += 1
        self.length[rows] += prompt + self.first_made[rows, slots]
        self.grows[rows] += self.growth[rows, slots]

    # passes

    def _pass(self, taken: "_Taken", blocked: Array) -> None:
        """Advance every load by one pass with prompts, or by passes that only decode."""
        mixed = taken.tokens > 0
        if mixed.any():
            self._mixed_pass(np.flatnonzero(mixed), taken)
        rows = np.flatnonzero(~mixed & (self.running > 0))
        if len(rows):
            self._decode_passes(rows, taken, blocked)
        for rows, slots in taken.started:
            self._add_started(rows, slots)
            numbers, at = self.request[rows, slots], self.at[rows]
            new = self.made[rows, numbers] == 0
            self.result.first[at[new], numbers[new]] = self.time[rows[new]]

    def _mixed_pass(self, rows: Array, taken: "_Taken") -> None:
        """Advance loads by a pass with prompts, which also decodes unless prompts have separate passes."""
        decodes = self.rules.prompts == MIXED
        running = self.running[rows] * decodes
        context = self.length[rows] / np.maximum(self.running[rows], 1)
        tokens = taken.tokens[rows]
        self.time[rows] += self.table.mixed(
            running,
            np.maximum(1.0, context),
            tokens,
            taken.keys[rows] / tokens,
            taken.prompts[rows],
        )
        if decodes:
            self._decoded(rows, np.ones(len(rows)))

    def _decode_passes(self, rows: Array, taken: "_Taken", blocked: Array) -> None:
        """Advance loads by passes that only decode, until one of them changes the batch."""
        running, step = self.running[rows], self.rules.per_pass
        context = self.length[rows] / running
        cell = self.table.cell(context)
        low, slope = self.table.decode_line(running, cell)
        first = low + slope * (context - self.table.contexts[cell])
        rise = slope * step
        passes = np.min(self.finish[rows], axis=1) - self.passes[rows]
        # the time is linear in the context up to the next tabulated one
        within = np.floor((self.table.contexts[cell + 1] - context) / step) + 1
        passes = np.minimum(passes, np.maximum(1.0, within))
        passes = np.where(blocked[rows], np.minimum(passes, 1.0), passes)
        grows = self.grows[rows]
        if grows.any():
            space = np.maximum(self.rules.capacity - self.held[rows], 0.0)
            fits = np.where(grows > 0, space // np.where(grows > 0, grows, 1.0), np.inf)
            passes = np.minimum(passes, np.maximum(1.0, fits))
        passes = np.minimum(passes, self._until_arrival(rows, first, rise))
        self.time[rows] += passes * first + rise * passes * (passes - 1) / 2
        self._decoded(rows, passes)

    def _until_arrival(self, rows: Array, first: Seconds, rise: Seconds) -> Count:
        """Return the passes until the next request has arrived; infinite if it could not start."""
        wait = self.ready[rows, self.next[rows]] - self.time[rows]
        counts = np.isfinite(wait) & (wait > 0) & (self.nfree[rows] > 0)
        wait = np.where(counts, wait, 1.0)
        # k passes take first k + rise k (k - 1) / 2
        linear = first - rise / 2
        root = 2 * wait / (linear + np.sqrt(np.maximum(0.0, linear**2 + 2 * rise * wait)))
        return np.where(counts, np.maximum(1.0, np.ceil(root)), np.inf)

    def _decoded(self, rows: Array, passes: Count) -> None:
        """Note that loads have decoded all running sequences in a number of passes."""
        self.passes[rows] += passes
        self.length[rows] += passes * self.running[rows] * self.rules.per_pass
        self.held[rows] += passes * self.grows[rows]

    def _complete(self) -> None:
        """End the sequences that have all their tokens; in a closed loop, their users send the next requests."""
        rows, slots = np.nonzero(self.finish <= self.passes[:, None])
        if not len(rows):
            return
        numbers = self.request[rows, slots]
        times = self.time[rows]
        self.result.end[self.at[rows], numbers] = times
        counts = np.bincount(rows, minlength=len(self.at))
        rank = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
        for number in range(int(rank.max()) + 1):
            some = rank == number
            self._release(rows[some], slots[some])
            if self.loads.closed:
                self._send_next(rows[some])
        self.ended[:] += counts
        self.answered += len(rows)
        # sums lose their rounding errors when a replica is empty
        empty = np.flatnonzero(self.nfree == self.free.shape[1])
        for name in ("length", "held", "grows"):
            self.columns[name][empty] = 0.0

    def _send_next(self, rows: Array) -> None:
        """Let users whose request was answered send their next one, if any is left."""
        times = self.time[rows] + self.loads.think
        numbers = np.minimum(self.issued[rows], self.requests - 1)
        left = self.issued[rows] < self.requests
        if self.loads.pool is None:
            # users who start later find no request left if the others are faster
            left |= self.ready[rows, numbers] > times + self.loads.overhead
        rows, numbers, times = rows[left], numbers[left], times[left]
        self.issued[rows] = numbers + 1
        if not len(rows):
            return
        self._send(rows, numbers, times)
        late = rows[self.ready[rows, numbers - 1] > self.ready[rows, numbers]]
        if len(late):
            # the first requests of users who start later are still to come
            self.ready[late] = np.sort(self.ready[late], axis=1)
            self.result.arrival[self.at[late]] = np.sort(self.result.arrival[self.at[late]], axis=1)


class _Taken(NamedTuple):
    """Prompts of the next passes: columns by load, and the requests whose prompts end in them."""

    left: Count
    tokens: Count
    keys: Count
    prompts: Count
    started: list[tuple[Array, Array]]

    @classmethod
    def of(cls, left: Count, count: int) -> "_Taken":
        """Return passes without prompts, which have `left` tokens left for them."""
        return cls(left, np.zeros(count), np.zeros(count), np.zeros(count), [])


def _start(loads: Loads, slots: int) -> dict[str, Array]:
    """Return the columns of loads of which no request has arrived.

    `at` is the number of a load, `next` of its next request, `returned` and `waiting` are preempted requests and their
    number, `made` tokens generated before a preemption, `free` a stack of `nfree` free slots, `running` and `length`
    the decoded sequences and the sum of their contexts, `held` and `grows` bytes of the cache and their growth per
    pass. `partial` is the slot of a cut prompt with `rest` tokens after the `done` ones. `request` to `entered`
    describe slots.
    """
    count, requests = loads.prompt.shape
    nothing, shape = np.zeros(count), (count, slots)
    return {
        "at": np.arange(count),
        "time": nothing.copy(),
        "passes": nothing.copy(),
        "next": np.zeros(count, np.int64),
        "ended": np.zeros(count, np.int64),
        "order": np.zeros(count, np.int64),
        "waiting": np.zeros(count, np.int64),
        "running": np.zeros(count, np.int64),
        "length": nothing.copy(),
        "held": nothing.copy(),
        "grows": nothing.copy(),
        "partial": np.full(count, -1),
        "rest": nothing.copy(),
        "done": nothing.copy(),
        "nfree": np.full(count, slots),
        "free": np.tile(np.arange(slots), (count, 1)),
        # a sentinel after the last request never arrives
        "ready": np.full((count, requests + 1), np.inf),
        "made": np.zeros((count, requests)),
        "returned": np.zeros((count, requests), bool),
        "request": np.zeros(shape, np.int64),
        "finish": np.full(shape, np.inf),
        "begun": np.zeros(shape),
        "first_made": np.zeros(shape),
        "bytes": np.zeros(shape),
        "growth": np.zeros(shape),
        "entered": np.full(shape, -1),
    }
