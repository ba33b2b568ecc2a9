"""Section on prefix caching: the cached share of prompts, the memory tier, and the time to fetch it."""

from collections.abc import Iterator

from calculon.base.units import GIGA, duration, significant
from calculon.render.document import Block, Grid, Section, dim
from calculon.render.texts import percent
from calculon.serving.caches.prefixes import DISK, HOST, NO_TIER
from calculon.serving.records.load import Workload
from calculon.serving.served_record import ServedRecord


def prefix_section(served: ServedRecord) -> Iterator[Section]:
    """Yield the section on prefix caching if the workload has cached prefixes."""
    f, w = served.figures, served.workload
    if not (w.prefix_hit or w.turns > 1 or w.shared_prefix is not None):
        return
    blocks: list[Block] = []
    if rows := tuple(_rows(served)):
        blocks.append(Grid(("left", "right"), rows))
    if f["hit_break_even"] is not None:
        pays = f"{significant(f['hit_break_even'] / GIGA, 2)} GB/s per processor"
        blocks.append(dim(f"Fetching is faster than recomputing above {pays}."))
    remark = f"{percent(f['hit_rate'])} of prompt tokens"
    yield Section("Cached prefixes", tuple(blocks), remark)


_PLACES = {HOST: "host memory", DISK: "disk"}
"""Words for the destinations of offloaded prefixes."""


def _rows(served: ServedRecord) -> Iterator[tuple[str, str]]:
    """Yield the known figures of prefix caching."""
    f, w, place = served.figures, served.workload, served.deployment.cache_offload
    if w.shared_prefix is not None:
        yield "prefix tokens shared by all prompts", f"{w.shared_prefix:,}"
    if place != NO_TIER:
        yield f"of prompts from {_PLACES[place]}", percent(f["hit_offloaded"])
    for name, (label, write) in _FIGURES.items():
        if f[name] is not None:
            yield label, write(f[name])


def prefix_notes(served: ServedRecord) -> Iterator[str]:
    """Yield the assumptions on prefix caching."""
    w, place = served.workload, served.deployment.cache_offload
    if w.turns > 1 and w.think:
        yield (
            "Conversations are evicted between turns, least recently used first (LRU); times between turns are "
            "exponential."
        )
    elif w.turns > 1 and place == NO_TIER:
        yield (
            "Conversations keep their caches between turns: --set workload.think=TIME sets the time between turns."
        )
    elif place != NO_TIER and served.figures["hit_offloaded"]:
        yield f"All prefixes are fetched from {_PLACES[place]}, except the prefix that requests share."


def length_note(workload: Workload) -> str:
    """Return the variation of lengths of prompts and outputs."""
    if workload.prompt_cv and workload.output_cv:
        return "lengths vary independently, and outputs in progress are longer than average"
    if workload.prompt_cv:
        return "prompts have two lengths around their mean; all outputs have the same length"
    if workload.output_cv:
        return "all prompts have the same length; outputs in progress are longer than average"
    return "all prompts have the same length, and so do all outputs"


def _time(seconds: float) -> str:
    return duration(seconds, error=abs(seconds) / 20)


_FIGURES = {
    "waiting_prefixes": ("conversations between turns", "{:,.0f}".format),
    "kept_prefixes": ("prefixes that fit into memory", "{:,.0f}".format),
    "offloaded_prefixes": ("offloaded prefixes that fit", "{:,.0f}".format),
    "hit_time": ("fetching one", _time),
    "recompute_time": ("computing one again", _time),
}
"""Labels and formats of the figures of prefix caching."""
