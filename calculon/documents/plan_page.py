"""Page of a plan: the best plan in words and figures, alternatives, other processor counts, and the user's plan."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from calculon.advise.answer import Answer
from calculon.base.errors import printable
from calculon.base.records import Plain
from calculon.base.units import chance, scaled
from calculon.declarations.named_values import product_type
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
from calculon.declarations.preset_file import plain
from calculon.declarations.recipes import NO_RECIPE
from calculon.declarations.spellings.precisions import precision_word
from calculon.declarations.statistics import FITS, mfu_name
from calculon.documents.confidence import (
    WHY_TIED,
    above_label,
    above_text,
    confidence_section,
    none_within,
    order_in_words,
    risk_words,
    short_basis,
    with_risk,
)
from calculon.documents.context_section import context_section
from calculon.documents.estimate_result import result_of
from calculon.documents.expert_section import experts_section
from calculon.documents.headline import headline
from calculon.documents.page_title import borrowed_words, titled
from calculon.documents.plans_table import digits_of, duration_between
from calculon.documents.result import Result
from calculon.documents.run_defaults import defaults_line, run_rows
from calculon.documents.settings_section import settings_section
from calculon.documents.setup import Row, interval_heads, launch_lines, precision_lines, speed_rows
from calculon.documents.stage_table import stages_section
from calculon.documents.waterfall_section import digits_of_differences, waterfall_section
from calculon.render.digits import Digits
from calculon.render.document import Block, Document, Grid, Line, Section, bold, dim, labeled
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, gibibytes, token_count
from calculon.search.override_checks import COMMAND_LINE

Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Function of the values that a preset gives to fields (:meth:`calculon.declarations.presets.Preset.usual`)."""

_MIN_RATIO = 1e-4
"""Relative difference below which two times count as equal."""

_ITEM = "  - "
"""Prefix of list items."""

_SHOWN = 6


_OTHERS = 2
"""Number of other plans on a short page: the fastest, if it is riskier, and the best of other splits."""

_OF_THE_MACHINE = ("the spread between", "residuals of kernels", "kernels of")
"""Prefixes of clauses about measurements of the machine, which the page title reports already."""


def plan_page(answer: Answer, *, short: bool = False) -> Document:
    """Return the page of a plan result; a `short` one has the plan, its figures, alternatives and assumptions."""
    page = _PlanPage(answer)
    return page.short() if short else page.document()


_FIGURES = {"time": "time", "mfu": "MFU", "days": "days"}
"""Figures of other plans on a short page, with their titles."""


