"""The page of a plan: the best one in words and figures, its rivals, other counts, and one of your own beside it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.base.errors import printable
from calculon.base.units import GIB, between, scaled
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import (
    NO_RECOMPUTE,
    choices_words,
    degrees_words,
    expert_width,
    plan_words,
    recomputes,
    spreads_experts,
)
from calculon.declarations.presets import plain
from calculon.declarations.statistics import BOUNDS
from calculon.documents.context_section import context_section
from calculon.documents.expert_section import experts_section
from calculon.documents.how_sure import WHY_TIED, chance, nearest_table, order_in_words, remarks
from calculon.documents.page_title import page_title
from calculon.documents.plans_table import mfu_name
from calculon.documents.result import Result
from calculon.documents.run_defaults import defaults_line
from calculon.documents.settings_section import settings_section
from calculon.documents.setup import add_interval, speed_with_interval
from calculon.documents.stage_table import stages_group
from calculon.documents.waterfall_section import digits_of_differences, waterfall_section
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.grids import grid, indented
from calculon.render.terminal import drawn
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, heading, token_count

Document = Mapping[str, Any]
Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.declarations.presets.Preset.usual`)."""

_LEAST_RATIO = 1e-4
"""Relative difference of two times below which neither is longer."""


class PlanPage:
    """The page of an answer; it lays itself out for the width at hand.

    Parameters
    ----------
    answer : mapping
        The answer as plain data (:meth:`calculon.advise.answer.Answer.to_dict`).
    best : Result or None
        The best plan with its stages; None where nothing fits.
    usual : callable
        What needs no word of an execution.
    runs_it : str
        Framework, in words.
    """

    def __init__(self, answer: Document, best: Result | None, usual: Usual, runs_it: str):
        self.answer, self.best, self.usual, self.runs_it = answer, best, usual, runs_it
        self.plans: Document = answer["plans"]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._question()
        if self.best is None:
            yield from (Text(), *self._nothing())
        else:
            yield from (Text(), *self._best(self.best), Text(), *_memory(self.best))
            yield from self._roomy()
            if context := context_section(self.best, table=False):
                yield from (Text(), *context)
            if experts := experts_section(self.best):
                yield from (Text(), *experts)
            yield from (Text(), *self._rivals(self.best.digits))
        yield from (Text(), *self._counts())
        if "mine" in self.answer:
            yield from (Text(), *self._mine())
        if "waterfall" in self.answer:
            yield from self._waterfall(self.answer["waterfall"])
        if self.answer.get("settings", {}).get("changes"):
            yield from self._settings(self.answer["settings"])
        if "belief" in self.answer:
            yield from (Text(), *_how_sure(self.answer["belief"]))
        if self.answer["question"]["tokens"]:
            price = self.plans["0"]["training"]["price"] if self.plans else None
            prices = [] if price is None else [price]
            yield from (Text(), defaults_line(self.answer["question"]["assumed_of_run"], prices))

    def _question(self) -> Iterator[RenderableType]:
        asked = self.answer["question"]
        procs = f"{asked['num_procs'][0]:,} x {stated_name(asked['system'])}"
        title = f"Plan for {stated_name(asked['model'])} on {procs}"
        yield from page_title(title, f"edition {asked['edition']}", asked["system"])
        table = grid("text", "text")
        tokens = asked["batch_size"] * asked["seq_size"]
        batch = f"{counted(asked['batch_size'], 'sequence')} of {asked['seq_size']:,} = {scaled(tokens)} tokens a step"
        rows = {"framework": self.runs_it, "batch": batch}
        if asked["assumed"]:
            told = (f"{value} ({option})" for option, value in asked["assumed"].items())
            rows["assumed"] = ", ".join(told)
        tried, fit = self.answer["tried"], self.answer["feasible"]
        rows["tried"] = f"{counted(tried, 'plan')}, of which {fit:,} fit"
        for label, text in rows.items():
            table.add_row(Text(label, "dim"), Text(printable(text)))
        yield indented(table)

    def _nothing(self) -> Iterator[RenderableType]:
        yield Text("No plan fits.", "bold")
        items = grid("text", "text", gap=1)
        for line in self.answer["unfit"]["lines"]:
            if line.startswith(_ITEM):
                items.add_row("-", Text(line.removeprefix(_ITEM)))
            else:
                yield indented(Text(line))
        yield indented(indented(items))

    def _choices(self, row: Document) -> tuple[str, ...]:
        return choices_words(row["execution"], self.usual(row["execution"]))

    def _beside(self, row: Document, best: Document) -> list[str]:
        """Return the words of a plan that the best does not have; widths of experts compared as they come out."""
        one, other = row["execution"], best["execution"]
        width, best_width = (f"ETP {expert_width(execution)}" for execution in (one, other))
        usual, shared = self._choices(row), (*self._choices(best), width)
        words = [word for word in usual if word not in shared]
        if spreads_experts(one) and width != best_width:
            words.append(width)
        if recomputes(other) and not recomputes(one) and NO_RECOMPUTE not in usual:
            words.append(NO_RECOMPUTE)
        return words

    def _words(self, execution: Document) -> str:
        return plan_words(execution, self.usual(execution))

    def _best(self, best: Result) -> Iterator[RenderableType]:
        yield Text.assemble(("Best: ", "bold"), (self._words(self.plans["0"]["execution"]), "bold"))
        table = speed_with_interval(best)
        money = bool(self.answer["question"]["tokens"])
        _add_training(table, self.plans["0"]["training"], best.digits, money=money)
        yield indented(table)

    def _roomy(self) -> Iterator[RenderableType]:
        """Name the best plan with room for the error of memory, where the best of all has less."""
        memory = self.answer["belief"]["memory"] if "belief" in self.answer else None
        if not memory or not memory["remark"]:
            return
        error = f"{100 * memory['error']:.0f} %"
        roomy = self.answer["roomy"]
        if roomy is None:
            yield indented(Text(f"No plan leaves the {error} that memory may differ by."))
            return
        longer = roomy["stats"]["total_time"] / self.plans["0"]["stats"]["total_time"] - 1
        needs = f"{roomy['stats']['proc_mem_tier1_cap_req'] / GIB:.1f} GiB, {_percent(longer)}"
        words = (self._words(roomy["execution"]), "bold")
        said = f"With room for the {error} that it may differ by: "
        yield indented(Text.assemble(said, words, f" ({needs})"))

    def _rivals(self, digits: Digits) -> Iterator[RenderableType]:
        ranks = list(self.plans.values())[:_SHOWN]
        if len(ranks) < 2:
            return
        yield heading("Next best", "the best of each other split")
        yield indented(self._table(ranks[1:], ranks[0], Digits(digits.spread / 10)))
        for tie, words in zip(self.answer["ties"], _TIES, strict=True):
            share = "" if tie["ratio"] is None else f"{(tie['ratio'] - 1) * 100:.0f} %"
            yield indented(Text(f"{words.format(share)}: {self._tie(tie)}"))
        if self.answer["ties"][-1]["plans"] > 1:
            yield indented(Text(f"{WHY_TIED}.", "dim"))

    def _tie(self, tie: Document) -> str:
        """Say how many plans are not distinguishable from the best, and which is the simplest of them."""
        if tie["plans"] == 1:
            return "none but the best."
        best, simplest = self.plans["0"], tie["simplest"]
        said = f"{tie['plans']} plans"
        if simplest["execution"] == best["execution"]:
            return f"{said}; the best is the simplest."
        longer = simplest["stats"]["total_time"] / best["stats"]["total_time"] - 1
        words = degrees_words(simplest["execution"])
        also = self._beside(simplest, best)
        slower = f"{_percent(longer).removeprefix('+')} slower"
        return f"{said}; the simplest of them ({slower} as predicted): {', '.join((words, *also))}."

    def _table(self, rows: Sequence[Document], best: Document, digits: Digits) -> Table:
        columns = (
            Column("plan", "plan"),
            Column("also", "other than the best", fold=True),
            Column("memory", "GiB", right=True),
            Column("time", "time", right=True),
            Column("longer", "longer", right=True),
            Column("sure", "sure", right=True, drop=1),
        )
        return Table(columns, [self._cells(row, best, digits) for row in rows])

    def _cells(self, row: Document, best: Document, digits: Digits) -> dict[str, str]:
        execution, stats = row["execution"], row["stats"]
        return {
            "plan": degrees_words(execution),
            "also": ", ".join(self._beside(row, best)) or "-",
            "memory": f"{stats['proc_mem_tier1_cap_req'] / GIB:.1f}",
            "time": digits.duration(stats["total_time"]),
            "longer": _percent(stats["total_time"] / best["stats"]["total_time"] - 1),
            "sure": chance(row["order"]["probability"]),
        }

    def _counts(self) -> Iterator[RenderableType]:
        rows = self.answer["counts"]
        if len(rows) < 2:
            return
        tokens = token_count(self.answer["question"]["tokens_told"])
        yield heading(
            "Processors", f"the best plan on each count, same batch; days for {tokens} tokens"
        )
        columns = (
            Column("procs", "count", right=True),
            Column("plan", "plan", fold=True),
            Column("time", "time", right=True),
            Column("rate", "tokens/s each", right=True),
            Column("mfu", "MFU", right=True),
            Column("days", "days", right=True),
        )
        yield indented(Table(columns, [self._count(row) for row in rows]))

    def _count(self, row: Document) -> dict[str, str]:
        if "execution" not in row:
            empty = dict.fromkeys(("time", "rate", "mfu", "days"), "-")
            return {
                "procs": f"{row['num_procs']:,}",
                "plan": f"none fits: {row['reason']}",
                **empty,
            }
        asked, stats, execution = self.answer["question"], row["stats"], row["execution"]
        digits = _digits(stats)
        tokens = asked["batch_size"] * asked["seq_size"] / stats["total_time"]
        return {
            "procs": f"{row['num_procs']:,}",
            "plan": degrees_words(execution),
            "time": digits.duration(stats["total_time"]),
            "rate": digits.rate(tokens / row["num_procs"]),
            "mfu": digits.efficiency(stats[mfu_name(execution)]),
            "days": digits.rate(row["training"]["campaign"]["days"]),
        }

    def _mine(self) -> Iterator[RenderableType]:
        mine = self.answer["mine"]
        if "execution" not in mine:
            yield heading("Mine", "it cannot run")
            yield indented(Text(mine["problem"]))
            return
        best = self.plans.get("0", mine)
        alike = _processors(mine) == _processors(best)
        where = "" if alike else f", on {counted(_processors(mine), 'processor')}"
        yield heading("Mine", self._words(mine["execution"]) + where)
        digits = _digits(mine["stats"])
        time = digits.duration(mine["stats"]["total_time"])
        memory = f"{mine['stats']['proc_mem_tier1_cap_req'] / GIB:.1f} GiB"
        low, high = (mine["stats"].get(name) for name in BOUNDS)
        ends = () if low is None or high is None else (low, high)
        told = (digits.duration(end, like=mine["stats"]["total_time"]) for end in ends)
        asked = self.answer["question"]
        rate = asked["batch_size"] * asked["seq_size"] / mine["stats"]["total_time"]
        days = digits.rate(mine["training"]["campaign"]["days"])
        tokens = token_count(mine["training"]["tokens"])
        said = f"{time}{' (' + between(*told) + ')' if ends else ''} a step, "
        said += f"MFU {digits.efficiency(mine['stats'][mfu_name(mine['execution'])])}, {memory}, "
        said += f"{digits.rate(rate / mine['execution']['num_procs'])} tokens/s each, {days} days for {tokens} tokens"
        if best is not mine and mine["execution"] == best["execution"]:
            said += ": the same plan as the best"
        elif "order" in mine and alike:
            ratio = mine["stats"]["total_time"] / best["stats"]["total_time"]
            said += f": {against_words(ratio - 1)}, {order_in_words(mine['order'])}"
        elif "order" in mine:
            said += f": {_percent(_each(best) / _each(mine) - 1)} processor time a sample against the best"
        yield indented(Text(said))

    def _waterfall(self, waterfall: Document) -> Iterator[RenderableType]:
        """Show the changes from one's own plan to the best."""
        if not waterfall["steps"]:
            return
        ends = (self.answer["mine"], self.plans["0"])
        digits = digits_of_differences(_digits(one["stats"]) for one in ends if "stats" in one)
        yield from (Text(), drawn(waterfall_section(waterfall, digits)))
        if untried := [f"{name}={plain(one)}" for name, one in self.answer["untried"].items()]:
            said = f"Not tried by the search: {', '.join(untried)}"
            options = " ".join(f"--add {one}" for one in untried)
            yield indented(Text(f"{said} ({options})", "dim"))

    def _settings(self, settings: Document) -> Iterator[RenderableType]:
        """Show what to change in one's own launch file."""
        mine, best = self.answer["mine"], self.plans["0"]
        margin, longer = mine.get("order", {}).get("margin"), None
        if "stats" in mine and _processors(mine) == _processors(best):
            longer = best["stats"]["total_time"] / mine["stats"]["total_time"] - 1
        yield Text()
        yield drawn(settings_section(settings, ("mine", "the best"), longer, margin))


