"""The page of fleets: the machine and the number of processors for a run, its rivals, and what misses the limits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.base.units import KILO, between, scaled
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import degrees_words, plan_words
from calculon.documents.how_sure import TIGHT
from calculon.documents.page_title import page_title
from calculon.documents.run_defaults import defaults_section, price_words
from calculon.documents.setup import Row, interval_row
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Grid, dim
from calculon.render.grids import grid, indented
from calculon.render.terminal import drawn
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, heading

Document = Mapping[str, Any]
Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.declarations.presets.Preset.usual`)."""

BEST = {
    "usd": "Cheapest in expectation",
    "days": "Fastest in expectation",
    "days_p90": "Fastest in nine runs of ten, by failures alone",
    "processor_hours": "Fewest processor-hours in expectation",
    "mwh": "Least energy in expectation",
    "t_co2": "Least carbon in expectation",
}
"""What the best by a figure is called."""

MONEY = {"usd": "USD", "processor_hours": "processor-hours"}
"""What the frontier has beside days."""

LIMITS = {"deadline": "deadline", "budget_usd": "budget", "budget_mwh": "budget of energy"}

FRONT = "*"
"""Mark of what no other beats in days and money."""

_FIGURES = ("front", "days", "between", "late", "usd", "hours", "mwh", "spares", "misses")
_LEAST_OVER = 0.05
_LISTED = 4