class _PlanPage:
    """Builder of the page of a plan result."""

    def __init__(self, answer: Answer):
        self.answer = answer.to_dict()
        self.unfit = answer.unfit
        self.asked: Plain = self.answer["question"]
        self.plans: Plain = self.answer["plans"]
        self.best = None if answer.best is None else result_of(answer.best)
        self.preset = answer.question.preset

    def document(self) -> Document:
        return titled(
            self._title(),
            f"edition {self.asked['edition']}",
            self.asked["system"],
            lead=(labeled(self._question()),),
            parts=filter(None, self._parts()),
        )

    def _title(self) -> str:
        procs = f"{self.asked['num_procs'][0]:,} x {stated_name(self.asked['system'])}"
        return f"Plan for {stated_name(self.asked['model'])} on {procs}"

    def short(self) -> Document:
        """Return the page in about 20 lines, with notes on the machine among the assumptions."""
        best = (
            self._best_in_short(self.best) if self.best is not None else self._nothing(short=True)
        )
        others = None if self.best is None else self._others()
        parts = (best, others, self._mine(), self._waterfall(), self._settings())
        return titled(
            self._title(),
            f"preset {self.preset.name}",
            {**self.asked["system"], "note": "", "borrowed": {}},
            parts=filter(None, (*parts, dim(self._assumed()))),
        )

    def _best_in_short(self, best: Result) -> Section:
        """Return the best plan with time, utilization, days, dollars, and memory."""
        whole = self._best(best, short=True)
        (grid,) = (block for block in whole.blocks if isinstance(block, Grid))
        training = self.plans["0"]["training"]
        short = replace(grid, rows=(grid.rows[0], *headline(best, training)))
        blocks = (short if block is grid else block for block in whole.blocks)
        return replace(whole, blocks=(*blocks, *self._above_risk()))

    def _others(self) -> Section:
        """Return the fastest plan, the next best splits, and the best plans for other processor counts."""
        here = self.asked["num_procs"][0]
        fastest = self.answer["fastest"]
        # Risky but faster plans come first, because users ask for them.
        named = [] if fastest is None else [("faster, riskier: ", fastest)]
        left = _OTHERS - len(named)
        named += [("", one) for one in list(self.plans.values())[1 : 1 + left]]
        others = [row for row in self.answer["counts"] if row["num_procs"] != here]
        rows = [self._other(name + _degrees(one), one) for name, one in named]
        if (narrower := self.answer["narrower"]) is not None:
            rows.append(self._other(_narrower_words(narrower["execution"]), narrower))
        rows += [self._other(f"on {row['num_procs']:,}: {_degrees(row)}", row) for row in others]
        plans = [one for one in (*(one for _, one in named), *others) if "execution" in one]
        same = all(one["execution"]["batch_size"] == self.asked["batch_size"] for one in plans)
        columns = (
            Column("plan", f"other plans{', same batch' if same else ''}", fold=True),
            Column("memory", "GiB", right=True),
            Column("fits", "fits", right=True, drop=1),
            *(Column(name, title, right=True) for name, title in _FIGURES.items()),
        )
        return Section("", (Table(columns, rows),), opened=True)

    def _other(self, name: str, plan: Plain) -> dict[str, str]:
        """Return the row of an alternative plan."""
        if "execution" not in plan:
            # Counts without a plan keep a row, so that users see that they were tried.
            empty = dict.fromkeys(("memory", "fits", *_FIGURES), "-")
            return {"plan": name, **empty}
        fits = plan["stats"][FITS]
        return {
            "plan": name,
            "memory": _gib(plan),
            "fits": "-" if fits is None else chance(fits),
            **{one: self._figures(plan)[one] for one in _FIGURES},
        }

    def _assumed(self) -> str:
        """Return the assumptions, the options that change them, and the option that shows everything."""
        note = self.asked["system"].get("note")
        # The note of the title ("x: SXM; also PCIe") becomes a clause ("x is SXM (not PCIe)").
        words = [note.replace(":", " is", 1).replace("; also ", " (not ") + ")"] if note else []
        if borrowed := borrowed_words(self.asked["system"]):
            words.append(borrowed)
        words += [
            f"{value.partition(', of ')[0]} ({option})"
            for option, value in self._defaults().items()
        ]
        assumed = f"Assumed: {', '.join(words)}. " if words else ""
        if self.plans and self.plans["0"]["training"]["price"] is None:
            assumed += "No price is known (--price). "
        return printable(f"{assumed}{self._rests()}-v: everything.")

    def _defaults(self) -> dict[str, str]:
        """Return the defaults by option, with the tokens of the run if a plan has figures of one."""
        defaults: dict[str, str] = self.asked["assumed"]
        if self.asked["tokens"] or not self.plans:
            return defaults
        return {**defaults, "--tokens": f"{token_count(self.asked['tokens_told'])} tokens"}

    def _rests(self) -> str:
        """Return the evidence of the prediction interval in short."""
        basis = self.answer.get("belief", {}).get("basis", "")
        clauses = [
            one for one in short_basis(basis).split("; ") if not one.startswith(_OF_THE_MACHINE)
        ]
        return f"90 % interval: {'; '.join(clauses)}. " if basis else ""

    def _parts(self) -> Iterator[Block | None]:
        if self.best is None:
            yield self._nothing()
        else:
            yield self._best(self.best)
            if self.best.stages:
                yield stages_section(self.best.stages, self.best.digits)
            yield self._memory(self.best)
            yield context_section(self.best, table=False)
            yield experts_section(self.best)
            yield self._alternatives(self.best.digits.closer)
        yield from (self._counts(), self._mine(), self._waterfall(), self._settings())
        if "belief" in self.answer:
            # The exceeded runs are already below the headline.
            yield confidence_section({**self.answer["belief"], "above": ()})
        if self.asked["tokens"] or self.plans:
            price = self.plans["0"]["training"]["price"] if self.plans else None
            prices = [] if price is None else [price]
            line = defaults_line(self.asked["assumed_of_run"], prices)
            yield dim(line) if line else None

    def _question(self) -> dict[str, Line]:
        asked = self.asked
        tokens = scaled(asked["batch_size"] * asked["seq_size"])
        batch = f"{counted(asked['batch_size'], 'sequence')} of {asked['seq_size']:,}"
        assumed = (f"{value} ({option})" for option, value in self._defaults().items())
        tried, fit = self.answer["tried"], self.answer["feasible"]
        return {
            "framework": printable(self.preset.words),
            "batch": f"{batch} = {tokens} tokens per step",
            "assumed": printable(", ".join(assumed)),
            "tried": f"{counted(tried, 'plan')}, of which {fit:,} fit",
        }

    def _nothing(self, *, short: bool = False) -> Section:
        """Return the reasons why no plan fits, and a list of changes that would make one fit."""
        assert self.unfit is not None
        lines = (self.unfit.in_short if short else self.unfit.lines)(COMMAND_LINE)
        # List items become a grid, whose texts wrap with a hanging indent.
        texts: list[Block] = [line for line in lines if not line.startswith(_ITEM)]
        items = [("-", line.removeprefix(_ITEM)) for line in lines if line.startswith(_ITEM)]
        if items:
            texts.append(Section("", (Grid(("text", "text"), tuple(items), gap=1),)))
        uncertain = self.unfit.uncertain
        title = f"No plan is predicted to fit; {uncertain}." if uncertain else "No plan fits."
        return Section(title, tuple(texts), opened=True)

    def _best(self, best: Result, *, short: bool = False) -> Section:
        whole = self.plans["0"]["training"]
        rows = (
            interval_heads(best.interval or {}),
            *speed_rows(best),
            *_training_rows(whole, best.digits),
        )
        words = self._words(self.plans["0"])
        blocks: list[Block] = [Grid(("left", "right", "text"), rows, heads=1), *launch_lines(best)]
        blocks += precision_lines(best)
        if above := (best.belief or {}).get("above"):
            text = above_text(above, short=short)
            blocks.insert(0, (bold(f"{above_label(above)}: "), f"{text}."))
        return Section(f"Best: {words}", tuple(blocks), opened=True)

    def _memory(self, best: Result) -> Section:
        gib = best.digits.gib
        used = best.value("proc_mem_tier1_cap_req")
        there = (best.capacities or (0.0, 0.0))[0]
        # Four kinds of memory cover nearly everything; the rest is on the page of the estimate.
        kinds = sorted(best.memory()[0].items(), key=lambda item: -item[1])[:4]
        parts = ", ".join(f"{kind} {gib(size)}" for kind, size in kinds if size > 0)
        left, risk = best.digits.left(there - used), risk_words(best.fits)
        remark = f"{gib(used)} of {gib(there)} usable, {left}; {risk}"
        blocks = (dim(f"largest: {parts}"), *self._fastest())
        return Section("Memory", blocks, remark)

    def _fastest(self) -> Iterator[Line]:
        """Yield a note if all plans are too risky, and the fastest plan and its risk if another is recommended."""
        yield from self._above_risk()
        if (fastest := self.answer["fastest"]) is not None:
            about = f"{_gib(fastest)} GiB, {_percent(self._longer(fastest))}, {risk_words(fastest['stats'][FITS])}"
            yield "Fastest: ", bold(self._words(fastest)), f" ({about})"

    def _above_risk(self) -> Iterator[str]:
        """Yield a note if even the best plan has more than the accepted risk of running out of memory."""
        fits, risk = self.plans["0"]["stats"][FITS], self.asked["risk"]
        if fits is not None and 1 - fits > risk:
            yield none_within(risk, fits)

    def _alternatives(self, digits: Digits) -> Section | None:
        plans = list(self.plans.values())[1:_SHOWN]
        if not plans:
            return None
        blocks: list[Block] = [self._table(plans, digits)]
        tie = self.answer["tie"]
        blocks.append(f"Too close to the best to call, judging by measured runs: {self._tie(tie)}")
        if tie["plans"] > 1:
            blocks.append(dim(f"{WHY_TIED}."))
        return Section(
            "Next best", tuple(blocks), "best plan for every other TP/PP/DP split", opened=True
        )

    def _tie(self, tie: Plain) -> str:
        """Return the number of plans that are not distinguishable from the best, and the simplest of them."""
        if tie["plans"] == 1:
            return "none."
        said, simplest = f"{tie['plans']} plans", tie["simplest"]
        if simplest["execution"] == self.plans["0"]["execution"]:
            return f"{said}; the best is the simplest."
        slower = _percent(self._longer(simplest)).removeprefix("+")
        words = ", ".join((degrees_words(simplest["execution"]), *self._changed(simplest)))
        return f"{said}; the simplest (predicted {slower} slower): {words}."

    def _table(self, plans: Sequence[Plain], digits: Digits) -> Table:
        columns = (
            Column("plan", "plan"),
            Column("also", "changes", fold=True),
            Column("memory", "GiB", right=True),
            Column("fits", "fits", right=True, drop=2),
            Column("time", "time", right=True),
            Column("longer", "longer", right=True),
            Column("sure", "sure", right=True, drop=1),
        )
        rows = [
            {
                "plan": degrees_words(one["execution"]),
                "also": ", ".join(self._changed(one)) or "-",
                "memory": _gib(one),
                "fits": "-" if one["stats"][FITS] is None else chance(one["stats"][FITS]),
                "time": digits.duration(one["stats"]["total_time"]),
                "longer": _percent(self._longer(one)),
                "sure": chance(one["order"]["probability"]),
            }
            for one in plans
        ]
        return Table(columns, rows)

    def _counts(self) -> Section | None:
        rows = self.answer["counts"]
        if len(rows) < 2:
            return None
        columns = (
            Column("procs", "count", right=True),
            Column("plan", "plan", fold=True),
            Column("time", "time", right=True),
            Column("rate", "tokens/s each", right=True),
            Column("mfu", "MFU", right=True),
            Column("days", "days", right=True),
        )
        cells = [{"procs": f"{row['num_procs']:,}", **self._count(row)} for row in rows]
        tokens = token_count(self.asked["tokens_told"])
        remark = f"best plan for each processor count, same batch; days for {tokens} tokens"
        return Section("Processors", (Table(columns, cells),), remark, opened=True)

    def _count(self, row: Plain) -> dict[str, str]:
        if "execution" not in row:
            empty = dict.fromkeys(("time", "rate", "mfu", "days"), "-")
            return {"plan": f"none fits: {row['reason']}", **empty}
        words = with_risk(degrees_words(row["execution"]), row["stats"][FITS], self.asked["risk"])
        return {"plan": words, **self._figures(row)}

    def _figures(self, plan: Plain) -> dict[str, str]:
        """Return time, tokens/s per processor, MFU and days of a plan, with the digits that its interval allows."""
        stats, digits = plan["stats"], digits_of(plan["stats"])
        tokens = self._step_tokens(plan) / stats["total_time"]
        return {
            "time": digits.duration(stats["total_time"]),
            "rate": digits.rate(tokens / _processors(plan)),
            "mfu": digits.efficiency(stats[mfu_name(plan["execution"])]),
            "days": digits.rate(plan["training"]["campaign"]["days"]),
        }

    def _step_tokens(self, plan: Plain) -> int:
        """Return the tokens per step of a plan; the user's plan may have another batch than the question."""
        tokens: int = round(plan["training"]["tokens"] / plan["training"]["steps"])
        return tokens

    def _token_rate(self, plan: Plain) -> float:
        """Return the tokens/s of each processor of a plan."""
        return float(self._step_tokens(plan) / plan["stats"]["total_time"] / _processors(plan))

    def _same_step(self, one: Plain, other: Plain) -> bool:
        """Return True if two plans train equally many tokens per step on equally many processors."""
        tokens = self._step_tokens(one) == self._step_tokens(other)
        return tokens and _processors(one) == _processors(other)

    def _mine(self) -> Section | None:
        mine = self.answer.get("mine")
        if mine is None:
            return None
        if "execution" not in mine:
            return Section("Mine", (mine["problem"],), "it cannot run", opened=True)
        best = self.plans.get("0", mine)
        where = ""
        if _processors(mine) != _processors(best):
            where = f", on {counted(_processors(mine), 'processor')}"
        if mine["execution"]["batch_size"] != self.asked["batch_size"]:
            where += f", batch {mine['execution']['batch_size']:,}"
        known, ends = self._figures(mine), duration_between(mine["stats"])
        tokens = token_count(mine["training"]["tokens"])
        said = (
            f"{known['time']}{f' ({ends})' if ends else ''} per step, MFU {known['mfu']}, {_gib(mine)} GiB "
            f"({risk_words(mine['stats'][FITS])}), "
            f"{known['rate']} tokens/s per processor, {known['days']} days for {tokens} tokens"
        )
        return Section(
            "Mine", (said + self._against(mine),), self._words(mine) + where, opened=True
        )

    def _against(self, mine: Plain) -> str:
        """Compare the user's plan with the best; empty if no plan fits."""
        if not self.plans:
            return ""
        best = self.plans["0"]
        if mine["execution"] == best["execution"]:
            return ": the same plan as the best"
        if "order" not in mine:
            return ""
        # Step times are only comparable for equal work; otherwise processor time per token is.
        if not self._same_step(mine, best):
            each = self._token_rate(best) / self._token_rate(mine) - 1
            return f": {_percent(each)} processor time per token compared with the best"
        return f": {against_words(self._longer(mine))}, {order_in_words(mine['order'])}"

    def _waterfall(self) -> Section | None:
        """Return the changes from the user's plan to the best."""
        waterfall = self.answer.get("waterfall")
        if not waterfall or not waterfall["steps"]:
            return None
        ends = (self.answer["mine"], self.plans["0"])
        # Both plans share their errors, so differences deserve more digits.
        digits = digits_of_differences(digits_of(one["stats"]) for one in ends if "stats" in one)
        untried = [f"{name}={plain(one)}" for name, one in self.answer["untried"].items()]
        options = " ".join(f"--add {one}" for one in untried)
        note = f"Not tried by the search: {', '.join(untried)} ({options})"
        section = waterfall_section(waterfall, digits)
        return replace(section, blocks=(*section.blocks, *[dim(note)] * bool(untried)))

    def _settings(self) -> Section | None:
        """Return the changes to the user's launch file."""
        settings = self.answer.get("settings")
        if not settings or not settings["changes"]:
            return None
        mine, best = self.answer["mine"], self.plans["0"]
        longer = None
        if "stats" in mine and self._same_step(mine, best):
            longer = best["stats"]["total_time"] / mine["stats"]["total_time"] - 1
        margin = mine.get("order", {}).get("margin")
        return settings_section(settings, ("mine", "the best"), longer, margin)

    def _words(self, plan: Plain) -> str:
        return plan_words(plan["execution"], self.preset.usual(plan["execution"]))

    def _changed(self, plan: Plain) -> list[str]:
        return changed_words(plan["execution"], self.plans["0"]["execution"], self.preset.usual)

    def _longer(self, plan: Plain) -> float:
        """Return the relative excess of a plan's step time over the best."""
        return float(plan["stats"]["total_time"] / self.plans["0"]["stats"]["total_time"] - 1)


