"""Page of the largest model that a fleet trains in a given number of days."""

import math
from collections.abc import Iterator

from calculon.advise.runs.largest_model import COSTS, LargestModel, Optimum
from calculon.architecture.parameters import active_count
from calculon.base.units import MEGA
from calculon.campaign.scaling_laws import COUNTED
from calculon.documents.campaign_sections import assumed_section
from calculon.documents.campaign_words import interval_words, tokens_words
from calculon.documents.page_title import machine_of, titled
from calculon.render.document import Block, Document, Grid, Section, dim, labeled
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent

HOUR = 3600.0


def largest_model_page(answer: LargestModel, *, every: bool = False) -> Document:
    """Return the page of the largest model; `every` also lists defaults without effect."""
    procs = f"{answer.num_procs:,} x {answer.system.name}"
    return titled(
        f"Largest model on {procs} in {answer.days:,.3g} days",
        "",
        machine_of(answer.system),
        lead=(labeled(dict(_rate(answer))),),
        parts=(
            _optima(answer),
            _nearest(answer),
            assumed_section(answer.nearest.assumed, every=every),
        ),
    )


def _rate(answer: LargestModel) -> Iterator[tuple[str, str]]:
    """Yield the compute of the fleet, and its derivation."""
    name, figures = answer.nearest.model.name, answer.nearest.figures
    share = percent(figures["mfu_effective"] or 0.0)
    yield "compute", f"{answer.compute:.3g} FLOP, 6 per parameter and token"
    yield (
        "rate",
        f"as predicted for {name} on this fleet, with failures: {share} of peak over all paid hours",
    )
    mtbf = figures["mtbf_hours"] or math.inf
    often = "none" if not figures["failures"] else f"one in {interval_words(mtbf * HOUR)}"
    yield (
        "failures",
        f"{often}; {percent(figures['goodput'] or 0.0)} of the time is productive",
    )
    units = dict(zip(COSTS, ("USD", "MWh", "t CO2"), strict=True))
    costs = [f"{_amount(cost)} {unit}" for key, unit in units.items() if (cost := answer.cost(key))]
    if costs:
        yield "costs", f"{', '.join(costs)} in {answer.days:,.3g} days"


def _optima(answer: LargestModel) -> Section:
    columns = (
        Column("law", "law"),
        Column("parameters", "parameters", right=True),
        Column("tokens", "tokens", right=True),
        Column("each", "each", right=True),
        Column("loss", "loss", right=True),
    )
    laws = " or ".join(name.capitalize() for name in answer.optima[0].loss)
    note = f"Loss: by {laws}; the laws disagree. Parameters: {COUNTED}."
    return Section(
        "Compute-optimal",
        (Table(columns, [_cells(one) for one in answer.optima]), dim(note)),
        "best parameters and tokens for this compute",
        opened=True,
    )


def _nearest(answer: LargestModel) -> Section:
    """Return the run of the closest model in the catalog."""
    run, days = answer.nearest, answer.days
    takes, tokens = run.figures["days"] or math.inf, run.tokens
    parameters = float(active_count(run.model))
    each = f"{tokens / parameters:.3g} per parameter"
    rows = (
        ("parameters", _short(parameters), ""),
        ("days", f"{takes:,.1f}", f"for its optimal {_short(tokens)} tokens, {each}"),
        ("tokens", _short(tokens * days / takes), f"in {days:,.3g} days"),
    )
    blocks: list[Block] = [Grid(("left", "right", "text"), rows)]
    if larger := answer.too_large:
        blocks.append(dim(f"Closer, but do not fit: {', '.join(larger)}."))
    return Section("Closest model in the catalog", tuple(blocks), run.model.name, opened=True)


def _short(count: float) -> str:
    """Write a count with three digits."""
    return tokens_words(float(f"{count:.3g}"))


def _amount(value: float) -> str:
    """Write an amount with three digits, from millions on with a prefix."""
    return _short(value) if value >= MEGA else f"{float(f'{value:.3g}'):,.10g}"


def _cells(one: Optimum) -> dict[str, str]:
    return {
        "law": one.law if " " in one.law else one.law.capitalize(),
        "parameters": _short(one.parameters),
        "tokens": _short(one.tokens),
        "each": f"{one.tokens / one.parameters:.3g}",
        "loss": " or ".join(f"{loss:.2f}" for loss in one.loss.values()),
    }
