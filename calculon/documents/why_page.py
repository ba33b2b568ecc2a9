"""Page of ``calculon why``: broken rules and the fewest changes that fix them, or the parts of the time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from calculon.advise.fixes import Fix
from calculon.advise.in_words import change_in_words
from calculon.advise.stage_needs import StageNeed
from calculon.advise.why import Why
from calculon.base.errors import in_words
from calculon.base.units import GIB, chance
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import plan_words
from calculon.declarations.preset_file import plain
from calculon.declarations.statistics import MEMORIES, RISK
from calculon.documents.confidence import risk_words
from calculon.documents.estimate_result import result_of
from calculon.documents.page import GROUP_COLORS, PARTS
from calculon.documents.page_title import titled
from calculon.documents.result import Result
from calculon.documents.setup import launch_lines
from calculon.plan.plan import all_fields
from calculon.render.bars import Bar, Share
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Block, Cell, Document, Grid, Section, bold, dim, headed
from calculon.render.texts import edition_and_preset

_MAX_PARTS = 6
"""Maximum number of parts of time or memory on the page."""

_MAX_STAGES = 4
"""Number of groups of stages up to which each has a line; otherwise only the fullest is shown."""

_MIN_SHARE = 0.001
"""Smallest share of the time that is shown as a part, or as a change of one."""

_ANOTHER = {
    "batch_size": "another batch: compared by the time of a sample",
    "num_procs": "other processor count",
}


def why_page(analysis: Why) -> Document:
    """Return the page of an explanation."""
    result = None if analysis.estimate is None else result_of(analysis.estimate)
    page = _WhyPage(analysis, result)
    lead: list[Block] = [plan_words(page.fields, analysis.preset.usual(page.fields))]
    if analysis.unread:
        values = ", ".join(f"{name}={plain(value)}" for name, value in analysis.unread.items())
        lead.append(dim(f"assumed instead: {values}"))
    asked = analysis.question
    terms = f"edition {edition_and_preset(asked)}"
    parts = page.broken() if result is None else page.running(result)
    return titled(page.title(), terms, asked["system"], lead=tuple(lead), parts=parts)


class _WhyPage:
    """Builder of the page of an explanation."""

    def __init__(self, analysis: Why, result: Result | None):
        self.found, self.result = analysis, result
        self.fields = analysis.execution.to_dict()
        published = analysis.execution.edition == PUBLISHED
        self.digits = result.digits if result else Digits(0.0 if published else WITHOUT_INTERVAL)

    def title(self) -> str:
        """Return the question with a short answer."""
        asked = self.found.question
        does = "cannot run"
        if self.result is not None:
            does = f"takes {self.digits.duration(self.result.value('total_time'))} per step"
        procs = f"{self.fields['num_procs']:,} x {stated_name(asked['system'])}"
        return f"Why {stated_name(asked['model'])} {does} on {procs}"

    def running(self, result: Result) -> Iterator[Section]:
        """Yield the sections for an execution that runs."""
        yield self._time(result)
        yield self._free_memory()
        if self.found.fits is not None and self.found.fits < 1 - RISK:
            yield self._safer()
        yield from (self._better(), self._options())

    def broken(self) -> Iterator[Section]:
        """Yield the sections for an execution that cannot run."""
        if self.found.failures:
            yield self._failures()
        yield from map(self._short, self.found.short)
        yield self._proposals()

    def _failures(self) -> Section:
        found = self.found.failures
        rows = []
        for one in found:
            place = bold(one.field or next(iter(one.fields), "system"))
            # A rule without a field is about the system.
            rows.append((place, (one.message, dim(f" ({one.hint})" if one.hint else ""))))
        remark = "all broken rules" if len(found) > 1 else ""
        return _section("What is wrong", remark, Grid(("left", "text"), tuple(rows)))

    def _short(self, tier: int) -> Section:
        """Return the stages with too little memory, and the contents of their memory."""
        gib, short = self.digits.gib, self.found.short[tier]
        worst, least = short[0], gib(short[-1].over(tier))

        def excess(one: StageNeed) -> str:
            return "fits" if one.over(tier) <= 0 else gib(one.over(tier))

        needed, there = worst.needed[tier - 1], worst.available[tier - 1]
        remark = f"{gib(needed)} needed, {gib(there)} usable: {gib(worst.over(tier))} too much"
        if tier == 1 and self.found.fits is not None:
            remark += f"; it fits with a probability of {chance(self.found.fits)}"
        rest = f"{len(short)} of {len(self.found.stages)} stages exceed the memory"
        rest += f": {least} at least" if len(short) > 1 else ""
        columns = {"needed": lambda one: gib(one.needed[tier - 1]), "too much": excess}
        return self._memory(tier, MEMORIES[tier - 1].capitalize(), remark, columns, rest)

    def _free_memory(self) -> Section:
        """Return the free memory of every stage."""
        gib, stages = self.digits.gib, self.found.stages
        fullest = max(stages, key=lambda one: one.over(1))
        emptiest = min(stages, key=lambda one: one.over(1))
        where = f" on stage {fullest.stage}" if len(stages) > 1 else ""
        needed, there = gib(fullest.needed[0]), gib(fullest.available[0])
        remark = f"{needed} of {there} usable, {self.digits.left(-fullest.over(1))}{where}"
        if self.found.fits is not None:
            remark += f"; {risk_words(self.found.fits)}"
        rest = f"up to {self.digits.left(-emptiest.over(1))}, on stage {emptiest.stage}"
        return self._memory(1, "Memory", remark, {"free": lambda one: gib(-one.over(1))}, rest)

    def _memory(
        self,
        tier: int,
        title: str,
        remark: str,
        columns: Mapping[str, Callable[[StageNeed], str]],
        rest: str,
    ) -> Section:
        """Return the memory of stages: some figures, and its contents; for many stages, the fullest and a summary."""
        stages = self.found.stages
        if len(stages) == 1:
            return _section(title, remark, self._parts(stages[0], tier))
        groups = _alike(stages, tier)
        rows = []
        # With many groups only the fullest matters for fitting.
        for group in groups if len(groups) <= _MAX_STAGES else groups[:1]:
            figures = (text(group[0]) for text in columns.values())
            rows.append((_numbers(group), *figures, self._parts(group[0], tier)))
        kinds = ("left", *["right"] * len(columns), "text")
        grid = headed(kinds, ("", *columns, "contents"), rows)
        return _section(title, remark, grid, *[rest] * (len(groups) > _MAX_STAGES))

    def _parts(self, stage: StageNeed, tier: int) -> str:
        """Return the contents of a stage's memory."""
        items = list(stage.parts[tier - 1].items())
        shown = [f"{kind} {self.digits.gib(size)}" for kind, size in items[:_MAX_PARTS]]
        if rest := sum(size for _, size in items[_MAX_PARTS:]):
            shown.append(f"the rest {self.digits.gib(rest)}")
        return ", ".join(shown)

    def _proposals(self) -> Section:
        found = self.found.proposals
        if not found:
            words = (
                "No three changes, no other batch, and no larger processor count up to 64 times."
            )
            return _section("What would make it fit", "nothing that was tried", words)
        last = "; another batch last" if any("batch_size" in one.changes for one in found) else ""
        risky = (
            f"; changes that fit with less than {chance(1 - RISK)} last"
            if any(one.risky for one in found)
            else ""
        )
        remark = f"fewest changes first, then the smallest{risky}{last}"
        return _section("What would make it fit", remark, self._changes(found, "slower"))

    def _safer(self) -> Section:
        """Return the changes that lower the risk of running out of memory to the accepted one."""
        found, title = self.found.proposals, "What would make it fit"
        remark = f"with a risk of running out of at most {chance(RISK)}"
        if not found:
            return _section(title, remark, "nothing that was tried")
        return _section(title, remark, self._changes(found, "against now"))

    def _changes(self, several: Sequence[Fix], title: str) -> Grid:
        """Return a table of changes with their memory and time, each followed by its consequences."""
        rows: list[tuple[Cell, ...]] = []
        known = any(one.fits is not None for one in several)
        reasons = {one.that.text: one.words for one in self.found.preset.practice}
        for one in several:
            changes = "\n".join(self._change(one, name) for name in one.changes)
            memory, time = self.digits.gib(one.memory[0]), self.digits.duration(one.total_time)
            longer = percent_more(one.longer) if one.longer else "fastest of these"
            fits = "" if one.fits is None else chance(one.fits)
            rows.append((changes, memory, *[fits] * known, time, longer))
            follows = self._following(one)
            notes = [f"with {follows}"] if follows else []
            notes += [f"unusual: {reasons.get(text, text)}" for text in one.unusual]
            if one.asks_for_another:
                notes.append(_ANOTHER[one.asks_for_another])
            if notes:
                rows.append((dim("; ".join(notes), indent=2),))
        kinds = ("text", *["right"] * (3 + known))
        return headed(kinds, ("change", "memory", *["fits"] * known, "time", title), rows)

    def _change(self, fix: Fix, name: str) -> str:
        """Return a change in words, and the field that states it."""
        value = plain(fix.changes[name])
        if name in self.found.unread:
            return f"{name}={value}"
        before = all_fields(self.found.execution)
        words = change_in_words(before, {**before, name: fix.changes[name]}, [name])
        return words if name in words else f"{words} ({name}={value})"

    def _following(self, fix: Fix) -> str:
        """Return the number of replicas that follows from the changes of a fix; empty if it stays the same."""
        before = {**all_fields(self.found.execution), **fix.changes}
        return change_in_words(before, {**before, **fix.follows}, [])

    def _time(self, result: Result) -> Section:
        """Return the largest parts of the time."""
        total = result.value("total_time")
        parts = sorted(result.times().items(), key=lambda one: -one[1])
        shown = [(name, time) for name, time in parts if time > _MIN_SHARE * total][:_MAX_PARTS]
        seconds = self.digits.seconds([time for _, time in shown], total)
        rows = []
        for (name, time), text in zip(shown, seconds, strict=True):
            words, group = PARTS[name]
            bar = Bar((Share(time / total, GROUP_COLORS[group]),))
            rows.append((words, text, self.digits.share(time / total), bar))
        grid = Grid(("left", "right", "right", "wide"), tuple(rows))
        lines = launch_lines(result)
        return _section("What takes the time", self.digits.duration(total), grid, *lines)

    def _better(self) -> Section:
        found = self.found.better
        if not found:
            return _section("What would be faster", "no change of one or two fields")
        words = ", and the best two" if len(found) > 1 else "; no pair saves more"
        table = self._changes(found, "vs. now")
        return _section("What would be faster", f"the best change{words}", table)

    def _options(self) -> Section:
        """Return the saving of each option: its time compared with the time without it."""
        title, several = "What the options save", self.found.contributions
        if not several:
            return _section(title, "none differs from its default")
        rows = []
        for one in several:
            time = "-" if one.gain is None else percent_more(one.gain)
            memory = "-" if math.isnan(one.memory) else gib_more(one.memory)
            option = f"{one.field}={plain(one.value)}"
            note = _needed(one.reason) or _risk(one.fits)
            rows.append((option, plain(one.without), time, memory, dim(note)))
        titles = ("option", "reset to", "time", "memory", "")
        grid = headed(("left", "left", "right", "right", "text"), titles, rows)
        return _section(title, "each reset separately", grid)


