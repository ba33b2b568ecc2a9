"""Page of a whole training run: days, goodput, failures, phases, money, energy, and assumptions."""

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from calculon.base.units import amount, between, known
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import plan_words
from calculon.documents.campaign_sections import (
    Data,
    assumed_section,
    elasticities_section,
    energy_section,
    failures_section,
    money_section,
    uses_section,
)
from calculon.documents.campaign_words import (
    MIN_DAYS,
    ramp_days,
    span,
    three_digits,
    tokens_words,
)
from calculon.documents.confidence import remarks
from calculon.documents.estimate_result import result_of
from calculon.documents.page import SIDE_BY_SIDE
from calculon.documents.page_title import titled
from calculon.documents.published_runs_section import published_section
from calculon.render.digits import Digits
from calculon.render.document import (
    Block,
    Document,
    Facts,
    Grid,
    Line,
    Section,
    SideBySide,
    Styled,
    bold,
    dim,
    labeled,
)
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, level_text, percent

if TYPE_CHECKING:
    from calculon.advise.runs.training_run import TrainingRun

ANSWER = (
    ("days", "days", False),
    ("processor-hours", "processor_hours", False),
    ("USD", "usd", False),
    ("tokens for a USD", "tokens_per_usd", True),
    ("MWh", "mwh", False),
    ("t CO2", "t_co2", False),
)
"""Label and name of each headline figure, and whether a longer run lowers it."""

_COUNTED = ("days", "processor_hours", "usd")
"""Figures written with three digits, like their limits and parts."""

_UNKNOWN = {
    "usd": "a price (--price 2.5, US dollars for an hour of a processor)",
    "mwh": "the power of a processor (--set campaign.fleet.tdp=700, in W)",
    "t_co2": "the carbon of its electricity (--carbon france, or in g/kWh)",
}
"""Missing input of a figure, and the option that provides it."""

_INTERVAL_OF = "The interval is for step time, not for the failure rate."

_MAX_PARTS = 8
"""Number of parts up to which each has a row."""

_SHORT = 0.02
"""Share of the time below which neighboring parts share a row."""

_HARDLY = 1e-3
"""Share of the days below which a spread is negligible."""


def campaign_page(
    run: "TrainingRun", *, elasticities: bool = False, every: bool = False
) -> Document:
    """Return the page of a whole training run.

    Args:
        run: The run.
        elasticities: Include the largest elasticities of the run.
        every: List defaults without effect, too.
    """
    return _CampaignPage(run).document(elasticities=elasticities, every=every)


