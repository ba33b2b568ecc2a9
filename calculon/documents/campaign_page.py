"""The page of a whole training run: days, where they go, failures, parts, money, energy, and what was assumed."""

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from calculon.base.units import amount, between, known
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import plan_words
from calculon.documents.campaign_beside import published_section
from calculon.documents.campaign_sections import (
    Document,
    assumed_section,
    elasticities_section,
    energy_section,
    failures_section,
    money_section,
    uses_section,
)
from calculon.documents.campaign_words import LEAST_DAYS, span, three_digits, tokens_words
from calculon.documents.how_sure import remarks
from calculon.documents.page import SIDE_BY_SIDE
from calculon.documents.page_title import page_title
from calculon.documents.result import Result
from calculon.render.digits import Digits
from calculon.render.grids import grid, indented, side_by_side
from calculon.render.terminal import drawn
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, heading, level_text, percent

Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.declarations.presets.Preset.usual`)."""

ANSWER = (
    ("days", "days", False),
    ("processor-hours", "processor_hours", False),
    ("USD", "usd", False),
    ("tokens for a USD", "tokens_per_usd", True),
    ("MWh", "mwh", False),
    ("t CO2", "t_co2", False),
)
"""Words and name of each figure that decides, and whether it falls with the time of the run."""

_COUNTED = ("days", "processor_hours", "usd")
"""Figures that are told with three digits, as limits and parts of them are."""

_UNKNOWN = {
    "usd": "a price (--price 2.5, US dollars for an hour of a processor)",
    "mwh": "the power of a processor (--set campaign.fleet.tdp=700, in W)",
    "t_co2": "the carbon of its electricity (--carbon france, or in g/kWh)",
}
"""What a figure needs, and how to give it."""

_INTERVAL_OF = "The interval is of the time of a step, not of the rate of failures."

_MOST_PARTS = 8
"""Parts up to which each has a row."""

_SHORT = 0.02
"""Share of the time below which a part of many is told together with others."""

_HARDLY = 1e-3
"""Share of the days below which a spread is none."""


class CampaignPage:
    """The page of a whole training run; it lays itself out for the width at hand.

    Parameters
    ----------
    run : mapping
        The run as plain data (:meth:`calculon.advise.runs.training_run.TrainingRun.to_dict`); with ``elasticities``
        beside (:attr:`~calculon.advise.runs.training_run.TrainingRun.largest_elasticities`) the page has them.
    main : Result
        The part that takes the longest.
    usual : callable
        What needs no word of an execution.
    every : bool
        Whether defaults without effect are listed, too.
    """

    def __init__(self, run: Document, main: Result, usual: Usual, *, every: bool = False):
        self.run, self.main, self.usual, self.every = run, main, usual, every
        self.figures: Mapping[str, Any] = run["figures"]
        self.digits = main.digits
        self.of_parts = Digits(main.digits.spread / 10)
        self.fields: Mapping[str, Any] = run["question"]["execution"]["fields"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from (*self._question(), Text(), *self._answer(), Text())
        steps = Group(*uses_section(self.run), Text(), *self._parts(), Text(), *self._efficiency())
        parameters = self.main.value("parameters")
        rest = [*failures_section(self.run, parameters)]
        if (money := self.run["money"]) is not None:
            rest += [Text(), *money_section(money, self.of_parts)]
        if (energy := self.run["energy"]) is not None:
            rest += [Text(), *energy_section(energy, self.of_parts)]
        if options.max_width >= SIDE_BY_SIDE:
            yield side_by_side(steps, Group(*rest))
        else:
            yield from (steps, Text(), *rest)
        if self.run["published"]:
            yield from (
                Text(),
                *published_section(self.run["published"], self.run["parts"], self.digits),
            )
        if found := self.run.get("elasticities"):
            yield from (Text(), *elasticities_section(found))
        yield from (Text(), drawn(assumed_section(self.run["assumed"], every=self.every)))

    def _question(self) -> Iterator[RenderableType]:
        asked = self.run["question"]
        procs = f"{self.fields['num_procs']:,} x {stated_name(asked['system'])}"
        title = f"Training run of {stated_name(asked['model'])} on {procs}"
        yield from page_title(title, f"edition {asked['edition']}", asked["system"])
        steps, loss = sum(one["steps"] for one in self.run["parts"]), self.run["expected_loss"]
        each = f"{loss['tokens_per_parameter']:,.3g} for each parameter"
        rows = {
            "framework": stated_name(asked["preset"]),
            "plan": plan_words(self.fields, self.usual(self.fields)),
            "run": f"{tokens_words(self.run['tokens'])} tokens, {each}, in {counted(round(steps), 'step')}",
            "loss": _loss(loss),
        }
        if about := asked["campaign"].get("about"):
            rows = {"campaign": str(about), **rows}
        table = grid("text", "text")
        for label, words in rows.items():
            table.add_row(Text(label, "dim"), Text(words))
        yield indented(table)

    def _answer(self) -> Iterator[RenderableType]:
        """Tell the figures that decide, each with the interval of the model, and the limits of the run."""
        bounds, days = self.run["days_between"], self.figures["days"]
        table = grid("left", "right", "text")
        interval = self.main.interval
        level = f"{level_text(interval)} interval" if bounds and interval else ""
        table.add_row("", Text("expected", "dim"), Text(level, "dim"))
        low, high = (1.0, 1.0) if bounds is None else (end / days for end in bounds)
        short = days < LEAST_DAYS
        for label, name, falls in ANSWER:
            if (value := self.figures[name]) is None:
                continue
            if short and name == "days":
                label, value = "hours", 24 * value  # noqa: PLW2901
            ends = (value / high, value / low) if falls else (value * low, value * high)
            told = (self.digits.rate(end, like=value) for end in ends)
            said = between(*told) if bounds else ""
            whole = self.digits.spread and name in _COUNTED
            expected = three_digits(value) if whole else self.digits.rate(value)
            table.add_row(f"{label}{self._basis(name)}", Text(expected, "bold"), said)
        yield indented(table)
        yield indented(Text(self._spread(24 if short else 1), "dim"))
        for one in self.run["limits"]:
            yield indented(_limit(one, low, high))
        if absent := [hint for name, hint in _UNKNOWN.items() if self.figures[name] is None]:
            yield indented(Text(f"Not known: {'; '.join(absent)}.", "dim"))
        if self.main.belief is not None:
            for label, said in remarks(self.main.belief):
                yield indented(Text(f"{label}: {said}", "dim"))

    def _basis(self, name: str) -> str:
        """Say what a figure that decides has in it, where that is not plain."""
        if name == "processor_hours" and self.run["nodes"]["spares"]:
            return ", with spares"
        energy = self.run["energy"]
        return ", no PUE" if name in ("mwh", "t_co2") and energy and energy["pue"] is None else ""

    def _spread(self, factor: int) -> str:
        """Say how far failures alone spread the days, or hours where `factor` is 24."""
        ends = (self.figures[f"days_{part}"] * factor for part in ("p10", "p50", "p90"))
        low, middle, high = ends
        unit = "days" if factor == 1 else "hours"
        if high - low < _HARDLY * middle:
            return f"Failures alone hardly spread the {unit} (p10 to p90)."
        error = max((high - low) / 2, _HARDLY * middle)
        told = (known(end, error) for end in (middle, low, high))
        return "By failures alone: {} {unit} at p50, {} to {} from p10 to p90.".format(
            *told, unit=unit
        )

    def _parts(self) -> Iterator[RenderableType]:
        """Tell the parts of the run, and what ramps cost."""
        parts, total = self.run["parts"], sum(one["days"] for one in self.run["parts"])
        yield heading("Parts" if len(parts) > 1 else "Steps", "without failures")
        named = any(one["name"] for one in parts)
        columns = (
            *((Column("name", "phase"),) if named else ()),
            Column("tokens", "tokens", right=True),
            Column("batch", "batch", right=True),
            Column("length", "sequence", right=True),
            Column("steps", "steps", right=True),
            Column("time", "step", right=True),
            Column("days", "time", right=True),
            Column("share", "share", right=True, drop=1),
            Column("mfu", "MFU", right=True),
        )
        rows = list(_groups(parts, total)) if len(parts) > _MOST_PARTS else [[one] for one in parts]
        yield indented(Table(columns, [self._part(some, total) for some in rows]))
        if len(parts) > 1 and (said := _ramp(parts)):
            yield indented(Text(said, "dim"))
        for note in dict.fromkeys(one["note"] for one in parts if one["note"]):
            several = [str(i) for i, one in enumerate(parts, start=1) if one["note"] == note]
            word = "Part" if len(several) == 1 else "Parts"
            yield indented(Text(f"{word} {', '.join(several)}: {note}.", "dim"))
        yield from (indented(Text(said, "dim")) for said in self._restarts())

    def _restarts(self) -> Iterator[str]:
        """Say before which parts the run restarts, and what it runs from there on."""
        asked = self.run["question"]["execution"]["fields"]
        above = plan_words(asked, self.usual(asked))
        for number, one in enumerate(self.run["parts"], start=1):
            if one["restarts"]:
                fields = one["execution"]
                words = plan_words(fields, self.usual(fields))
                runs = "the plan above" if words == above else words
                yield f"A restart before part {number}, which runs {runs}."

    def _part(self, some: list[Document], total: float) -> dict[str, str]:
        """Return the cells of a part, or of several that are told together: sums, and from the first to the last."""

        def ends(write: Callable[[Document], str]) -> str:
            told = dict.fromkeys(write(one) for one in (some[0], some[-1]))
            return " to ".join(told)

        mfu = "mfu_causal" if self.main.skips_masked_keys else "mfu"
        days = sum(one["days"] for one in some)
        tokens = sum(one["steps"] * one["batch_size"] * one["seq_size"] for one in some)
        return {
            "name": ends(lambda one: one["name"]),
            "tokens": tokens_words(tokens),
            "batch": ends(lambda one: f"{one['batch_size']:,}"),
            "length": ends(lambda one: f"{one['seq_size']:,}"),
            "steps": f"{sum(one['steps'] for one in some):,.0f}",
            "time": ends(lambda one: self.digits.duration(one["step_time"])),
            "days": span(days, total),
            "share": percent(days / total),
            "mfu": ends(lambda one: self.digits.efficiency(one[mfu]) if one[mfu] else "-"),
        }

    def _efficiency(self) -> Iterator[RenderableType]:
        """Set the MFU of steps beside that of the hours that are paid."""
        figures = self.figures
        yield heading("Efficiency", "shares of the peak")
        whole = figures["mfu_effective"]
        busy = self.fields["num_procs"] * figures["useful_days"] * 24
        rows = (
            ("MFU of the steps", self.main.mfu, f"{self.main.masking}, of the longest part"),
            (
                "all steps",
                whole * figures["processor_hours"] / busy,
                "6 FLOP for each parameter that a token passes",
            ),
            ("effective MFU", whole, "the same over the hours that are paid"),
        )
        table = grid("left", "right", "text")
        for label, value, words in rows:
            table.add_row(label, Text(self.digits.efficiency(value), "bold"), words)
        yield indented(table)


def _groups(parts: list[Document], total: float) -> Iterator[list[Document]]:
    """Yield parts, those that follow each other and are short together."""
    for short, some in groupby(parts, lambda one: bool(one["days"] < _SHORT * total)):
        together = list(some)
        yield from [together] if short else ([one] for one in together)


def _limit(one: Document, low: float, high: float) -> Text:
    """Say whether a limit is kept, and what the ends of the interval of the figure say, as shares of it."""
    if one["met"]:
        over = one["value"] * high - one["limit"]
        end = (
            f"The slow end of the interval misses it by {amount(over, one['unit'])}."
            if over > 0
            else ""
        )
        said, style = f"Keeps {one['in_words']}.", ""
    else:
        left = one["limit"] - one["value"] * low
        end = (
            f"The fast end of the interval keeps it by {amount(left, one['unit'])}."
            if left >= 0
            else ""
        )
        said, style = f"Misses {one['in_words']}.", "bold"
    return Text(f"{said} {end} {_INTERVAL_OF}" if end else said, style)


def _loss(expected: Document) -> str:
    """Say the loss at the end by both laws, and of a run to a loss its tokens by both."""
    told = (f"{loss:.2f} ({law.capitalize()})" for law, loss in expected["loss"].items())
    said = f"{' or '.join(told)} expected"
    if "tokens" in expected:
        tokens = (
            f"{tokens_words(count)} ({law.capitalize()})"
            for law, count in expected["tokens"].items()
        )
        counts = expected["counts"].capitalize()
        said += f"; it takes {' or '.join(tokens)} tokens, of which those of {counts} count"
    return said


def _ramp(parts: list[Document]) -> str:
    """Say what the other parts cost against their share of the tokens."""
    longest = max(parts, key=lambda one: one["days"])
    tokens, days = (sum(one[key] for one in parts) for key in ("tokens", "days"))
    other_tokens, other_days = tokens - longest["tokens"], days - longest["days"]
    more = other_days - other_tokens * longest["days"] / longest["tokens"]
    if abs(more) < _HARDLY * days:
        return ""
    return (
        f"Parts but the longest have {percent(other_tokens / tokens)} of the tokens and "
        f"{percent(other_days / days)} of the time: {span(abs(more), days)} "
        f"{'more' if more > 0 else 'less'} than at its rate."
    )
