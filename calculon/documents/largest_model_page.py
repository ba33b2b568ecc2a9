"""The page of the largest model that a fleet trains in some days."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.base.units import MEGA
from calculon.declarations.origin import stated_name
from calculon.documents.campaign_sections import assumed_section
from calculon.documents.campaign_words import interval_words, tokens_words
from calculon.documents.page_title import page_title
from calculon.render.grids import grid, indented
from calculon.render.text_tables import Column, Table
from calculon.render.texts import heading, percent

Document = Mapping[str, Any]

HOUR = 3600.0


class LargestModelPage:
    """The page of :class:`~calculon.advise.runs.largest_model.LargestModel`, given as plain data.

    Parameters
    ----------
    found : Document
        The model.
    every : bool
        Also list the defaults without effect here.
    """

    def __init__(self, found: Document, *, every: bool = False):
        self.found = found
        self.every = every

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        found = self.found
        procs = f"{found['num_procs']:,} x {found['system']}"
        title = f"Largest model on {procs} in {found['days']:,.3g} days"
        yield from page_title(title, "", found["nearest"]["run"]["question"]["system"])
        table = grid("text", "text")
        for label, words in self._rate():
            table.add_row(Text(label, "dim"), Text(words))
        yield indented(table)
        yield from (Text(), *self._optima())
        yield from (Text(), *self._nearest())
        yield from (Text(), *assumed_section(found["nearest"]["run"], every=self.every))

    def _rate(self) -> Iterator[tuple[str, str]]:
        """Say how much the fleet does, and how that is known."""
        found, run = self.found, self.found["nearest"]["run"]
        name = stated_name(run["question"]["model"])
        share = percent(found["mfu_effective"])
        yield "compute", f"{found['compute']:.3g} FLOP, 6 for each parameter and token"
        yield (
            "rate",
            f"that of {name} on this fleet, with failures: {share} of the peak of all hours that are paid",
        )
        mtbf = run["figures"]["mtbf_hours"]
        often = (
            "none" if not run["figures"]["failures"] else f"one in {interval_words(mtbf * HOUR)}"
        )
        yield (
            "failures",
            f"{often}; {percent(run['figures']['goodput'])} of the time is steps that count",
        )
        units = {"usd": "USD", "mwh": "MWh", "t_co2": "t CO2"}
        costs = [f"{_amount(found[key])} {unit}" for key, unit in units.items() if found[key]]
        if costs:
            yield "costs", f"{', '.join(costs)} in {found['days']:,.3g} days"

    def _optima(self) -> Iterator[RenderableType]:
        yield heading("On the optimum", "parameters and tokens that this compute is best spent on")
        columns = (
            Column("law", "law"),
            Column("parameters", "parameters", right=True),
            Column("tokens", "tokens", right=True),
            Column("each", "each", right=True),
            Column("loss", "loss", right=True),
        )
        yield indented(Table(columns, [_cells(one) for one in self.found["optima"]]))
        laws = " or ".join(name.capitalize() for name in self.found["optima"][0]["loss"])
        told = f"Loss: by {laws}; the laws disagree. Parameters: {self.found['counted']}."
        yield indented(Text(told, "dim"))

    def _nearest(self) -> Iterator[RenderableType]:
        """Tell the run of the model of the catalog that is nearest."""
        nearest, days = self.found["nearest"], self.found["days"]
        run = nearest["run"]
        takes, tokens = run["figures"]["days"], run["tokens"]
        yield heading("Nearest of the catalog", stated_name(run["question"]["model"]))
        table = grid("left", "right", "text")
        table.add_row("parameters", _short(nearest["parameters"]), "")
        each = f"{tokens / nearest['parameters']:.3g} for each parameter"
        table.add_row("days", f"{takes:,.1f}", f"for its optimum, {_short(tokens)} tokens, {each}")
        table.add_row("tokens", _short(tokens * days / takes), f"in {days:,.3g} days")
        yield indented(table)
        if larger := self.found["too_large"]:
            yield indented(Text(f"Nearer, but they do not fit: {', '.join(larger)}.", "dim"))


def _short(count: float) -> str:
    """Write a count with three digits."""
    return tokens_words(float(f"{count:.3g}"))


def _amount(value: float) -> str:
    """Write an amount with three digits, millions and more with their prefix."""
    return _short(value) if value >= MEGA else f"{float(f'{value:.3g}'):,.10g}"


def _cells(one: Document) -> dict[str, str]:
    law = one["law"]
    return {
        "law": law if " " in law else law.capitalize(),
        "parameters": _short(one["parameters"]),
        "tokens": _short(one["tokens"]),
        "each": f"{one['tokens_per_parameter']:.3g}",
        "loss": " or ".join(f"{loss:.2f}" for loss in one["loss"].values()),
    }
