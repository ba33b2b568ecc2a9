"""What would make an execution of a space fit: changes that a search has tried, each with the plan that it found."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations, groupby, islice, product
from math import inf
from typing import Any

import numpy as np

from calculon.advise.nearest_miss import Miss, with_memory
from calculon.advise.trials import trials
from calculon.advise.variations import Variations
from calculon.base.frozen import dataclass
from calculon.base.units import GIB
from calculon.declarations.named_values import PUBLISHED
from calculon.estimate.estimate import Estimate, estimate
from calculon.plan.columns import divisors, zigzag_degrees
from calculon.search.candidates import EXTENSIONS
from calculon.search.driver import run
from calculon.search.objective import Objective
from calculon.search.ranking import Best
from calculon.search.space import Space, Values
from calculon.search.where import Condition

BEST = Objective.parse("sample_rate")

PRODUCTS = (16, 24, 32, 40, 48, 64, 80, 96, 128, 141, 180, 192, 256, 288)
"""GiB of tier-1 memory that processors are sold with."""

MOST_TIMES = 1024
"""Times the processors that are tried at most."""

SECONDS = 5.0
"""CPU time from which on nothing further is tried: large spaces take long."""

MOST_SEARCHES = 6
"""Searches of one kind, where each of many values may do."""

MOST_ROWS = 4000
"""Executions that options are tried on at once."""

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

MOST_DEGREES = 3
"""Degrees of one axis that are tried as options: the largest groups of experts, the fewest parts of sequences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A change after which an execution fits.

    Attributes:
        kind: ``memory`` (the least that is enough), ``product`` (memory that processors have), ``processors``,
            ``options``, ``freed``, ``sequence`` or ``batch``.
        change: What is changed, by name: ``mem1`` and ``mem2`` (bytes of capacity), ``num_procs``, ``batch_size``, or
            fields of an execution; a field that no longer is held at a value has None.
        found: The fastest execution that fits then, on the system that it fits on.
    """

    kind: str
    change: Mapping[str, Any]
    found: Estimate = field(repr=False)


class Tries:
    """Searches of changed spaces, as long as there is time.

    Attributes:
        where: Condition that executions meet.
    """

    def __init__(self, where: Condition | None = None):
        self.where, self._end = where, time.process_time() + SECONDS

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - time.process_time()

    def best(self, space: Space) -> Estimate | None:
        """Return the fastest execution of a space; None where nothing fits, or no time is left."""
        if self.left < 0 or not space.units:
            return None
        found = run(space, Best(BEST, 1, self.where))
        return found[0] if len(found) else None


def remedies(
    space: Space, misses: Sequence[Miss], where: Condition | None, *, unwanted: bool = False
) -> tuple[Remedy, ...]:
    """Return what would make an execution fit: settings first, the fastest plan first, and then other machines.

    The kinds that the nearest misses ask for are tried. If executions fit, but are `unwanted` because they do not meet
    the condition, only settings and more processors are.
    """
    tries = Tries(where)
    settings = [*_freed(space, tries)]
    if misses:
        settings += _options(space, misses, tries)
    settings.sort(key=lambda one: one.found.stats["total_time"] or inf)
    others: list[Remedy] = []
    if misses:
        others += _sequence(space, misses[0], tries)
        others += _memory(space, misses, tries)
        others += _more(space, misses, tries)
    elif unwanted:
        others += _more(space, misses, tries)
    else:
        others += _batches(space, tries)
        others += _nearby(space, tries)
    return (*settings, *others)


def _memory(space: Space, misses: Sequence[Miss], tries: Tries) -> Iterator[Remedy]:
    """Yield the least memory that is enough, and the size of tier 1 that processors have."""
    for execution, several in groupby(misses, key=lambda miss: miss.estimate.execution):
        needed = {miss.tier: miss.needed for miss in several}
        larger = with_memory(space.system, needed)
        change = {f"mem{tier}": getattr(larger, f"mem{tier}").capacity for tier in needed}
        found = estimate(space.model, execution, larger)  # no other needs as little
        yield Remedy(kind="memory", change=change, found=found)
        sold = next((g * GIB for g in PRODUCTS if g * GIB >= larger.mem1.capacity), None)
        if tuple(needed) != (1,) or sold is None:
            continue
        product = replace(larger, mem1=replace(larger.mem1, capacity=sold))
        if best := tries.best(replace(space, system=product)):
            yield Remedy(kind="product", change={"mem1": sold}, found=best)


def _more(space: Space, misses: Sequence[Miss], tries: Tries) -> Iterator[Remedy]:
    """Yield the next multiple, or power of two, of the processors on which something fits.

    Counts are tried with what needs the least memory in the nearest miss; where that fits, with everything.
    """
    thrifty: dict[str, Values] = {}
    for miss in misses[:1]:
        thrifty = {name: (getattr(miss.estimate.execution, name),) for name in _SAVING}
        thrifty["microbatch_size"] = (1,)
    for count in _multiples(space.num_procs):
        larger = replace(space, num_procs=count)
        if thrifty and not tries.best(replace(larger, fix={**thrifty, **space.fix})):
            continue
        if found := tries.best(larger):
            yield Remedy(kind="processors", change={"num_procs": count}, found=found)
            return


_SAVING = (
    "activation_recompute",
    "recompute_modules",
    "tensor_par_overlap",
    "tp_async",
    "p2p_overlap",
)
"""Options of the nearest miss that count for memory, and that all degrees can have."""


def _multiples(count: int) -> list[int]:
    """Return the counts that are tried where more processors are needed."""
    multiples = {count * 2**k for k in range(1, MOST_TIMES.bit_length())}
    powers = {2**k for k in range((count * MOST_TIMES).bit_length())}
    return sorted(multiples | {power for power in powers if power > count})


def _nearby(space: Space, tries: Tries) -> Iterator[Remedy]:
    """Yield the next counts, below and above, on which something fits; of those tried, else of powers of two."""
    count = space.num_procs
    powers = [2**k for k in range(count.bit_length()) if 2**k < count]
    ways: list[tuple[Iterable[int], Iterable[int]]] = [
        (range(count - 1, 0, -1), reversed(powers)),
        (range(count + 1, 2 * count), _multiples(count)),
    ]
    for nearest, round_ones in ways:
        for counts in (nearest, round_ones):
            spaces = ((n, replace(space, num_procs=n)) for n in counts)
            found = [*_first("processors", "num_procs", spaces, tries)]
            yield from found
            if found:
                break


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
    """Yield the first of several spaces in which something fits, of as many as are tried."""
    possible = ((value, space) for value, space in spaces if space.divides and space.units)
    for value, space in islice(possible, MOST_SEARCHES):
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


def _options(space: Space, misses: Sequence[Miss], tries: Tries) -> Iterator[Remedy]:
    """Yield options that the framework has and the search does not try: each that does alone, or else a few together.

    The nearest misses say which: with these options, on all splits. What fits then is searched.
    """
    tried = (*THRIFTY, *_of_experts(space), *_of_sequences(space, misses[0]))
    untried = [one for one in tried if _untried(space, *one)]
    for size in range(1, MOST_OPTIONS + 1):
        several = [dict(some) for some in combinations(untried, size) if len(dict(some)) == size]
        if len(several) * len(space.units) * len(misses) > MOST_ROWS:
            return
        fitting = _fitting(space, misses, several)
        found = [(values, tries.best(_with_options(space, values))) for values in fitting]
        remedies = [
            Remedy(kind="options", change=values, found=best) for values, best in found if best
        ]
        if remedies:
            yield from remedies
            return


def _of_experts(space: Space) -> Iterator[tuple[str, Any]]:
    """Yield values of options that need less memory for experts, where a model has some."""
    if not space.model.mixes:
        return
    yield from (("recompute_modules", modules) for modules in ("moe_act", "moe"))
    degrees = [d for d in divisors(space.model.num_experts) if 1 < d <= space.num_procs]
    yield from (("expert_par", degree) for degree in degrees[-MOST_DEGREES:])


def _of_sequences(space: Space, miss: Miss) -> Iterator[tuple[str, Any]]:
    """Yield parts of sequences, where it is activations that fill the memory."""
    if space.edition == PUBLISHED or not space.model.attends or not _of_activations(miss):
        return
    length = max(space.lengths)
    degrees = zigzag_degrees(length, divisors(space.num_procs)[1:])
    yield from [("context_par", d) for d in degrees if d not in space.switches["context_par"]][
        :MOST_DEGREES
    ]


def _fitting(
    space: Space, misses: Sequence[Miss], several: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the options with which the nearest misses fit on some split, the fastest first; not all of them."""
    places, times = [], []
    for miss in misses:
        options, rows = _on_splits(space, several)
        if rows:
            table = Variations(space.model, miss.estimate.execution).of_rows(rows)
            places += options
            times += trials(space.model, space.system, table).time.tolist()
    order = [row for row in np.argsort(times, kind="stable").tolist() if np.isfinite(times[row])]
    return [several[place] for place in dict.fromkeys(places[row] for row in order)][:MOST_OPTIONS]