class FleetPage:
    """The page of a comparison of fleets; it lays itself out for the width at hand.

    Parameters
    ----------
    answer : mapping
        The answer as plain data (:meth:`calculon.advise.runs.fleet.FleetAnswer.to_dict`).
    usual : callable
        What needs no word of an execution.
    runs_it : str
        Framework, in words.
    """

    def __init__(self, answer: Document, usual: Usual, runs_it: str):
        self.answer, self.usual, self.runs_it = answer, usual, runs_it
        self.points: list[Document] = answer["points"]
        self.front = set(answer["frontier"])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._question()
        place = self.answer["nearest"]
        if self.answer["best"] is None:
            yield from (Text(), *self._missed())
        if place is not None:
            yield from (Text(), *self._chosen(self.points[place]))
        yield from (Text(), *self._table())
        if self.answer["prices"]:
            yield from (Text(), *self._prices())
        yield from (Text(), *defaults_section(self.answer["assumed"]))

    def _question(self) -> Iterator[RenderableType]:
        asked = self.answer["question"]
        systems = ", ".join(stated_name(one) for one in asked["systems"])
        title = f"Fleets for {stated_name(asked['model'])}: {systems}"
        yield from page_title(title, f"edition {asked['edition']}", *asked["systems"])
        table = grid("text", "text")
        limits = [f"{LIMITS[one['field']]} {one['in_words']}" for one in self.answer["limits"]]
        of_run = self.answer["tokens"]
        rows = {
            "run": "" if of_run is None else f"{tokens_of(of_run)} tokens",
            "limits": ", ".join(limits) or "none",
            "framework": self.runs_it,
            "batch": self._batch(),
            "assumed": ", ".join(f"{text} ({name})" for name, text in asked["assumed"].items()),
        }
        counts = counted(len(self.points), "count")
        rows["tried"] = f"{counts} of processors, {self.answer['tried']:,} plans"
        if self.answer["coarse"]:
            rows["tried"] += "; none closer to the best, as each search is large: list counts"
        for label, text in rows.items():
            if text:
                table.add_row(Text(label, "dim"), Text(text))
        yield indented(table)

    def _batch(self) -> str:
        """Return the batch in words, and the counts that it does not suit."""
        asked = self.answer["question"]
        sequences, length = asked["batch_size"], asked["seq_size"]
        if sequences is None:
            return f"sequences of {length:,}; of each count its own, in the table"
        tokens = scaled(sequences * length)
        said = f"{counted(sequences, 'sequence')} of {length:,} = {tokens} tokens a step, the same for all counts"
        if asked["uneven"]:
            counts = _listed(asked["uneven"])
            said += f". On {counts} processors few data-parallel degrees divide it"
        if asked["small"]:
            said += (
                f". On {_listed(asked['small'])} processors it is small: below 1 k tokens for each"
            )
        return said

    def _missed(self) -> Iterator[RenderableType]:
        """Say that nothing meets the limits, and what comes nearest to each."""
        yield Text(f"{sentence(self.answer['misses'])}.", "bold")
        for words in self.answer["ways"]:
            yield indented(Text(f"{sentence(words)}."))

    def _chosen(self, one: Document) -> Iterator[RenderableType]:
        met = self.answer["best"] is not None
        word = BEST[self.answer["ranked_by"]] if met else "Nearest"
        where = f"{one['num_procs']:,} x {one['system']}{spares_words(one['spare_nodes'])}"
        words = plan_words(one["execution"], self.usual(one["execution"]))
        yield Text.assemble((f"{word}: ", "bold"), (f"{where}, {words}", "bold"))
        digits, days = digits_of(one), one["days"]
        known = one["days_low"] is not None
        shown: list[Row] = [(*map(dim, ("", "expected", "90 % interval" if known else "")),)]
        low, high = (one["days_low"] / days, one["days_high"] / days) if known else (None, None)
        rows = {
            "days": "days",
            "processor-hours": "processor_hours",
            "USD": "usd",
            "MWh": "mwh",
            "t CO2": "t_co2",
        }
        for label, name in rows.items():
            value = one[name]
            if value is None:
                continue
            ends = (None, None) if low is None or high is None else (value * low, value * high)
            shown.append(interval_row(label, value, ends, digits.rate))
        yield indented(drawn(Grid(("left", "right", "text"), tuple(shown), heads=1)))
        yield indented(Text(self._spread(one), "dim"))
        if one["memory_remark"]:
            yield indented(Text(f"{TIGHT}: {one['memory_remark']}."))
        for limit in one["limits"]:
            yield indented(Text(self._kept(one, limit), "" if limit["met"] else "bold"))

    def _spread(self, one: Document) -> str:
        """Say what failures do to the days."""
        goodput = f"{100 * one['goodput']:.1f} %"
        late = f"by failures alone {one['days_p90']:,.3g} d or less in nine runs of ten"
        sure = "" if one["days_low"] is None else "; the interval is that of the time of a step"
        return f"{one['useful_days']:,.3g} d of steps, goodput {goodput}; {late}{sure}"

    def _kept(self, one: Document, limit: Document) -> str:
        name = sentence(LIMITS[limit["field"]])
        over = amount(abs(limit["over"]), limit["unit"])
        if not limit["met"]:
            return f"{name} missed by {over}"
        high = one["days_high"]
        ratio = None if high is None else high / one["days"]
        beyond = ratio is not None and limit["value"] * ratio > limit["limit"]
        also = "; at the upper end of the interval it would be missed" if beyond else ""
        return f"{name} kept, {over} left{also}"

    def _table(self) -> Iterator[RenderableType]:
        money = MONEY.get(self.answer["money"], "")
        remark = f"{FRONT} no other has fewer days and less {money}" if money else "by days"
        yield heading("Days and money", remark)
        systems = len(self.answer["question"]["systems"]) > 1
        spared = any(one.get("spare_nodes") for one in self.points)
        own_batch = self.answer["question"]["batch_size"] is None
        priced = any(one.get("usd") is not None for one in self.points)
        energy = any(one.get("mwh") is not None for one in self.points)
        known = any(one.get("days_low") is not None for one in self.points)
        columns = (
            Column("front", ""),
            *((Column("system", "system"),) if systems else ()),
            Column("procs", "count", right=True),
            *((Column("batch", "batch", right=True),) if own_batch else ()),
            Column("plan", "plan", fold=True),
            Column("days", "days", right=True),
            *((Column("between", "90 % interval", right=True),) if known else ()),
            Column("late", "p90 by failures", right=True, drop=4),
            *((Column("usd", "USD", right=True),) if priced else ()),
            *((Column("hours", "processor-h", right=True, drop=0 if not priced else 1),)),
            *((Column("mwh", "MWh", right=True, drop=2),) if energy else ()),
            *((Column("spares", "spare nodes", right=True, drop=3),) if spared else ()),
            *((Column("misses", "misses limits by", fold=True),) if self.answer["limits"] else ()),
        )
        rows = [self._row(place, one) for place, one in enumerate(self.points)]
        yield indented(Table(columns, rows))
        unpriced = [one["system"] for one in self.answer["prices"] if one["usd"] is None]
        if unpriced:
            names = ", ".join(unpriced)
            said = f"No price is known of {names}: told by days; add --price 2.5 (USD for an hour of a processor)."
            yield indented(Text(said, "dim"))

    def _row(self, place: int, one: Document) -> dict[str, str]:
        row = {
            "system": one["system"],
            "procs": f"{one['num_procs']:,}",
            "batch": scaled(one["tokens_per_step"], digits=1),
        }
        if "execution" not in one:
            return {**dict.fromkeys(_FIGURES, ""), **row, "plan": f"none fits: {one['reason']}"}
        digits = Digits(digits_of(one).spread / 10)
        told = {
            name: "-" if one[name] is None else digits.rate(one[name]) for name in ("usd", "mwh")
        }
        missed = (limit for limit in one["limits"] if not limit["met"])
        over = [amount(limit["over"], limit["unit"]) for limit in missed]
        unknown = [f"{LIMITS[name]}: not known" for name in one["unchecked"]]
        return row | {
            "front": FRONT if place in self.front else "",
            "plan": degrees_words(one["execution"]),
            "days": digits.rate(one["days"]),
            "between": _between(one),
            "late": digits.rate(one["days_p90"]),
            "spares": f"{one['spare_nodes']:,.0f}",
            "hours": digits.rate(one["processor_hours"]),
            "misses": ", ".join((*over, *unknown)),
            **told,
        }

    def _prices(self) -> Iterator[RenderableType]:
        """List prices and powers, each with its source."""
        rows = []
        for one in self.answer["prices"]:
            if one["usd"] is not None:
                price = f"{one['usd']:,.2f} USD/h"
                beside = f"; this processor: {one['range']}" if one["range"] else ""
                source = price_words(one) + beside
                row = {"system": one["system"], "figure": price, "source": source}
                rows.append(row)
            if (power := one["power"]) is not None:
                watts = f"{power['watts']:,.0f} W"
                row = {"system": one["system"], "figure": watts, "source": power["in_words"]}
                rows.append(row)
        if (carbon := self.answer["carbon"]) is not None:
            of = ", ".join(carbon[key] for key in ("name", "source", "date") if carbon[key])
            figure = f"{carbon['g_co2_per_kwh']:g} g CO2/kWh"
            rows.append({"system": "electricity", "figure": figure, "source": of or "as given"})
        if not rows:
            return
        stated = "--price, --price-kind, --pue, --carbon"
        yield heading("Prices and power", f"of a processor; {stated}")
        columns = (
            Column("system", "system"),
            Column("figure", "of each", right=True),
            Column("source", "source", fold=True),
        )
        yield indented(Table(columns, rows))
        if self.answer["pue"] is None and any(one.get("mwh") is not None for one in self.points):
            said = "MWh of the machines alone (PUE 1): --pue 1.2 adds what the data centre takes."
            yield indented(Text(said, "dim"))


