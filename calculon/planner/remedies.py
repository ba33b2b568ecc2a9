"""What would make an execution of a space fit: changes that a search has tried, each with the plan that it found."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from typing import Any

from calculon.estimate import Estimate
from calculon.frozen import dataclass
from calculon.planner.nearest_miss import Miss, least, with_memory
from calculon.plan.divisors import divisors
from calculon.search.candidates import EXTENSIONS
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.space import Space
from calculon.search.where import Condition
from calculon.spec.execution import PUBLISHED
from calculon.units import GIB

BEST = Objective.parse("sample_rate")

PRODUCTS = (16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 180, 192, 256, 288)
"""GiB of tier-1 memory that processors are sold with."""

MOST_TIMES = 1024
"""Times the processors that are tried at most."""

SECONDS, SECONDS_OF_COUNTS = 1.6, 0.8
"""Time from which on nothing further is tried, in all and for processor counts."""

MOST_OPTIONS = 3
"""Options that are tried together at most, and that are listed."""

_HALF = 0.5

THRIFTY: tuple[tuple[str, Any], ...] = (
    ("activation_recompute", "full"),
    ("attn_impl", "flash"),
    ("ce_impl", "fused"),
    ("zero_stage", "1"),
    ("zero_stage", "2"),
    ("zero_stage", "3"),
    ("zero_stage", "fsdp"),
    ("optimizer_offload", True),
    ("activations_offload", True),
    ("weight_offload", True),
    ("grad_dtype", "bfloat16"),
    ("optimizer_state_dtype", "bfloat16"),
)
"""Values of options that need less memory than others, those that change least first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change after which an execution fits.

    Attributes
    ----------
    kind : str
        ``memory``, ``processors``, ``options``, ``freed``, ``sequence`` or ``batch``.
    change : mapping
        What is changed, by name: ``mem1`` and ``mem2`` (bytes of capacity), ``num_procs``, ``batch_size``, or fields
        of an execution; a field that no longer is held at a value has None.
    found : Estimate
        The fastest execution that fits then, on the system that it fits on.
    """

    kind: str
    change: Mapping[str, Any]
    found: Estimate = field(repr=False)


Found = Callable[[Space], Estimate | None]


class Tries:
    """Searches of changed spaces, as long as there is time.

    Attributes
    ----------
    where : Condition or None
        Condition that executions meet.
    """

    def __init__(self, where: Condition | None = None, seconds: float = SECONDS):
        self.where, self._end = where, time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.perf_counter()

    def within(self, seconds: float) -> "Tries":
        """Return tries that end sooner."""
        return Tries(self.where, min(seconds, self.left))

    def best(self, space: Space) -> Estimate | None:
        """Return the fastest execution of a space; None where nothing fits, or no time is left."""
        if self.left < 0 or not space.units:
            return None
        found = run(space, Best(BEST, 1, self.where))
        return found[0] if len(found) else None


def remedies(space: Space, misses: Sequence[Miss], where: Condition | None) -> tuple[Remedy, ...]:
    """Return what would make an execution fit, by kind; the kinds that the nearest misses ask for are tried."""
    tries = Tries(where)
    found = [*_memory(space, misses, tries)]
    if misses:
        found += _options(space, tries)
    found += _freed(space, tries)
    found += _counts(space, tries.within(SECONDS_OF_COUNTS), nearby=not misses)
    if misses:
        found += _sequence(space, misses[0], tries)
    else:
        found += _batches(space, tries)
    return tuple(found)


def _memory(space: Space, misses: Sequence[Miss], tries: Tries) -> Iterator[Remedy]:
    """Yield the least memory that is enough, and the size of tier 1 that processors have."""
    for _, several in groupby(misses, key=lambda miss: miss.estimate.execution):
        needed = {miss.tier: miss.needed for miss in several}
        larger = with_memory(space.system, needed)
        change = {f"mem{tier}": getattr(larger, f"mem{tier}").capacity for tier in needed}
        if found := tries.best(replace(space, system=larger)):
            yield Remedy(kind="memory", change=change, found=found)
        sold = next((g * GIB for g in PRODUCTS if g * GIB >= larger.mem1.capacity), None)
        if tuple(needed) != (1,) or sold is None:
            continue
        product = replace(larger, mem1=replace(larger.mem1, capacity=sold))
        if found := tries.best(replace(space, system=product)):
            yield Remedy(kind="memory", change={"mem1": sold}, found=found)


def _counts(space: Space, tries: Tries, *, nearby: bool) -> Iterator[Remedy]:
    """Yield the next counts, below and above, where the count is what does not fit; else the next multiple."""
    count = space.num_procs
    powers = (2**k for k in range((count * MOST_TIMES).bit_length()))
    more = {count * 2**k for k in range(1, MOST_TIMES.bit_length())}
    more |= {power for power in powers if count < power <= count * MOST_TIMES}
    ways: list[Iterable[int]] = [sorted(more)]
    if nearby:
        ways = [range(count - 1, 0, -1), (*range(count + 1, 2 * count), *sorted(more))]
    for counts in ways:
        spaces = ((n, replace(space, num_procs=n)) for n in counts)
        yield from _first("processors", "num_procs", spaces, tries.within(tries.left / len(ways)))


def _batches(space: Space, tries: Tries) -> Iterator[Remedy]:
    """Yield the next batches, below and above, that some data-parallel degree divides."""
    batch = space.max_batch_size
    degrees = divisors(space.num_procs)
    below = {batch - (batch % d or d) for d in degrees} - {0}
    above = {batch + d - batch % d for d in degrees}
    for sizes in (sorted(below, reverse=True), sorted(above)):
        spaces = ((size, _with_batch(space, size)) for size in sizes)
        yield from _first("batch", "batch_size", spaces, tries)


def _with_batch(space: Space, batch: int) -> Space:
    """Return the space with another batch, held where the old one is."""
    held = {"batch_size": (batch,)} if "batch_size" in space.fix else {}
    return replace(space, max_batch_size=batch, fix={**space.fix, **held})


def _first(
    kind: str, name: str, spaces: Iterable[tuple[int, Space]], tries: Tries
) -> Iterator[Remedy]:
    """Yield the first of several spaces in which something fits."""
    for value, space in spaces:
        if tries.left < 0:
            return
        if found := tries.best(space):
            yield Remedy(kind=kind, change={name: value}, found=found)
            return


def _freed(space: Space, tries: Tries) -> Iterator[Remedy]:
    """Yield the fields that are held at a value, and that would do with another one."""
    for name in space.fix:
        if name == "batch_size":
            continue
        fix = {other: values for other, values in space.fix.items() if other != name}
        if found := tries.best(replace(space, fix=fix)):
            yield Remedy(kind="freed", change={name: None}, found=found)


def _options(space: Space, tries: Tries) -> Iterator[Remedy]:
    """Yield options that the framework has and the search does not try: each alone, or a few that do together."""
    left = [one for one in THRIFTY if _untried(space, *one)]
    chosen: dict[str, Any] = {}
    while left and len(chosen) < MOST_OPTIONS and tries.left > 0:
        needs: list[tuple[float, tuple[str, Any]]] = []
        enough = []
        for name, value in left:
            if tries.left < 0:
                break
            changed = _with_options(space, {**chosen, name: value})
            lowest = least(changed, 1, tries.where)
            needed = float("inf") if lowest is None else lowest.stats["proc_mem_tier1_cap_req"]
            needs.append((needed or 0.0, (name, value)))
            if (needed or 0.0) <= space.system.usable[0] and (found := tries.best(changed)):
                enough.append(Remedy(kind="options", change={**chosen, name: value}, found=found))
        if enough or not needs:
            yield from sorted(enough, key=_seconds)[:MOST_OPTIONS]
            return
        _, (name, value) = min(needs, key=lambda one: one[0])
        chosen[name] = value
        left = [one for one in left if one[0] != name]


def _seconds(remedy: Remedy) -> float:
    return remedy.found.stats["total_time"] or 0.0


def _with_options(space: Space, values: Mapping[str, Any]) -> Space:
    """Return the space with values that are tried too."""
    added = {name: (*space.add.get(name, ()), value) for name, value in values.items()}
    return replace(space, add={**space.add, **added})


def _untried(space: Space, name: str, value: Any) -> bool:
    """Whether the edition, the framework and the system have a value that a space does not try."""
    if name in space.fix or value in space.switches[name]:
        return False
    if name in EXTENSIONS and space.edition == PUBLISHED:
        return False
    if name.endswith("_offload") and not space.system.usable[1]:
        return False
    return space.preset.problem(name, value) is None


def _sequence(space: Space, miss: Miss, tries: Tries) -> Iterator[Remedy]:
    """Yield the longest of shorter sequences that fits, where it is activations that fill the memory."""
    activations = sum(size for kind, size in miss.parts.items() if kind in _ACTIVATIONS)
    if space.edition == PUBLISHED or "seq_length" in space.fix or activations < _HALF * miss.needed:
        return
    length = space.model.seq_size
    lengths = (length >> k for k in range(1, length.bit_length()))
    spaces = ((n, replace(space, fix={**space.fix, "seq_length": (n,)})) for n in lengths)
    yield from _first("sequence", "seq_length", spaces, tries)


_ACTIVATIONS = ("activations", "checkpoints", "activation gradients")
