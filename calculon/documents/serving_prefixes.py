"""What a page says of cached prefixes: how much of prompts caches have, where, and what it takes."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from calculon.base.units import GIGA, duration, significant
from calculon.render.grids import grid, indented
from calculon.render.texts import heading, percent

Document = Mapping[str, Any]

NO_TIER = "none"


def has_prefixes(served: Document) -> bool:
    """Return whether caches have anything of prompts, or are meant to."""
    w = served["workload"]
    return bool(w["prefix_hit"] or w["turns"] > 1 or "shared_prefix" in w)


def prefix_section(served: Document) -> Iterator[RenderableType]:
    """Yield the section on cached prefixes."""
    f, w, place = served["figures"], served["workload"], served["deployment"]["cache_offload"]
    yield heading("Cached prefixes", f"{percent(f['hit_rate'])} of the tokens of prompts")
    table, further = grid("left", "right"), place != NO_TIER
    rows = []
    if "shared_prefix" in w:
        rows.append(("tokens that all prompts begin with", f"{w['shared_prefix']:,}"))
    if further:
        rows.append((f"of prompts from tier 2 ({place})", percent(f["hit_offloaded"])))
    if f["waiting_prefixes"] is not None:
        rows.append(("conversations between turns", f"{f['waiting_prefixes']:,.0f}"))
    if f["kept_prefixes"] is not None:
        rows.append(("prefixes that fit into tier 1", f"{f['kept_prefixes']:,.0f}"))
    if f["offloaded_prefixes"] is not None:
        rows.append(("prefixes that fit into tier 2", f"{f['offloaded_prefixes']:,.0f}"))
    if f["hit_time"] is not None:
        rows.append(("fetching one from tier 2", _time(f["hit_time"])))
    if f["recompute_time"] is not None:
        rows.append(("computing one again", _time(f["recompute_time"])))
    for label, value in rows:
        table.add_row(label, value)
    if rows:
        yield indented(table)
    if f["hit_break_even"] is not None:
        pays = f"{significant(f['hit_break_even'] / GIGA, 2)} GB/s for each processor"
        yield indented(Text(f"Fetching is sooner than computing from {pays}.", "dim"))


def prefix_notes(served: Document) -> Iterator[str]:
    """Yield what is assumed of cached prefixes."""
    w, place = served["workload"], served["deployment"]["cache_offload"]
    if w["turns"] > 1 and w["think"]:
        yield (
            "Of conversations between turns the least recently used leave a cache first; times between turns are "
            "exponential."
        )
    elif w["turns"] > 1 and place == NO_TIER:
        yield (
            "Conversations keep their caches between turns: --set workload.think=TIME says for how long they wait."
        )
    elif place != NO_TIER and served["figures"]["hit_offloaded"]:
        yield "All prefixes but what requests have in common are fetched from tier 2."


def length_note(workload: Document) -> str:
    """Say how lengths of prompts and outputs vary."""
    if workload["prompt_cv"] and workload["output_cv"]:
        return "lengths vary independently, and outputs at hand are longer than the average"
    if workload["prompt_cv"]:
        return "prompts have two lengths around their mean, and all outputs have one"
    if workload["output_cv"]:
        return "all prompts have one length; outputs at hand are longer than the average"
    return "all prompts, and all outputs, have one length in the batch"


def _time(seconds: float) -> str:
    return duration(seconds, error=abs(seconds) / 20)
