"""Page of a fleet comparison: machine and processor count for a run, alternatives, and missed limits."""

from collections.abc import Iterator, Sequence

from calculon.advise.runs.fleet import FleetAnswer
from calculon.base.records import Plain
from calculon.base.units import KILO, between, scaled
from calculon.campaign.limits import LABELS
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import degrees_words, plan_words
from calculon.declarations.statistics import FITS
from calculon.documents.campaign_words import tokens_words
from calculon.documents.confidence import (
    above_label,
    above_text,
    memory_label,
    risk_words,
    with_risk,
)
from calculon.documents.page_title import titled
from calculon.documents.run_defaults import defaults_section, price_words, run_rows
from calculon.render.digits import Digits
from calculon.render.document import Block, Document, Grid, Section, bold, dim, labeled
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted

BEST = {
    "usd": "Cheapest in expectation",
    "days": "Fastest in expectation",
    "days_p90": "Fastest at p90 (failures alone)",
    "processor_hours": "Fewest processor-hours in expectation",
    "mwh": "Least energy in expectation",
    "t_co2": "Least carbon in expectation",
}
"""Titles of the best point, by ranking figure."""

MONEY = {"usd": "USD", "processor_hours": "processor-hours"}
"""Second axis of the frontier, next to days."""

FRONT = "*"
"""Mark of Pareto-optimal points in days and money."""

_ROWS = {
    "days": "days",
    "processor-hours": "processor_hours",
    "USD": "usd",
    "MWh": "mwh",
    "t CO2": "t_co2",
}
"""Figures of the best point, by label."""

_FIGURES = ("front", "days", "between", "late", "usd", "hours", "mwh", "spares", "misses")
_MIN_OVER = 0.05
_LISTED = 4

_SHORT_ROWS = 6
"""Rows of the table of a short page."""


def fleet_page(answer: FleetAnswer, *, short: bool = False) -> Document:
    """Return the page of a fleet comparison; a short one has the answer, and the rows next to it."""
    return _FleetPage(answer, short=short).document()