_ITEM = "  - "
"""Beginning of the lines of a list."""

_SHOWN = 6

_TIES = (
    "Within {}, as the same run differs from day to day",
    "Not distinguishable by measured runs of like plans",
)
"""What the ties of an answer are: within so many percent, and within the margin of each."""


def _processors(plan: Document) -> int:
    return int(plan["execution"]["num_procs"])


def _each(plan: Document) -> float:
    """Return the samples that each processor of a plan computes a second."""
    return float(plan["stats"]["sample_rate"] / _processors(plan))


def against_words(longer: float) -> str:
    """Write how much longer a plan takes than the best.

    >>> against_words(0.0693), against_words(0.0)
    ('+7 % against the best', 'the same time as the best')
    """
    if abs(longer) < _LEAST_RATIO:
        return "the same time as the best"
    return f"{_percent(longer)} against the best"


def _percent(longer: float) -> str:
    """Write a relative difference with its sign.

    >>> _percent(0.0693), _percent(0.0004), _percent(1.52)
    ('+7 %', '0 %', '+152 %')
    """
    return f"{longer * 100:+.0f} %".replace("+0 %", "0 %").replace("-0 %", "0 %")


def _digits(stats: Document) -> Digits:
    """Return the digits that the interval of a plan leaves."""
    low, high = (stats.get(name) for name in BOUNDS)
    if low is None or high is None:
        return Digits(WITHOUT_INTERVAL)
    return Digits((high - low) / 2 / stats["total_time"])