def _on_splits(
    space: Space, several: Sequence[Mapping[str, Any]]
) -> tuple[list[int], list[Mapping[str, Any]]]:
    """Return options, by their place, on all splits of a space: what is changed of an execution for each."""
    options: list[int] = []
    rows: list[Mapping[str, Any]] = []
    for (place, values), unit in product(enumerate(several), space.units):
        parts = values.get("context_par", unit.further)
        data_par, rest = divmod(unit.data_par * unit.further, parts)
        if rest:
            continue
        split = {
            **{name: getattr(unit, name) for name in _OF_UNITS},
            "context_par": parts,
            "data_par": data_par,
            "pipeline_interleaving": unit.interleavings[0],
            "microbatch_size": unit.microbatches[0],
        }
        rows.append({**split, **values})
        options.append(place)
    return options, rows


_OF_UNITS = ("tensor_par", "pipeline_par", "batch_size")


def _with_options(space: Space, values: Mapping[str, Any]) -> Space:
    """Return the space with these values added, and held: without them nothing fits."""
    held = {name: (value,) for name, value in values.items()}
    return replace(space, add={**space.add, **held}, fix={**space.fix, **held})


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
    if space.edition == PUBLISHED or "seq_length" in space.fix or not _of_activations(miss):
        return
    length = space.model.seq_size
    lengths = (length >> k for k in range(1, length.bit_length()))
    spaces = ((n, replace(space, fix={**space.fix, "seq_length": (n,)})) for n in lengths)
    yield from _first("sequence", "seq_length", spaces, tries)


def _of_activations(miss: Miss) -> bool:
    """Whether it is activations that fill the memory."""
    activations = sum(size for kind, size in miss.parts.items() if kind in _ACTIVATIONS)
    return activations >= _HALF * miss.needed


_ACTIVATIONS = ("activations", "checkpoints", "activation gradients")