def changed_words(one: Plain, best: Plain, usual: Usual) -> list[str]:
    """Return the words of an execution that the best lacks, with resulting expert widths (ETP)."""
    # A default width depends on the other degrees: equal fields may result in different widths.
    width, best_width = (f"ETP {expert_width(execution)}" for execution in (one, best))
    own, shared = choices_words(one, usual(one)), (*choices_words(best, usual(best)), width)
    words = [word for word in own if word not in shared]
    if spreads_experts(one) and width != best_width:
        words.append(width)
    # No recomputation has no word of its own, but it is a change if the best recomputes.
    if recomputes(best) and not recomputes(one) and NO_RECOMPUTE not in own:
        words.append(NO_RECOMPUTE)
    return words


def _degrees(plan: Plain) -> str:
    """Return the degrees of a plan, or "none fits"."""
    known = plan.get("execution")
    return degrees_words(known) if known else "none fits"


def against_words(longer: float) -> str:
    """Write a plan's step time relative to the best.

    >>> against_words(0.0693), against_words(0.0)
    ('+7 % compared with the best', 'the same time as the best')
    """
    if abs(longer) < _MIN_RATIO:
        return "the same time as the best"
    return f"{_percent(longer)} compared with the best"


def _percent(longer: float) -> str:
    """Write a relative difference with its sign.

    >>> _percent(0.0693), _percent(0.0004), _percent(1.52)
    ('+7 %', '0 %', '+152 %')
    """
    return f"{longer * 100:+.0f} %".replace("+0 %", "0 %").replace("-0 %", "0 %")


