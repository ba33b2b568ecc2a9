"""The page of the largest model that a fleet trains in some days."""

from collections.abc import Iterator, Mapping
from typing import Any

from calculon.base.units import MEGA
from calculon.declarations.origin import stated_name
from calculon.documents.campaign_sections import assumed_section
from calculon.documents.campaign_words import interval_words, tokens_words
from calculon.documents.page_title import titled
from calculon.render.document import Block, Document, Grid, Section, dim, labelled
from calculon.render.text_tables import Column, Table
from calculon.render.texts import percent

Model = Mapping[str, Any]
"""A :class:`~calculon.advise.runs.largest_model.LargestModel` as plain data."""

HOUR = 3600.0


def largest_model_page(found: Model, *, every: bool = False) -> Document:
    """Return the page of the largest model; `every` also lists the defaults without effect here."""
    run = found["nearest"]["run"]
    procs = f"{found['num_procs']:,} x {found['system']}"
    return titled(
        f"Largest model on {procs} in {found['days']:,.3g} days",
        "",
        run["question"]["system"],
        lead=(labelled(dict(_rate(found))),),
        parts=(_optima(found), _nearest(found), assumed_section(run["assumed"], every=every)),
    )


def _rate(found: Model) -> Iterator[tuple[str, str]]:
    """Yield how much the fleet computes, and how that is known."""
    run = found["nearest"]["run"]
    name = stated_name(run["question"]["model"])
    share = percent(found["mfu_effective"])
    yield "compute", f"{found['compute']:.3g} FLOP, 6 for each parameter and token"
    yield (
        "rate",
        f"that of {name} on this fleet, with failures: {share} of the peak of all hours that are paid",
    )
    mtbf = run["figures"]["mtbf_hours"]
    often = "none" if not run["figures"]["failures"] else f"one in {interval_words(mtbf * HOUR)}"
    yield (
        "failures",
        f"{often}; {percent(run['figures']['goodput'])} of the time is steps that count",
    )
    units = {"usd": "USD", "mwh": "MWh", "t_co2": "t CO2"}
    costs = [f"{_amount(found[key])} {unit}" for key, unit in units.items() if found[key]]
    if costs:
        yield "costs", f"{', '.join(costs)} in {found['days']:,.3g} days"


def _optima(found: Model) -> Section:
    columns = (
        Column("law", "law"),
        Column("parameters", "parameters", right=True),
        Column("tokens", "tokens", right=True),
        Column("each", "each", right=True),
        Column("loss", "loss", right=True),
    )
    laws = " or ".join(name.capitalize() for name in found["optima"][0]["loss"])
    note = f"Loss: by {laws}; the laws disagree. Parameters: {found['counted']}."
    return Section(
        "On the optimum",
        (Table(columns, [_cells(one) for one in found["optima"]]), dim(note)),
        "parameters and tokens that this compute is best spent on",
        opened=True,
    )


def _nearest(found: Model) -> Section:
    """Return the run of the model of the catalog that is nearest."""
    nearest, days = found["nearest"], found["days"]
    run = nearest["run"]
    takes, tokens = run["figures"]["days"], run["tokens"]
    each = f"{tokens / nearest['parameters']:.3g} for each parameter"
    rows = (
        ("parameters", _short(nearest["parameters"]), ""),
        ("days", f"{takes:,.1f}", f"for its optimum, {_short(tokens)} tokens, {each}"),
        ("tokens", _short(tokens * days / takes), f"in {days:,.3g} days"),
    )
    blocks: list[Block] = [Grid(("left", "right", "text"), rows)]
    if larger := found["too_large"]:
        blocks.append(dim(f"Nearer, but they do not fit: {', '.join(larger)}."))
    name = stated_name(run["question"]["model"])
    return Section("Nearest of the catalog", tuple(blocks), name, opened=True)


def _short(count: float) -> str:
    """Write a count with three digits."""
    return tokens_words(float(f"{count:.3g}"))


def _amount(value: float) -> str:
    """Write an amount with three digits, millions and more with their prefix."""
    return _short(value) if value >= MEGA else f"{float(f'{value:.3g}'):,.10g}"


def _cells(one: Mapping[str, Any]) -> dict[str, str]:
    law = one["law"]
    return {
        "law": law if " " in law else law.capitalize(),
        "parameters": _short(one["parameters"]),
        "tokens": _short(one["tokens"]),
        "each": f"{one['tokens_per_parameter']:.3g}",
        "loss": " or ".join(f"{loss:.2f}" for loss in one["loss"].values()),
    }