class _CampaignPage:
    """Builder of the page of a whole training run."""

    def __init__(self, run: "TrainingRun"):
        self.run, self.data, self.figures = run, run.to_dict(), run.figures
        self.main = result_of(run.main.estimate)  # the part that takes the longest
        self.digits = self.main.digits
        # Parts are better known than their sum, because they share its error.
        self.of_parts = Digits(self.digits.spread / 10)
        self.fields = self.data["question"]["execution"]["fields"]

    def document(self, *, elasticities: bool, every: bool) -> Document:
        """Return the page."""
        data, asked = self.data, self.data["question"]
        rest = [failures_section(data, self.main.value("parameters"))]
        if data["money"] is not None:
            rest.append(money_section(data["money"], self.of_parts))
        if data["energy"] is not None:
            rest.append(energy_section(data["energy"], self.of_parts))
        steps = (uses_section(data), self._parts(), self._efficiency())
        parts: list[Block] = [self._answer(), SideBySide((steps, tuple(rest)), SIDE_BY_SIDE)]
        if data["published"]:
            parts.append(published_section(data["published"], data["parts"], self.digits))
        if elasticities and (largest := self.run.largest_elasticities):
            parts.append(elasticities_section(largest))
        parts.append(assumed_section(data["assumed"], every=every))
        procs = f"{self.fields['num_procs']:,} x {stated_name(asked['system'])}"
        return titled(
            f"Training run of {stated_name(asked['model'])} on {procs}",
            f"edition {asked['edition']}",
            asked["system"],
            lead=(self._question(),),
            parts=parts,
        )

    def _question(self) -> Grid:
        asked, loss = self.data["question"], self.run.expected_loss
        steps = counted(round(sum(part.steps for part in self.run.parts)), "step")
        each = f"{loss['tokens_per_parameter']:,.3g} for each parameter"
        return labeled(
            {
                "campaign": str(asked["campaign"].get("about") or ""),
                "framework": stated_name(asked["preset"]),
                "plan": self._plan(self.fields),
                "run": f"{tokens_words(self.run.tokens)} tokens, {each}, in {steps}",
                "loss": _loss(loss),
            }
        )

    def _plan(self, fields: Data) -> str:
        """Return an execution in words."""
        return plan_words(fields, self.run.preset.usual(fields))

    def _answer(self) -> Section:
        """Return the headline figures with their intervals, and the limits of the run."""
        bounds, days = self.run.days_between, self.data["figures"]["days"]
        interval = self.main.interval
        level = f"{level_text(interval)} interval" if bounds and interval else ""
        rows: list[tuple[Line, ...]] = [("", dim("expected"), dim(level))]
        # Figures of the run are proportional to its days, so they share its relative interval.
        low, high = (1.0, 1.0) if bounds is None else (end / days for end in bounds)
        short = days < MIN_DAYS
        for label, name, falls in ANSWER:
            if (value := self.figures[name]) is None:
                continue
            if short and name == "days":
                label, value = "hours", 24 * value  # noqa: PLW2901
            # Rates fall when the run takes longer, which swaps the ends.
            ends = (value / high, value / low) if falls else (value * low, value * high)
            ends_text = (self.digits.rate(end, like=value) for end in ends)
            said = between(*ends_text) if bounds else ""
            # Edition sc23 has exact figures; otherwise limits and totals need comparable digits.
            three = self.digits.spread and name in _COUNTED
            expected = three_digits(value) if three else self.digits.rate(value)
            rows.append((f"{label}{self._basis(name)}", bold(expected), said))
        notes = [dim(self._spread(24 if short else 1))]
        notes += [_limit(limit, low, high) for limit in self.data["limits"]]
        if absent := [hint for name, hint in _UNKNOWN.items() if self.figures[name] is None]:
            notes.append(dim(f"Not known: {'; '.join(absent)}."))
        if self.main.belief is not None:
            notes += [dim(f"{label}: {text}") for label, text in remarks(self.main.belief)]
        return Section("", (Grid(("left", "right", "text"), tuple(rows), heads=1), *notes))

    def _basis(self, name: str) -> str:
        """Return a note on items that a headline figure includes or leaves out; empty for most."""
        if name == "processor_hours" and self.data["nodes"]["spares"]:
            return ", with spares"
        energy = self.data["energy"]
        return ", no PUE" if name in ("mwh", "t_co2") and energy and energy["pue"] is None else ""

    def _spread(self, factor: int) -> str:
        """Return the spread of the days due to failures alone, or of hours if `factor` is 24."""
        ends = (self.data["figures"][f"days_{part}"] * factor for part in ("p10", "p50", "p90"))
        low, middle, high = ends
        unit = "days" if factor == 1 else "hours"
        if high - low < _HARDLY * middle:
            return f"Failures alone barely change the {unit} (p10 to p90)."
        # Digits follow from the spread itself, but at least 0.1 % of the days.
        error = max((high - low) / 2, _HARDLY * middle)
        values = (known(end, error) for end in (middle, low, high))
        return "Failures alone: {} {unit} at p50, {} to {} from p10 to p90.".format(
            *values, unit=unit
        )

    def _parts(self) -> Section:
        """Return the parts of the run, and the cost of its ramps."""
        parts = self.data["parts"]
        total = sum(part["days"] for part in parts)
        named = any(part["name"] for part in parts)
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
        rows = list(_groups(parts, total)) if len(parts) > _MAX_PARTS else [[one] for one in parts]
        notes = [_ramp(parts)] if len(parts) > 1 else []
        for note in dict.fromkeys(part["note"] for part in parts if part["note"]):
            numbers = [str(i) for i, part in enumerate(parts, start=1) if part["note"] == note]
            notes.append(f"Part{'s' * (len(numbers) > 1)} {', '.join(numbers)}: {note}.")
        notes += self._restarts()
        table = Table(columns, [self._part(group, total) for group in rows])
        title = "Parts" if len(parts) > 1 else "Steps"
        blocks = (table, *(dim(note) for note in notes if note))
        return Section(title, blocks, "without failures", opened=len(parts) > 1)

    def _restarts(self) -> Iterator[str]:
        """Yield the parts before which the run restarts, and the plan from there on."""
        above = self._plan(self.fields)
        for number, part in enumerate(self.data["parts"], start=1):
            if part["restarts"]:
                words = self._plan(part["execution"])
                runs = "the plan above" if words == above else words
                yield f"A restart before part {number}, which runs {runs}."

    def _part(self, some: list[Data], total: float) -> dict[str, str]:
        """Return the cells of a part, or of several parts that share a row: sums and ranges."""

        def ends(write: Callable[[Data], str]) -> str:
            values = dict.fromkeys(write(one) for one in (some[0], some[-1]))
            return " to ".join(values)

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

    def _efficiency(self) -> Section:
        """Return the MFU of steps, and of paid hours."""
        paid = self.data["figures"]["mfu_effective"]
        hours = self.data["figures"]["processor_hours"]
        # Paid hours include spares and failures, busy hours only productive steps.
        busy = self.fields["num_procs"] * self.data["figures"]["useful_days"] * 24
        rows = (
            ("MFU of the steps", self.main.mfu, f"{self.main.masking}, of the longest part"),
            ("all steps", paid * hours / busy, "6 FLOP per active parameter and token"),
            ("effective MFU", paid, "the same, over all paid hours"),
        )
        texts = ((label, self.digits.efficiency(mfu), words) for label, mfu, words in rows)
        return Section("Efficiency", (Facts(tuple(texts)),), "of peak")


