"""The page of a whole training run: days, where they go, failures, parts, money, energy, and what was assumed."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.apps.report.bars import Bar, Share
from calculon.apps.report.campaign_beside import published_section
from calculon.apps.report.digits import Digits
from calculon.apps.report.grids import grid, indented
from calculon.apps.report.how_sure import remarks
from calculon.apps.report.result import Result
from calculon.apps.report.text_tables import Column, Table
from calculon.apps.report.texts import counted, heading, level_text, percent
from calculon.campaign.interval_choice import RUN, STATED, STORAGE
from calculon.spec.origin import stated_name
from calculon.spec.plan_words import plan_words
from calculon.units import GIGA, between, duration, known, scaled

Document = Mapping[str, Any]
Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.presets.Preset.usual`)."""

USES = {
    "useful": ("steps that count", "blue"),
    "evaluation": ("evaluation", "sky"),
    "saving": ("waiting for checkpoints", "orange"),
    "lost": ("work lost", "vermilion"),
    "restart": ("restarts", "purple"),
    "waiting": ("waiting for nodes", "orange"),
    "repeated": ("steps repeated", "vermilion"),
    "slowed": ("slow nodes", "green"),
}
"""Words and colours of what the days of a run go to (:class:`~calculon.campaign.run_figures.DaysByUse`)."""

ENERGY = {
    "stepping": "processors in steps",
    "waiting": "processors that wait",
    "spares": "spares",
    "nodes": "rest of the nodes",
}
"""Words of what takes energy, but for the data centre."""

_UNKNOWN = {
    "usd": "--price 2.5 (US dollars for an hour of a processor)",
    "mwh": "--set campaign.fleet.tdp=700 (W of a processor)",
    "t_co2": "--carbon 400 (g of CO2 for a kWh)",
}
"""How to give what a figure needs."""

_DAY = 86400.0
_HARDLY = 1e-3
"""Share of the days below which a spread is none."""

_LEAST_DAYS = 2.0
"""Days of a run from which on its parts are told in days."""