def _section(title: str, remark: str, *blocks: Block) -> Section:
    """Return a section that is never folded."""
    return Section(title, blocks, remark, opened=True)


def _alike(stages: Sequence[StageNeed], tier: int) -> list[list[StageNeed]]:
    """Group neighboring stages with equal memory; largest memory first."""
    groups = [list(group) for _, group in groupby(stages, lambda one: one.needed[tier - 1])]
    return sorted(groups, key=lambda group: -group[0].needed[tier - 1])


def _numbers(group: Sequence[StageNeed]) -> str:
    """Return the numbers of the stages of a group."""
    first, last = group[0].stage, group[-1].stage
    return f"stage {first}" if first == last else f"stage {first} to {last}"


def _needed(reason: str) -> str:
    """Return the reason why the execution cannot run without an option.

    >>> _needed("mem1_capacity"), _needed("offload_blocks"), _needed("")
    ('it does not fit', 'not without: offloading with fewer than 3 blocks per stage', '')
    """
    if reason.endswith("_capacity"):
        return "it does not fit"
    if reason.startswith("framework"):
        return "the framework needs it"
    return f"not without: {in_words(reason)}" if reason else ""


def _risk(fits: float | None) -> str:
    """Return the probability that an execution fits without an option, if it is below the accepted one.

    >>> _risk(0.34), _risk(0.95), _risk(None)
    ('it fits with 34 %', '', '')
    """
    return "" if fits is None or fits >= 1 - RISK else f"it fits with {chance(fits)}"


def percent_more(longer: float) -> str:
    """Write a relative difference of times with its sign.

    >>> percent_more(0.0693), percent_more(-0.031), percent_more(0.00004), percent_more(1.524)
    ('+6.9 %', '-3.1 %', '0.0 %', '+152 %')
    """
    if abs(longer) < _MIN_SHARE / 2:
        return "0.0 %"
    return f"{longer * 100:+.0f} %" if abs(longer) >= 1 else f"{longer * 100:+.1f} %"


def gib_more(size: float) -> str:
    """Write a difference of memory with its sign.

    >>> gib_more(-12.34 * GIB), gib_more(0.0)
    ('-12.3 GiB', '0')
    """
    return f"{size / GIB:+.1f} GiB" if abs(size) >= 0.05 * GIB else "0"