def _groups(parts: list[Data], total: float) -> Iterator[list[Data]]:
    """Yield groups of parts: consecutive short parts together, each other part alone."""
    for short, some in groupby(parts, lambda one: bool(one["days"] < _SHORT * total)):
        together = list(some)
        yield from [together] if short else ([one] for one in together)


def _limit(one: Data, low: float, high: float) -> Styled:
    """Say if a limit is met, and if an end of the interval (relative to the value) changes that."""
    if one["met"]:
        over = one["value"] * high - one["limit"]
        end = (
            f"The slow end of the interval misses it by {amount(over, one['unit'])}."
            if over > 0
            else ""
        )
        said, style = f"Meets {one['in_words']}.", ""
    else:
        left = one["limit"] - one["value"] * low
        end = (
            f"The fast end of the interval meets it by {amount(left, one['unit'])}."
            if left >= 0
            else ""
        )
        said, style = f"Misses {one['in_words']}.", "bold"
    return Styled(f"{said} {end} {_INTERVAL_OF}" if end else said, style)


def _loss(expected: Data) -> str:
    """Return the final loss by both scaling laws; for a run to a target loss, the tokens by both laws."""
    losses = (f"{loss:.2f} ({law.capitalize()})" for law, loss in expected["loss"].items())
    said = f"{' or '.join(losses)} expected"
    if "tokens" in expected:
        tokens = (
            f"{tokens_words(count)} ({law.capitalize()})"
            for law, count in expected["tokens"].items()
        )
        counts = expected["counts"].capitalize()
        said += f"; it takes {' or '.join(tokens)} tokens, {counts} counts"
    return said


def _ramp(parts: list[Data]) -> str:
    """Return the cost of the shorter parts compared with their share of the tokens."""
    longest = max(parts, key=lambda one: one["days"])
    tokens, days = (sum(one[key] for one in parts) for key in ("tokens", "days"))
    other_tokens, other_days = tokens - longest["tokens"], days - longest["days"]
    more = ramp_days(parts)
    if abs(more) < _HARDLY * days:
        return ""
    return (
        f"Shorter parts have {percent(other_tokens / tokens)} of the tokens and "
        f"{percent(other_days / days)} of the time: {span(abs(more), days)} "
        f"{'more' if more > 0 else 'less'} than at the rate of the longest."
    )