class CampaignPage:
    """The page of a whole training run; it lays itself out for the width at hand.

    Parameters
    ----------
    run : mapping
        The run as plain data (:meth:`calculon.planner.training_run.TrainingRun.to_dict`).
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

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._question()
        yield from (Text(), *self._answer())
        yield from (Text(), *self._uses())
        yield from (Text(), *self._failures())
        yield from (Text(), *self._parts())
        yield from (Text(), *self._efficiency())
        if (money := self.run["money"]) is not None:
            yield from (Text(), *self._money(money))
        if (energy := self.run["energy"]) is not None:
            yield from (Text(), *self._energy(energy))
        if self.run["published"]:
            yield from (Text(), *published_section(self.run["published"], self.digits))
        yield from (Text(), *self._assumed())

    @property
    def _num_procs(self) -> int:
        return int(self.run["question"]["execution"]["fields"]["num_procs"])

    def _question(self) -> Iterator[RenderableType]:
        asked = self.run["question"]
        fields = asked["execution"]["fields"]
        procs = f"{self._num_procs:,} x {stated_name(asked['system'])}"
        title = f"Training run of {stated_name(asked['model'])} on {procs}"
        terms = f"   edition {asked['edition']}, {stated_name(asked['preset'])}"
        yield Text.assemble((title, "bold underline"), (terms, "dim"))
        table = grid("text", "text")
        tokens, parameters = self.run["tokens"], self.main.value("parameters")
        steps = sum(one["steps"] for one in self.run["parts"])
        said = f"{_tokens(tokens)} tokens, {tokens / parameters:,.3g} for each parameter, in {steps:,.0f} steps"
        table.add_row(Text("run", "dim"), Text(said))
        if about := asked["campaign"].get("about"):
            table.add_row(Text("campaign", "dim"), Text(str(about)))
        table.add_row(Text("plan", "dim"), Text(plan_words(fields, self.usual(fields))))
        yield indented(table)

    def _answer(self) -> Iterator[RenderableType]:
        """Tell the figures that decide, each with the interval of the model."""
        bounds = self.run["days_between"]
        table = grid("left", "right", "text")
        level = f"{level_text(self.main.interval)} interval" if self.main.interval else ""
        table.add_row("", Text("expected", "dim"), Text(level if bounds else "", "dim"))
        days = self.figures["days"]
        low, high = (1.0, 1.0) if bounds is None else (end / days for end in bounds)
        rows = (
            ("days", "days", False),
            ("processor-hours", "processor_hours", False),
            ("USD", "usd", False),
            ("tokens for a USD", "tokens_per_usd", True),
            ("MWh", "mwh", False),
            ("t CO2", "t_co2", False),
        )
        for label, name, falls in rows:
            value = self.figures[name]
            if value is None:
                continue
            ends = (value / high, value / low) if falls else (value * low, value * high)
            told = [self.digits.rate(end, like=value) for end in ends]
            said = between(*told) if bounds else ""
            table.add_row(label, Text(self.digits.rate(value), "bold"), said)
        yield indented(table)
        yield indented(Text(self._spread(), "dim"))
        for one in self.run["limits"]:
            kept = f"Within its {one['field'].replace('_', ' ')}: {-one['over']:,.3g} {one['unit']} are left."
            told = Text(kept) if one["met"] else Text(f"Misses {one['in_words']}.", "bold")
            yield indented(told)
        if absent := [hint for name, hint in _UNKNOWN.items() if self.figures[name] is None]:
            yield indented(Text(f"Not known without {', '.join(absent)}.", "dim"))
        if self.main.belief is not None:
            for label, said in remarks(self.main.belief):
                yield indented(Text(f"{label}: {said}", "dim"))

    def _spread(self) -> str:
        """Say how far failures alone spread the days."""
        low, middle, high = (self.figures[f"days_{part}"] for part in ("p10", "p50", "p90"))
        if high - low < _HARDLY * middle:
            return "Failures alone hardly spread the days (p10 to p90)."
        error = max((high - low) / 2, 1e-3 * middle)
        ends = " to ".join(known(end, error) for end in (low, high))
        return (
            f"Failures alone spread the days from {ends} (p10 to p90; p50 {known(middle, error)})."
        )

    def _uses(self) -> Iterator[RenderableType]:
        """Tell where the days go, the longest first."""
        goodput = percent(self.figures["goodput"])
        yield heading("Where the days go", f"goodput {goodput}")
        days = {name: self.figures[f"{name}_days"] for name in USES}
        total = self.figures["days"]
        table = grid("left", "right", "right", "wide")
        for name, value in sorted(days.items(), key=lambda one: -one[1]):
            if value > 0:
                words, color = USES[name]
                bar = Bar((Share(value / total, color),))
                table.add_row(words, span(value, total), percent(value / total), bar)
        yield indented(table)

    def _failures(self) -> Iterator[RenderableType]:
        figures, chosen = self.figures, self.run["checkpoint"]
        failures, mtbf = figures["failures"], figures["mtbf_hours"]
        if failures is None or mtbf is None or failures == 0:
            yield heading("Failures", "none")
        else:
            yield heading("Failures", f"{_amount(failures)} expected, one in {_hours(mtbf)}")
        table = grid("left", "text")
        if failures:
            each = [figures[f"{name}_days"] * _DAY / failures for name in ("restart", "lost")]
            said = f"{duration_of(each[0])} to restart, {duration_of(each[1])} of work lost"
            table.add_row(Text("each costs", "dim"), said)
        size, interval = figures["checkpoint_size"], figures["checkpoint_interval"]
        each_size = size / self.main.value("parameters")
        pause = f"{figures['checkpoint_time']:,.3g} s"
        said = f"{scaled(size, 'B', digits=2)} ({each_size:.3g} B for each parameter), each holds steps up for {pause}"
        table.add_row(Text("checkpoints", "dim"), said)
        steps = sum(one["steps"] for one in self.run["parts"])
        step = figures["useful_days"] * _DAY / steps
        every = (
            f"{duration_of(interval)} of steps ({counted(max(1, round(interval / step)), 'step')})"
        )
        table.add_row(Text("every", "dim"), f"{every}: {_reason(chosen, interval)}")
        table.add_row(Text("spares", "dim"), self._spares())
        yield indented(table)
        yield from (indented(Text(said, "dim")) for said in self.run["warnings"])

    def _spares(self) -> str:
        """Say how many nodes stand by, and why."""
        nodes = self.run["nodes"]
        said = f"{counted(nodes['spares'], 'node')} beside the {nodes['job']:,} of {nodes['processors']}"
        why = (
            "as stated" if nodes["spares_stated"] else "the fewest with which the run hardly waits"
        )
        return f"{said}, {why}; {_amount(nodes['in_repair'])} in repair on average"

    def _money(self, money: Document) -> Iterator[RenderableType]:
        """Tell the dollars by what they are for, and where the price is from."""
        price = money["price"]
        said = (price["kind"].replace("_", " "), price["source"], price["date"])
        told = ", ".join(one for one in said if one)
        yield heading("Money", f"{price['usd']:,.2f} USD for an hour of a processor ({told})")
        parts = {
            "processors, spares too": money["processors"],
            "checkpoints kept": money["storage"],
            "experiments, beside the run": money["experiments"],
        }
        digits = Digits(self.digits.spread / 10)
        table = grid("left", "right")
        for label, value in parts.items():
            if value:
                table.add_row(label, f"{digits.rate(value)} USD")
        yield indented(table)

    def _energy(self, energy: Document) -> Iterator[RenderableType]:
        """Tell the energy by what takes it, and the convention of model cards beside."""
        power = energy["power"]
        kind = "estimate" if power["estimate"] else "measured power"
        yield heading(
            "Energy", f"{kind}: {power['tdp']:,.0f} W of a processor, {power['in_words']}"
        )
        told = Digits(self.digits.spread / 10)
        table = grid("left", "right", "text")
        for name, words in ENERGY.items():
            if energy[name]:
                table.add_row(words, f"{told.rate(energy[name])} MWh")
        pue = energy["pue"]
        said = "no PUE is given: --pue 1.2" if pue is None else f"PUE {pue:g}"
        table.add_row(
            "data centre",
            f"{told.rate(energy['facility'])} MWh" if energy["facility"] else "-",
            said,
        )
        card = "TDP x hours, as model cards have it"
        table.add_row("to compare", f"{told.rate(energy['model_card'])} MWh", card)
        if (market := energy["t_co2_market"]) is not None:
            table.add_row("CO2 by contracts", f"{told.rate(market)} t")
        if (litres := energy["water_litres"]) is not None:
            table.add_row("water", f"{told.rate(litres)} L")
        yield indented(table)

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
            Column("days", "days", right=True),
            Column("share", "share", right=True, drop=1),
            Column("mfu", "MFU", right=True),
        )
        yield indented(Table(columns, [self._part(one, total) for one in parts]))
        if len(parts) > 1 and (said := self._ramp()):
            yield indented(Text(said, "dim"))

    def _part(self, one: Document, total: float) -> dict[str, str]:
        return {
            "name": one["name"],
            "tokens": _tokens(one["steps"] * one["batch_size"] * one["seq_size"]),
            "batch": f"{one['batch_size']:,}",
            "length": f"{one['seq_size']:,}",
            "steps": f"{one['steps']:,.0f}",
            "time": self.digits.duration(one["step_time"]),
            "days": span(one["days"], total),
            "share": percent(one["days"] / total),
            "mfu": self.digits.efficiency(one["mfu"]) if one["mfu"] else "-",
        }

    def _ramp(self) -> str:
        """Say what the other parts cost against their share of the tokens."""
        parts = self.run["parts"]
        last = max(parts, key=lambda one: one["days"])
        rest = [one for one in parts if one is not last]
        tokens = sum(one["tokens"] for one in rest)
        days = sum(one["days"] for one in rest)
        all_tokens, all_days = tokens + last["tokens"], days + last["days"]
        more = days - tokens * last["days"] / last["tokens"]
        if abs(more) < 1e-3 * all_days:
            return ""
        shares = f"{percent(tokens / all_tokens)} of the tokens and {percent(days / all_days)} of the days"
        return (
            f"Parts but the longest have {shares}: {span(abs(more), all_days)} "
            f"{'more' if more > 0 else 'less'} than at the rate of the longest."
        )

    def _efficiency(self) -> Iterator[RenderableType]:
        figures = self.figures
        yield heading("Efficiency", "shares of the peak")
        table = grid("left", "right", "text")
        mfu = self.digits.efficiency(self.main.mfu)
        table.add_row("MFU of the steps", Text(mfu, "bold"), f"{self.main.masking}, longest part")
        whole = figures["mfu_effective"]
        busy = self._num_procs * figures["useful_days"] * 24
        steps = whole * figures["processor_hours"] / busy
        formula = "6 FLOP for each parameter and token"
        table.add_row("all steps", Text(self.digits.efficiency(steps), "bold"), formula)
        said = "the same over the hours that are paid"
        table.add_row("effective MFU", Text(self.digits.efficiency(whole), "bold"), said)
        yield indented(table)

    def _assumed(self) -> Iterator[RenderableType]:
        """List the defaults that nobody stated, with their sources."""
        rows = [one for one in self.run["assumed"] if self.every or one["counts"]]
        yield heading("Assumed", "defaults that nobody stated; --set campaign.FIELD=VALUE")
        columns = (
            Column("field", "field"),
            Column("value", "value", right=True),
            Column("source", "source", fold=True),
        )
        cells = [
            {"field": one["field"], "value": _stated(one), "source": one["source"]} for one in rows
        ]
        yield indented(Table(columns, cells))
        if left := len(self.run["assumed"]) - len(rows):
            yield indented(Text(f"{counted(left, 'more default')} without effect here: -v.", "dim"))


def _reason(chosen: Document, interval: float) -> str:
    """Say why checkpoints are as far apart as they are."""
    if chosen["reason"] == STATED:
        best = duration_of(chosen["best_interval"])
        return f"as stated; the run is the shortest with {best}"
    if chosen["reason"] == STORAGE:
        rate, needed = (
            f"{chosen[name] / GIGA:,.3g} GB/s"
            for name in ("storage_bandwidth", "storage_bandwidth_needed")
        )
        return f"storage limits the interval, {rate} to it; {needed} would not"
    if chosen["reason"] == RUN:
        return "the run ends before another"
    return "the run is the shortest" + ("" if interval else ", as saves cost nothing")


def span(days: float, total: float) -> str:
    """Write a part of a time in the unit that suits the whole of it: both in days.

    >>> span(1.516, 95.3), span(0.004, 95.3), span(0.02, 0.5)
    ('1.5 d', '<0.1 d', '0.5 h')
    """
    factor, unit = (1.0, "d") if total >= _LEAST_DAYS else (24.0, "h")
    value = days * factor
    return f"<0.1 {unit}" if 0 < value < 0.05 else f"{value:,.1f} {unit}"


def duration_of(seconds: float) -> str:
    """Write a time with three digits in the unit that people say it in.

    >>> duration_of(371.0), duration_of(45.2), duration_of(9000.0), duration_of(0.5)
    ('6.18 min', '45.2 s', '2.5 h', '500.0 ms')
    """
    for limit, factor, unit in ((120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h")):
        if seconds < 1:
            return duration(seconds)
        if seconds < limit:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / _DAY:,.3g} d"


def _hours(hours: float) -> str:
    return duration_of(hours * 3600)


def _amount(value: float) -> str:
    """Write an expected number of events."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _stated(one: Document) -> str:
    value = one["value"]
    text = value if isinstance(value, str) else f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}"
    return f"{text} {one['unit']}".rstrip()


def _tokens(count: float) -> str:
    """Write a number of tokens.

    >>> _tokens(15.6e12), _tokens(252e6)
    ('15.6 T', '252 M')
    """
    number, _, prefix = scaled(count).partition(" ")
    return f"{number.rstrip('0').rstrip('.')} {prefix}".rstrip() if "." in number else number
