"""An event simulation of a scheduler in plain Python, one request object and one pass at a time."""

import heapq
import math
from dataclasses import dataclass, field


@dataclass
class Job:
    """A request, with its progress."""

    prompt: float
    cached: float
    output: float
    held: float
    growth: float
    busy: float = 0.0
    latency: float = 0.0
    arrival: float = math.inf
    ready: float = math.inf
    first: float = math.nan
    end: float = math.nan
    made: float = 0.0
    computed: float = 0.0
    bytes: float = 0.0

    @property
    def to_compute(self) -> float:
        return self.prompt + self.made_before - self.computed

    made_before: float = 0.0
    decoding: bool = False


@dataclass
class Machine:
    """A replica with one load, and a function that times a pass: (sequences, context, tokens, keys, prompts)."""

    rules: object
    time_of: object
    jobs: list
    arrivals: list
    closed: bool = False
    think: float = 0.0
    overhead: float = 0.0
    servers: list = field(default_factory=list)
    now: float = 0.0
    preempted: int = 0

    def run(self):
        """Serve all requests."""
        self.coming = list(self.arrivals)  # a heap of times at which requests are sent
        heapq.heapify(self.coming)
        self.fresh, self.queue, self.running = list(self.jobs), [], []
        self.handed_over = 0.0
        answered = 0
        while answered < len(self.jobs):
            self.receive()
            if not self.running and not (self.queue and self.queue[0].ready <= self.now):
                self.now = self.queue[0].ready if self.queue else self.coming[0] + self.overhead
                if self.servers or not self.queue:
                    self.receive()
                continue
            answered += self.one_pass()
        return self

    def receive(self):
        """Turn times in the heap into requests, in order."""
        early = math.inf if self.servers else self.now
        while self.coming and self.fresh and self.coming[0] + self.overhead <= early:
            job = self.fresh.pop(0)
            job.arrival = heapq.heappop(self.coming)
            job.ready = job.arrival + self.overhead
            if self.servers:
                free = heapq.heappop(self.servers)
                begin = max(job.ready, free)
                heapq.heappush(self.servers, begin + job.busy)
                job.first = begin + job.latency
                job.ready = self.handed_over = max(job.first, self.handed_over)
            self.queue.append(job)

    def grown(self):
        return sum(job.growth * self.rules.per_pass for job in self.running if job.decoding)

    def taken(self):
        return sum(job.bytes for job in self.running)

    def preempt(self):
        """Return requests that started last to the queue while the next tokens do not fit."""
        before = self.preempted
        while (
            self.grown()
            and self.taken() + self.grown() > self.rules.capacity
            and len(self.running) > 1
        ):
            job = self.running.pop()
            job.decoding, job.made_before, job.bytes = False, job.made, 0.0
            self.queue.insert(0, job)
            self.preempted += 1
        return self.preempted > before

    def admit(self, job):
        self.queue.pop(0)
        self.running.append(job)
        job.computed = job.cached
        job.bytes = job.held + job.made * job.growth

    def fits(self):
        if not self.queue or len(self.running) >= self.rules.most:
            return False
        job = self.queue[0]
        if job.ready > self.now:
            return False
        return self.taken() + job.held + job.made * job.growth <= self.rules.capacity

    def one_pass(self):
        """Run a pass; return the number of requests that it answers."""
        rules, thrown = self.rules, self.preempt()
        decoded = [job for job in self.running if job.decoding]
        chunks = self.chunks(decoded, thrown)
        if chunks and rules.prompts == "separate":
            decoded = []
        if ended := self.finish(decoded):  # prefill elsewhere has generated the only token
            return ended
        self.now += self.duration(decoded, chunks)
        for job in decoded:
            job.made += rules.per_pass
            job.bytes += job.growth * rules.per_pass
        for job, _, _ in chunks:
            if job.to_compute <= 0:
                job.made, job.decoding = job.made_before + 1, True
                if math.isnan(job.first):
                    job.first = self.now
        return self.finish([job for job in self.running if job.decoding])

    def chunks(self, decoded, thrown):
        """Return the prompts of a pass; without prompts to compute, add admitted requests to the decoded ones."""
        rules, chunks, left, cut = self.rules, [], math.inf, thrown
        if rules.prompts == "mixed":
            left = rules.budget * rules.groups - len(decoded) * rules.rows / rules.stages
        for job in [one for one in self.running if not one.decoding]:
            if left < 1:
                return chunks
            left, unfinished = self.chunk(job, left, len(decoded), chunks)
            cut = unfinished or thrown
        while not cut and left >= 1 and self.fits():
            if rules.prompts == "separate" and len(chunks) >= rules.groups:
                break
            job = self.queue[0]
            self.admit(job)
            if rules.prompts == "remote":
                job.decoding, job.made = True, 1.0
                decoded.append(job)
            else:
                left, cut = self.chunk(job, left, len(decoded), chunks)
        return chunks

    def duration(self, decoded, chunks):
        context = 1.0
        if decoded:
            context = sum(job.prompt + job.made for job in decoded) / len(decoded)
        tokens = sum(size for _, size, _ in chunks)
        keys = sum(sum(range(int(seen) + 1, int(seen + size) + 1)) for _, size, seen in chunks)
        return self.time_of(len(decoded), context, tokens, keys, len(chunks))

    def chunk(self, job, left, decoding, chunks):
        """Compute a part of a prompt; return the tokens left, and whether the prompt was cut."""
        rules, most = self.rules, left
        if rules.groups > 1 and rules.prompts == "mixed":
            most = min(most, rules.budget - decoding * rules.rows / (rules.stages * rules.groups))
        size = min(job.to_compute, max(1, math.floor(most)) if most < math.inf else math.inf)
        chunks.append((job, size, job.computed))
        job.computed += size
        return left - size, job.to_compute > 0

    def finish(self, jobs):
        ended = [job for job in jobs if job.made >= job.output - 1e-6]
        for job in ended:
            job.end = self.now
            self.running.remove(job)
            if self.closed:
                heapq.heappush(self.coming, self.now + self.think)
        return len(ended)