class _FleetPage:
    """Builder of the page of a fleet comparison."""

    def __init__(self, answer: FleetAnswer, *, short: bool):
        self.short = short
        self.answer = answer.to_dict()
        self.asked: Plain = self.answer["question"]
        self.points: list[Plain] = self.answer["points"]
        self.usual, self.frameworks = answer.preset.usual, answer.frameworks

    def document(self) -> Document:
        systems = ", ".join(map(stated_name, self.asked["systems"]))
        place = self.answer["nearest"]
        parts = (
            self._missed() if self.answer["best"] is None else None,
            None if place is None else self._chosen(self.points[place]),
            self._table(),
            *self._sources_of_run(),
        )
        return titled(
            f"Fleets for {stated_name(self.asked['model'])}: {systems}",
            f"edition {self.asked['edition']}",
            *self.asked["systems"],
            lead=(labeled(self._question()),),
            parts=filter(None, parts),
        )

    def _sources_of_run(self) -> tuple[Block | None, ...]:
        """Return prices, power and assumptions with their sources; on a short page the prices alone, in a line."""
        if not self.short:
            return self._prices(), defaults_section(self.answer["assumed"])
        priced = [one for one in self.answer["prices"] if one["usd"] is not None]
        prices = ", ".join(f"{one['system']} {one['usd']:,.2f} USD/h" for one in priced)
        more = "-v: sources, assumptions, everything."
        return (dim(f"Prices: {prices}. {more}" if prices else more),)

    def _question(self) -> dict[str, str]:
        limits = [f"{LABELS[one['field']]} {one['in_words']}" for one in self.answer["limits"]]
        tokens = self.answer["tokens"]
        tried = (
            f"{counted(len(self.points), 'count')} of processors, {self.answer['tried']:,} plans"
        )
        if self.answer["coarse"]:
            tried += (
                "; no counts close to the best, because each search is large: list counts to try"
            )
        assumed = (f"{text} ({name})" for name, text in self.asked["assumed"].items())
        if self.short:
            return {
                "run": "" if tokens is None else f"{tokens_words(tokens)} tokens",
                "limits": ", ".join(limits) or "none",
                "assumed": ", ".join(assumed),
            }
        return {
            "run": "" if tokens is None else f"{tokens_words(tokens)} tokens",
            "limits": ", ".join(limits) or "none",
            "framework": self.frameworks,
            "batch": self._batch(),
            "assumed": ", ".join(assumed),
            "tried": tried,
        }

    def _batch(self) -> str:
        """Return the batch in words, and the counts that it does not suit."""
        asked = self.asked
        sequences, length = asked["batch_size"], asked["seq_size"]
        if sequences is None:
            return f"sequences of {length:,}; a batch for each count, in the table"
        tokens = scaled(sequences * length)
        said = f"{counted(sequences, 'sequence')} of {length:,} = {tokens} tokens per step, for all counts"
        if asked["uneven"]:
            counts = _listed(asked["uneven"])
            said += f". On {counts} processors few data-parallel degrees divide it"
        if asked["small"]:
            counts = _listed(asked["small"])
            said += f". On {counts} processors it is small: less than 1 k tokens per processor"
        return said

    def _missed(self) -> Section:
        """Return the missed limits, and the closest points to each limit."""
        ways = tuple(f"{_sentence(words)}." for words in self.answer["ways"])
        return Section(f"{_sentence(self.answer['misses'])}.", ways)

    def _chosen(self, one: Plain) -> Section:
        """Return the plan and the figures of the best point, or of the point closest to the limits."""
        met = self.answer["best"] is not None
        word = BEST[self.answer["ranked_by"]] if met else "Nearest"
        where = f"{one['num_procs']:,} x {one['system']}{spares_words(one['spare_nodes'])}"
        words = plan_words(one["execution"], self.usual(one["execution"]))
        heads = ("", dim("expected"), dim("" if one["days_low"] is None else "90 % interval"))
        named = self._figures() if self.short else _ROWS
        rows = (heads, *run_rows(one, named, digits_of(one)))
        blocks: list[Block] = [Grid(("left", "right", "text"), rows, heads=1)]
        if not self.short:
            blocks.append(dim(_spread(one)))
        if above := one["above"]:
            blocks.append(f"{above_label(above)}: {above_text(above, short=self.short)}.")
        if one["memory_remark"]:
            blocks.append(f"{memory_label(one[FITS])}: {one['memory_remark']}.")
        if (fastest := self.answer["fastest"]) is not None and not self.short:
            faster = plan_words(fastest["execution"], self.usual(fastest["execution"]))
            stats = fastest["stats"]
            time = digits_of(one).duration(stats["total_time"])
            about = f"{time} per step, {risk_words(stats[FITS])}"
            blocks.append(("Fastest that is predicted to fit: ", bold(faster), f" ({about})"))
        for limit in one["limits"]:
            said = _against_limit(one, limit)
            blocks.append(said if limit["met"] else bold(said))
        return Section(f"{word}: {where}, {words}", tuple(blocks), opened=met)

    def _figures(self) -> dict[str, str]:
        """Return the figures of a short page by label: days, money, and what ranks the points."""
        wanted = ("days", "usd", self.answer["ranked_by"])
        return {label: name for label, name in _ROWS.items() if name in wanted}

    def _places(self) -> list[int]:
        """Return the places of the listed points: all, or on a short page the best, the frontier, and then others."""
        every = range(len(self.points))
        if not self.short or len(every) <= _SHORT_ROWS:
            return [*every]
        front, best = self.answer["frontier"], self.answer["nearest"]
        ranked = sorted(every, key=lambda place: (place != best, place not in front, place))
        return sorted(ranked[:_SHORT_ROWS])

    def _table(self) -> Section:
        def known(name: str) -> bool:
            return any(one.get(name) is not None for one in self.points)

        places = self._places()
        rows = [self._row(place, self.points[place]) for place in places]
        columns = (
            Column("front", ""),
            Column("system", "system"),
            Column("procs", "count", right=True),
            Column("batch", "batch", right=True),
            Column("plan", "plan", fold=True),
            Column("days", "days", right=True),
            Column("between", "90 % interval", right=True),
            Column("late", "p90 of failures", right=True, drop=4),
            Column("usd", "USD", right=True),
            Column("hours", "processor-h", right=True, drop=1 if known("usd") else 0),
            Column("mwh", "MWh", right=True, drop=2),
            Column("spares", "spare nodes", right=True, drop=3),
            Column("misses", "over limit", fold=len(self.answer["limits"]) > 1),
        )
        shown = {
            "system": len(self.asked["systems"]) > 1,
            "batch": self.asked["batch_size"] is None,
            "between": known("days_low"),
            "usd": known("usd"),
            "mwh": known("mwh"),
            "spares": any(one.get("spare_nodes") for one in self.points),
            "misses": any(row["misses"] for row in rows),
        }
        # Columns without content are dropped rather than filled with dashes.
        kept = tuple(one for one in columns if shown.get(one.key, True))
        blocks: list[Block] = [Table(kept, rows)]
        if hidden := len(self.points) - len(places):
            blocks.append(dim(f"{hidden} more: -v"))
        if unpriced := [one["system"] for one in self.answer["prices"] if one["usd"] is None]:
            names = f"No price is known for {', '.join(unpriced)}"
            blocks.append(
                dim(f"{names}: ranked by days; add --price 2.5 (USD per processor-hour).")
            )
        money = MONEY.get(self.answer["money"], "")
        remark = (
            f"{FRONT} no other fleet is better in both days and {money}" if money else "by days"
        )
        return Section("Days and money", tuple(blocks), remark, opened=True)

    def _row(self, place: int, one: Plain) -> dict[str, str]:
        row = {
            "system": one["system"],
            "procs": f"{one['num_procs']:,}",
            "batch": scaled(one["tokens_per_step"], digits=1),
        }
        if "execution" not in one:
            return {**dict.fromkeys(_FIGURES, ""), **row, "plan": f"none fits: {one['reason']}"}
        # Points share the errors of one model, so differences deserve more digits.
        digits = digits_of(one).closer
        missed = (limit for limit in one["limits"] if not limit["met"])
        over = [amount(limit["over"], limit["unit"]) for limit in missed]
        unknown = [f"{LABELS[name]}: not known" for name in one["unchecked"]]
        return row | {
            "front": FRONT if place in self.answer["frontier"] else "",
            "plan": with_risk(degrees_words(one["execution"]), one[FITS], self.asked["risk"]),
            "days": digits.rate(one["days"]),
            "between": _between(one),
            "late": digits.rate(one["days_p90"]),
            "spares": f"{one['spare_nodes']:,.0f}",
            "hours": digits.rate(one["processor_hours"]),
            "misses": ", ".join((*over, *unknown)),
            **{n: "-" if one[n] is None else digits.rate(one[n]) for n in ("usd", "mwh")},
        }

    def _prices(self) -> Section | None:
        """Return prices, power and carbon intensity, each with its source."""
        rows = [
            dict(zip(("system", "figure", "source"), row, strict=True)) for row in self._sources()
        ]
        if not rows:
            return None
        columns = (
            Column("system", "system"),
            Column("figure", "per processor", right=True),
            Column("source", "source", fold=True),
        )
        blocks: list[Block] = [Table(columns, rows)]
        if self.answer["pue"] is None and any(one.get("mwh") is not None for one in self.points):
            said = "MWh of the machines only (PUE 1); --pue 1.2 adds cooling and losses of the data center."
            blocks.append(dim(said))
        remark = "options: --price, --price-kind, --pue, --carbon"
        return Section("Prices and power", tuple(blocks), remark)

    def _sources(self) -> Iterator[tuple[str, str, str]]:
        """Yield each item with a price, power or carbon intensity, the figure, and its source."""
        for one in self.answer["prices"]:
            if one["usd"] is not None:
                others = f"; this processor: {one['range']}" if one["range"] else ""
                yield one["system"], f"{one['usd']:,.2f} USD/h", price_words(one) + others
            if (power := one["power"]) is not None:
                yield one["system"], f"{power['watts']:,.0f} W", power["in_words"]
        if (carbon := self.answer["carbon"]) is not None:
            of = ", ".join(carbon[key] for key in ("name", "source", "date") if carbon[key])
            yield "electricity", f"{carbon['g_co2_per_kwh']:g} g CO2/kWh", of or "as given"