def _add_training(table: Any, training: Document, digits: Digits, *, money: bool) -> None:
    """Add days and processor-hours of a whole run to the figures of a plan, and what failures do to them."""
    whole, days = training["campaign"], training["campaign"]["days"]
    ends = (whole["days_low"], whole["days_high"])
    add_interval(
        table, f"days for {token_count(training['tokens'])} tokens", days, ends, digits.rate
    )
    closer = Digits(digits.spread / 10)
    said = f"{closer.rate(training['days'])} d of steps, {closer.rate(days)} with failures"
    table.add_row("  goodput", f"{100 * whole['goodput']:.1f} %", said)
    for label, key in {"processor-hours": "processor_hours", "USD": "usd"}.items():
        if (value := whole[key]) is not None and (money or key != "usd"):
            low, high = (None if end is None else end / days * value for end in ends)
            add_interval(table, label, value, (low, high), digits.rate)


def _memory(best: Result) -> Iterator[RenderableType]:
    if best.stages:
        yield from (*stages_group(best.stages, best.digits), Text())
    used = best.value("proc_mem_tier1_cap_req")
    there = (best.capacities or (0.0, 0.0))[0]
    here = {kind: size for kind, size in best.memory()[0].items() if size > 0}
    largest = sorted(here.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{kind} {best.digits.gib(size)}" for kind, size in largest)
    free = best.digits.gib(there - used)
    yield heading(
        "Memory", f"{best.digits.gib(used)} of {best.digits.gib(there)} usable, {free} free"
    )
    yield indented(Text(f"largest: {parts}", "dim"))


def _how_sure(belief: Document) -> Iterator[RenderableType]:
    yield heading("How sure", belief["basis"])
    for label, text in remarks(belief):
        yield indented(Text.assemble((f"{label}: ", "bold"), text))
    if belief["nearest"]:
        yield indented(nearest_table(belief["nearest"]))