def _between(one: Document) -> str:
    """Write the interval of the days of a point."""
    if one["days_low"] is None:
        return ""
    write = digits_of(one).rate
    return between(*(write(one[end], like=one["days"]) for end in ("days_low", "days_high")))


def spares_words(spares: float) -> str:
    """Write the nodes that stand by beside those of a job.

    >>> spares_words(12.0), spares_words(1.0), spares_words(0.0)
    (' + 12 spare nodes', ' + 1 spare node', '')
    """
    return f" + {counted(round(spares), 'spare node')}" if spares else ""


def _listed(counts: Sequence[int]) -> str:
    """List counts, of many the first."""
    told = ", ".join(f"{one:,}" for one in counts[:_LISTED])
    return f"{told}, ..." if len(counts) > _LISTED else told


def digits_of(one: Document) -> Digits:
    """Return the digits that the interval of a point leaves."""
    low, high = one["days_low"], one["days_high"]
    known = low is not None and high is not None
    return Digits((high - low) / 2 / one["days"] if known else WITHOUT_INTERVAL)


def amount(value: float, unit: str) -> str:
    """Write an amount by which a limit is missed or kept.

    >>> amount(1_234_567.0, "USD"), amount(3.21, "d")
    ('1.23 M USD', '3.2 d')
    """
    if value >= KILO:
        return f"{scaled(value, digits=2)} {unit}"
    least = 0 < value < _LEAST_OVER
    return f"<0.1 {unit}" if least else f"{value:,.1f} {unit}"


def sentence(text: str) -> str:
    """Begin a sentence."""
    return text[:1].upper() + text[1:]


def tokens_of(count: float) -> str:
    """Write a number of tokens without zeros at its end.

    >>> tokens_of(15e12), tokens_of(15.6e12)
    ('15 T', '15.6 T')
    """
    number, _, prefix = scaled(count).partition(" ")
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {prefix}".rstrip()
