"""ZB-H2, ZBV, DualPipe and DualPipeV, pass by pass, as their papers list what a rank does.

A part is what a rank has of the model in one piece; parts are numbered along the model. A rank of ZB-H2 has one,
of the others two: `way` 0 is that nearer to the rank's own end.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

FOLDED = ("zbv", "dualpipe", "dualpipev")
SIMULATED = ("zb_h2", *FOLDED)


@dataclass
class Action:
    """One entry of a rank's list: passes done at once, each its kind, part and microbatch."""

    passes: list[tuple[str, int, int]]

    @property
    def is_pair(self) -> bool:
        return len(self.passes) > 1


class Lists:
    """The lists of all ranks; `parts` of the ranks are numbers along the model."""

    def __init__(self, schedule: str, ranks: int, microbatches: int) -> None:
        self.schedule, self.ranks, self.microbatches = schedule, ranks, microbatches
        turns = schedule in ("zbv", "dualpipev")
        self.parts = 2 * ranks if turns else ranks
        self.of_rank = [self._list(rank) for rank in range(ranks)]

    def _list(self, rank: int) -> list[Action]:
        ranks, count = self.ranks, self.microbatches
        self.rank, self.actions = rank, list[Action]()
        self.waiting: deque[tuple[int, int]] = deque()  # gradients of weights
        self.next = {(kind, part): 0 for kind in "FB" for part in range(self.parts)}
        if self.schedule == "zb_h2":
            self._fill(rank, ranks, count)
        elif self.schedule == "zbv":
            self._v(rank, ranks, max(count, 2 * ranks - 1))
        elif self.schedule == "dualpipev":
            self._both(rank, 2 * ranks - 1 - rank, rank, ranks, count)
        else:
            near, far = sorted((rank, ranks - 1 - rank))  # of either direction the nearer begins
            self._both(near, far, near, ranks // 2, count // 2)
        return self.actions

    def _microbatch(self, kind: str, part: int) -> int:
        number = self.next[kind, part]
        self.next[kind, part] += 1
        if self.schedule == "dualpipe" and part != self.rank:
            number += self.microbatches // 2  # that came in at the other end
        return number

    def _do(self, *passes: tuple[str, int]) -> None:
        """Add an entry: of each pass F, B (both gradients) or I (of inputs), and its part."""
        done = []
        for kind, part in passes:
            microbatch = self._microbatch("F" if kind == "F" else "B", part)
            if microbatch < self.microbatches:
                done.append((kind, part, microbatch))
                if kind == "I":
                    self.waiting.append((part, microbatch))
        if done:
            self.actions.append(Action(done))

    def _weights(self) -> None:
        if self.waiting:
            self.actions.append(Action([("W", *self.waiting.popleft())]))

    def _fill(self, rank: int, ranks: int, count: int) -> None:
        """ZB-H2: 2 (p - i) - 1 forward passes, of which the last comes with the first backward pass."""
        first = 2 * (ranks - rank) - 1
        for _ in range(min(first - 1, count)):
            self._do(("F", rank))
        for number in range(count):
            if number + first <= count:
                self._do(("F", rank))
            self._do(("I", rank))
            if len(self.waiting) > 2 * rank:
                self._weights()
        while self.waiting:
            self._weights()

    def _v(self, rank: int, ranks: int, count: int) -> None:
        """ZBV: each rank goes forward until its second part gets something, then one of each kind in turn."""
        here, back = rank, 2 * ranks - 1 - rank
        forward = {here: 0, back: 0}

        def ahead(part: int) -> None:
            self._do(("F", part))
            forward[part] += 1

        def gradients(part: int) -> None:
            before = len(self.waiting)
            self._do(("I", part))
            if len(self.waiting) > before:
                self._weights()

        for _ in range(2 * (ranks - rank) - 1):
            ahead(here)
        for _ in range(rank):
            ahead(back)
            ahead(here)
        for _ in range(ranks - rank):
            ahead(back)
            gradients(back)
        while forward[back] < forward[here] or forward[here] < count:
            if forward[here] < count:
                ahead(here)
            gradients(here)
            ahead(back)
            gradients(back)
        for _ in range(rank):
            self._do(("I", here))
            self._do(("I", back))
        for _ in range(ranks - rank):
            self._do(("I", here))
            self._weights()
        while self.waiting:
            self._weights()

    def _both(self, one: int, other: int, near: int, half: int, count: int) -> None:
        """DualPipe, eight steps: `one` is the part of the direction that gets here first."""
        below = half - 1 - near
        for _ in range(2 * below):
            self._do(("F", one))
        for _ in range(near + 1):
            self._do(("F", one))
            self._do(("F", other))
        for _ in range(below):
            self._do(("I", other))
            self._weights()
            self._do(("F", other))
        for number in range(count - 2 * half + near + 1):
            if number == 0 and below == 0:
                self._do(("F", one))
                self._do(("B", other))
            else:
                self._do(("F", one), ("B", other))
            self._do(("F", other), ("B", one))
        for _ in range(below):
            self._do(("B", other))
            self._do(("F", other), ("B", one))
        for number in range(2 * (near + 1)):
            self._do(("I" if number > near else "B", one if number % 2 else other))
        for _ in range(below):
            self._weights()
            self._do(("I", one))
        for _ in range(near + 1):
            self._weights()

    # -- what follows from them -------------------------------------------------------------------

    def pairs(self, rank: int) -> int:
        """Return how many entries of a rank are pairs."""
        return sum(action.is_pair for action in self.of_rank[rank])

    def most_held(self, rank: int, weight_of: dict[int, float]) -> float:
        """Return the most that waits for gradients of weights, each part with a weight."""
        held = most = 0.0
        for action in self.of_rank[rank]:
            held += sum(weight_of[part] for kind, part, _ in action.passes if kind == "F")
            most = max(most, held)
            held -= sum(weight_of[part] for kind, part, _ in action.passes if kind in "BW")
        return most

    def time(
        self,
        seconds: Sequence[dict[str, list[float]]],
        saved: Sequence[float],
        delay: float,
    ) -> float:
        """Execute the lists: `seconds` of F, B and W of each rank's parts, `saved` by each of its pairs.

        Returns the time from the first pass to the last, or of the rank with the longest from its own first to its own
        last, where ranks go on by themselves.
        """
        done: dict[tuple[str, int, int, int], float] = {}  # by kind, part, microbatch and rank
        begin, end = [-1.0] * self.ranks, [0.0] * self.ranks
        at = [0] * self.ranks
        while any(place < len(own) for place, own in zip(at, self.of_rank, strict=True)):
            before = list(at)
            for rank, own in enumerate(self.of_rank):
                while at[rank] < len(own):
                    ready = self._ready(own[at[rank]], rank, done, delay)
                    if ready is None:
                        break
                    action = own[at[rank]]
                    start = max(end[rank], ready)
                    end[rank] = start - (saved[rank] if action.is_pair else 0)
                    for kind, part, _ in action.passes:
                        way = 0 if part == rank else 1
                        times = seconds[rank]
                        whole = times["B" if kind == "I" else kind][way]
                        end[rank] += whole - (times["W"][way] if kind == "I" else 0)
                    for kind, part, microbatch in action.passes:
                        done["B" if kind == "I" else kind, part, microbatch, rank] = end[rank]
                    begin[rank] = start if begin[rank] < 0 else begin[rank]
                    at[rank] += 1
            assert at != before, "ranks wait for each other"
        if self.schedule in ("zb_h2", "zbv"):
            return max(last - first for first, last in zip(begin, end, strict=True))
        return max(end)

    def _ready(
        self,
        action: Action,
        rank: int,
        done: dict[tuple[str, int, int, int], float],
        delay: float,
    ) -> float | None:
        """Return when what passes need is there; None if it is not yet."""
        latest = 0.0
        for kind, part, microbatch in action.passes:
            if kind == "W":
                continue
            from_part = part - 1 if kind == "F" else part + 1
            if not 0 <= from_part < self.parts:
                continue
            source = self._rank_of(from_part, microbatch)
            there = done.get(("F" if kind == "F" else "B", from_part, microbatch, source))
            if there is None:
                return None
            latest = max(latest, there + (delay if source != rank else 0))
        return latest

    def _rank_of(self, part: int, microbatch: int) -> int:
        """Return which rank has a part, for a microbatch."""
        if self.schedule == "dualpipe":
            return part if microbatch < self.microbatches // 2 else self.ranks - 1 - part
        return part if part < self.ranks else self.parts - 1 - part


@lru_cache(32)
def lists_of(schedule: str, ranks: int, microbatches: int) -> Lists:
    """Return the lists of a schedule, the same for all executions."""
    return Lists(schedule, ranks, microbatches)


class Interleaved:
    """The lists of ranks that have several parts each and take one forward and one backward pass in turn.

    Microbatches go in groups of as many as ranks, each group through one part of a rank after the other; a short last
    group keeps its places.
    """

    def __init__(self, ranks: int, parts: int, microbatches: int, more: int) -> None:
        self.ranks, self.parts, self.microbatches = ranks, parts, microbatches
        groups = range(0, microbatches, ranks)
        places = [
            (part, begin + number)
            for begin in groups
            for part in range(parts)
            for number in range(ranks)
        ]
        # Kind, part and microbatch of each pass, and the part of a forward pass that a backward pass follows in turn.
        self.of_rank: list[list[tuple[str, int, int, int | None]]] = []
        for rank in range(ranks):
            first = 2 * (ranks - 1 - rank) + (parts - 1) * ranks + more
            own: list[tuple[str, int, int, int | None]]
            own = [("F", part, number, None) for part, number in places[:first]]
            for step, (part, number) in enumerate(places):
                ahead = None
                if step + first < len(places):
                    own.append(("F", *places[step + first], None))
                    ahead = places[step + first]
                paired = ahead[0] if ahead is not None and ahead[1] < microbatches else None
                own.append(("B", parts - 1 - part, number, paired))
            self.of_rank.append([one for one in own if one[2] < microbatches])

    def most_held(self, rank: int, blocks: Sequence[int]) -> int:
        """Return the most blocks of which a rank holds activations."""
        held = most = 0
        for kind, part, *_ in self.of_rank[rank]:
            held += blocks[part] if kind == "F" else 0
            most = max(most, held)
            held -= blocks[part] if kind == "B" else 0
        return most

    def time(
        self,
        seconds: Sequence[dict[str, list[float]]],
        saved: Sequence[list[float]] | None,
        *,
        training: bool,
    ) -> float:
        """Execute the lists: `seconds` of F and B of each rank's parts, `saved` by one that is in a pair."""
        done: dict[tuple[str, int, int], float] = {}  # by kind, place in the model and microbatch
        free, at = [0.0] * self.ranks, [0] * self.ranks
        last = self.ranks * self.parts - 1
        moved = True
        while moved:
            moved = False
            for rank, every in enumerate(self.of_rank):
                own = every if training else [one for one in every if one[0] == "F"]
                while at[rank] < len(own):
                    kind, part, microbatch, ahead = own[at[rank]]
                    place = part * self.ranks + rank
                    source = place - 1 if kind == "F" else place + 1
                    needed = (kind, source, microbatch)
                    if 0 <= source <= last and needed not in done:
                        break
                    time = seconds[rank][kind][part]
                    if saved is not None and ahead is not None:
                        time -= min(saved[rank][part], saved[rank][ahead])
                    free[rank] = max(free[rank], done.get(needed, 0.0)) + time
                    done[kind, place, microbatch] = free[rank]
                    at[rank] += 1
                    moved = True
        assert len(done) == (last + 1) * self.microbatches * (2 if training else 1)
        return max(free)