def _gib(plan: Plain) -> str:
    return gibibytes(plan["stats"]["proc_mem_tier1_cap_req"], 1)


def _processors(plan: Plain) -> int:
    return int(plan["execution"]["num_procs"])


def _training_rows(training: Plain, digits: Digits) -> Iterator[Row]:
    """Yield days, goodput, processor-hours and dollars of a whole run with a plan."""
    whole = training["campaign"]
    yield from run_rows(
        whole, {f"days for {token_count(training['tokens'])} tokens": "days"}, digits
    )
    steps, days = (digits.closer.rate(one) for one in (training["days"], whole["days"]))
    goodput = f"{100 * whole['goodput']:.1f} %"
    yield "  goodput", goodput, f"{days} d with failures, {steps} d without"
    yield from run_rows(whole, {"processor-hours": "processor_hours", "USD": "usd"}, digits)


_PEAKS = {"float8": "FP8", "float4": "FP4"}
"""Words for the peaks of narrow types, to which the MFU of their plans refers."""


def _narrower_words(execution: Plain) -> str:
    """Return the precision of a plan, and the peak that its MFU refers to if it is higher than in 16 bits.

    >>> _narrower_words({"datatype": "bfloat16", "fp8_recipe": "blockwise"})
    'with --dtype fp8-blockwise (MFU of the FP8 peak)'
    >>> _narrower_words({"datatype": "float16"})
    'with --dtype fp16'
    """
    words = f"with --dtype {precision_word(execution)}"
    product = product_type(
        execution["datatype"],
        execution.get("matmul_dtype", "same"),
        execution.get("fp8_recipe", NO_RECIPE),
    )
    return f"{words} (MFU of the {_PEAKS[product]} peak)" if product in _PEAKS else words