def _spread(one: Plain) -> str:
    """Return the effect of failures on the days of a point."""
    goodput = f"{100 * one['goodput']:.1f} %"
    late = f"{one['days_p90']:,.3g} d at p90 of failures"
    sure = "" if one["days_low"] is None else "; the interval is for step time"
    return f"{one['useful_days']:,.3g} d without failures, goodput {goodput}; {late}{sure}"


def _against_limit(one: Plain, limit: Plain) -> str:
    """Return the amount by which a point misses or meets a limit."""
    name = _sentence(LABELS[limit["field"]])
    over = amount(abs(limit["over"]), limit["unit"])
    if not limit["met"]:
        return f"{name} missed by {over}"
    high = one["days_high"]
    # The limit is on the expected value; the interval of step time scales it.
    beyond = high is not None and limit["value"] * (high / one["days"]) > limit["limit"]
    also = "; missed at the upper end of the interval" if beyond else ""
    return f"{name} met, {over} left{also}"


def _between(one: Plain) -> str:
    """Write the interval of the days of a point."""
    if one["days_low"] is None:
        return ""
    write = digits_of(one).rate
    return between(*(write(one[end], like=one["days"]) for end in ("days_low", "days_high")))


def spares_words(spares: float) -> str:
    """Write the spare nodes of a job.

    >>> spares_words(12.0), spares_words(1.0), spares_words(0.0)
    (' + 12 spare nodes', ' + 1 spare node', '')
    """
    return f" + {counted(round(spares), 'spare node')}" if spares else ""


def _listed(counts: Sequence[int]) -> str:
    """List the first few counts."""
    shown = ", ".join(f"{one:,}" for one in counts[:_LISTED])
    return f"{shown}, ..." if len(counts) > _LISTED else shown


def digits_of(one: Plain) -> Digits:
    """Return the digits that the interval of a point allows."""
    return Digits.within(one["days"], one["days_low"], one["days_high"])


def amount(value: float, unit: str) -> str:
    """Write an amount by which a limit is missed or kept.

    >>> amount(1_234_567.0, "USD"), amount(3.21, "d")
    ('1.23 M USD', '3.2 d')
    """
    if value >= KILO:
        return f"{scaled(value, digits=2)} {unit}"
    least = 0 < value < _MIN_OVER
    return f"<0.1 {unit}" if least else f"{value:,.1f} {unit}"


def _sentence(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]
