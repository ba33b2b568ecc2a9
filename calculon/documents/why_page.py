"""The page of ``calculon why``: what is wrong and the fewest changes that mend it, or what takes the time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from calculon.base.errors import in_words
from calculon.base.units import GIB
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import plan_words
from calculon.declarations.presets import plain
from calculon.documents.page import GROUP_COLORS, PARTS
from calculon.documents.page_title import page_title
from calculon.documents.result import Result
from calculon.render.bars import Bar, Share
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.grids import grid, indented, styled
from calculon.render.texts import edition_and_preset, heading

Document = Mapping[str, Any]
Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.declarations.presets.Preset.usual`)."""

_MOST_PARTS = 6
"""Parts of time or of memory that are told."""

_MOST_STAGES = 4
"""Groups of stages up to which each is told; of more, the fullest alone."""

_LEAST_SHARE = 0.001
"""Share of the time from which on a part is told, and a change of it."""

_ANOTHER = {
    "batch_size": "another batch: compared by the time of a sample",
    "num_procs": "other processors",
}

_DEFAULTS = optional_defaults(Execution)


class WhyPage:
    """The page of an answer; it lays itself out for the width at hand.

    Parameters
    ----------
    answer : mapping
        The answer as plain data (:meth:`calculon.advise.why.Why.to_dict`).
    result : Result or None
        The execution with its stages, where it runs.
    usual : callable
        What needs no word of an execution.
    """

    def __init__(self, answer: Document, result: Result | None, usual: Usual):
        self.answer, self.result, self.usual = answer, result, usual
        self.fields: Document = answer["question"]["execution"]["fields"]
        published = answer["question"]["edition"] == PUBLISHED
        self.digits = result.digits if result else Digits(0.0 if published else WITHOUT_INTERVAL)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._title()
        if self.result is not None:
            yield from (Text(), *self._time(self.result), Text(), *self._room())
            yield from (Text(), *self._better(), Text(), *self._options())
            return
        if self.answer["failures"]:
            yield from (Text(), *self._failures())
        for tier in self.answer["short"]:
            yield from (Text(), *self._short(int(tier)))
        yield from (Text(), *self._proposals())

    def _title(self) -> Iterator[RenderableType]:
        asked = self.answer["question"]
        terms = edition_and_preset(asked)
        procs = f"{self.fields['num_procs']:,} x {stated_name(asked['system'])}"
        does = "runs" if self.answer["runs"] else "cannot run"
        title = f"Why {stated_name(asked['model'])} {does} on {procs}"
        if self.result is not None:
            time = self.digits.duration(self.result.value("total_time"))
            title = f"Why {stated_name(asked['model'])} takes {time} a step on {procs}"
        yield from page_title(title, f"edition {terms}", asked["system"])
        yield indented(Text(plan_words(self.fields, self.usual(self.fields))))
        if unread := self.answer["unread"]:
            told = ", ".join(f"{name}={plain(value)}" for name, value in unread.items())
            yield indented(Text(f"read as with {told}", "dim"))

    def _failures(self) -> Iterator[RenderableType]:
        found = self.answer["failures"]
        yield heading("What is wrong", "every rule that it breaks" if len(found) > 1 else "")
        table = grid("left", "text")
        for one in found:
            text = Text(one["message"])
            if one["hint"]:
                text.append(f" ({one['hint']})", "dim")
            place = one["field"] or next(iter(one["fields"]), "system")
            table.add_row(Text(place, "bold"), text)
        yield indented(table)

    def _short(self, tier: int) -> Iterator[RenderableType]:
        """Tell by stage how much memory lacks, and what fills it."""
        stages = self.answer["stages"]
        place = tier - 1
        worst = max(stages, key=lambda one: one["over"][place])
        said = (
            f"{self.digits.gib(worst['needed'][place])} needed, "
            f"{self.digits.gib(worst['available'][place])} usable: {self.digits.gib(worst['over'][place])} too much"
        )
        yield heading(f"Tier-{tier} memory", said)
        table = grid("left", "right", "right", "text")
        table.add_row(*styled(("", "needed", "too much", "what fills it"), "dim"))
        groups = _alike(stages, place)
        for group in groups if len(groups) <= _MOST_STAGES else groups[:1]:
            over = group[0]["over"][place]
            table.add_row(
                _numbers(group),
                self.digits.gib(group[0]["needed"][place]),
                "fits" if over <= 0 else self.digits.gib(over),
                self._parts(group[0]["parts"][place]),
            )
        yield indented(table if len(stages) > 1 else Text(self._parts(worst["parts"][place])))
        if len(groups) > _MOST_STAGES:
            short = sorted(one["over"][place] for one in stages if one["over"][place] > 0)
            least = f"{self.digits.gib(short[0])} at least" if len(short) > 1 else ""
            said = f"{len(short)} of {len(stages)} stages need too much{least and ': '}{least}"
            yield indented(Text(said))

    def _parts(self, parts: Document) -> str:
        """Write what fills a memory."""
        items = list(parts.items())
        shown = [f"{kind} {self.digits.gib(size)}" for kind, size in items[:_MOST_PARTS]]
        if rest := sum(size for _, size in items[_MOST_PARTS:]):
            shown.append(f"the rest {self.digits.gib(rest)}")
        return ", ".join(shown)

    def _proposals(self) -> Iterator[RenderableType]:
        found = self.answer["proposals"]
        if not found:
            yield heading("What would do", "nothing that was tried")
            words = "No three changes of it, no other batch, and no more processors up to 64 times as many."
            yield indented(Text(words))
            return
        last = (
            "; another batch last" if any("batch_size" in one["changes"] for one in found) else ""
        )
        yield heading("What would do", f"the fewest changes first, then the nearest{last}")
        yield indented(self._changes(found, "slower"))

    def _changes(self, rows: Sequence[Document], title: str) -> RenderableType:
        """Return a table of changes with their memory and time, and what follows from each below."""
        table = grid("text", "right", "right", "right")
        table.add_row(*styled(("change", "memory", "time", title), "dim"))
        for one in rows:
            longer = one["longer"]
            table.add_row(
                Text("\n".join(self._change(name, v) for name, v in one["changes"].items())),
                self.digits.gib(one["proc_mem_tier1_cap_req"]),
                self.digits.duration(one["total_time"]),
                "fastest of these" if longer == 0 else percent_more(longer),
            )
            follows = [f"{name}={plain(value)}" for name, value in one["follows"].items()]
            notes = [f"with {', '.join(follows)}"] if follows else []
            notes += [f"unlike practice: {text}" for text in one["unusual"]]
            if one["asks_for_another"]:
                notes.append(_ANOTHER[one["asks_for_another"]])
            if notes:
                table.add_row(indented(Text("; ".join(notes), "dim")), "", "", "")
        return table

    def _change(self, name: str, value: Any) -> str:
        if name in self.answer["unread"]:
            return f"{name}={plain(value)}"
        before = self.fields.get(name, _DEFAULTS.get(name))  # edition sc23 leaves defaults out
        return f"{name} {plain(before)} -> {plain(value)}"

    def _time(self, result: Result) -> Iterator[RenderableType]:
        """Tell the largest parts of the time."""
        total = result.value("total_time")
        parts = sorted(result.times().items(), key=lambda one: -one[1])
        shown = [(name, time) for name, time in parts if time > _LEAST_SHARE * total][:_MOST_PARTS]
        yield heading("What takes the time", self.digits.duration(total))
        table = grid("left", "right", "right", "wide")
        seconds = self.digits.seconds([time for _, time in shown], total)
        for (name, time), text in zip(shown, seconds, strict=True):
            words, group = PARTS[name]
            bar = Bar((Share(time / total, GROUP_COLORS[group]),))
            table.add_row(words, text, self.digits.share(time / total), bar)
        yield indented(table)

    def _room(self) -> Iterator[RenderableType]:
        """Tell how much memory every stage leaves."""
        stages = self.answer["stages"]
        worst = max(stages, key=lambda one: one["over"][0])
        there, left = worst["available"][0], -worst["over"][0]
        where = f" on stage {worst['stage']}" if len(stages) > 1 else ""
        said = f"{self.digits.gib(worst['needed'][0])} of {self.digits.gib(there)} usable, {self.digits.gib(left)} free"
        yield heading("Memory", said + where)
        table = grid("left", "right", "text")
        table.add_row(*styled(("", "free", "what fills it"), "dim"))
        groups = _alike(stages, 0)
        for group in groups if len(groups) <= _MOST_STAGES else groups[:1]:
            free = self.digits.gib(-group[0]["over"][0])
            parts = self._parts(group[0]["parts"][0])
            table.add_row(_numbers(group), free, parts)
        yield indented(table if len(stages) > 1 else Text(self._parts(worst["parts"][0])))
        if len(groups) > _MOST_STAGES:
            most = -min(one["over"][0] for one in stages)
            number = min(stages, key=lambda one: one["over"][0])["stage"]
            yield indented(Text(f"up to {self.digits.gib(most)} free, on stage {number}"))

    def _better(self) -> Iterator[RenderableType]:
        found = self.answer["better"]
        if not found:
            yield heading("What would be faster", "no change of one or two fields")
            return
        words = "the best change" + (
            ", and the best two" if len(found) > 1 else "; no two save more"
        )
        yield heading("What would be faster", words)
        yield indented(self._changes(found, "against now"))

    def _options(self) -> Iterator[RenderableType]:
        """Tell what each option saves: its time against that without it."""
        rows = self.answer["contributions"]
        if not rows:
            yield heading("What the options save", "none differs from its default")
            return
        yield heading("What the options save", "each set back by itself")
        table = grid("left", "left", "right", "right", "text")
        table.add_row(*styled(("option", "set back to", "time", "memory", ""), "dim"))
        for row in rows:
            time = "-" if row["gain"] is None else percent_more(row["gain"])
            memory = "-" if row["memory"] is None else gib_more(row["memory"])
            table.add_row(
                f"{row['field']}={plain(row['value'])}",
                plain(row["without"]),
                time,
                memory,
                Text(_needed(row["reason"]), "dim"),
            )
        yield indented(table)


def _alike(stages: Sequence[Document], tier: int) -> list[list[Document]]:
    """Return groups of neighbours that need as much; those that need most first."""
    groups = [list(group) for _, group in groupby(stages, lambda one: one["needed"][tier])]
    return sorted(groups, key=lambda group: -group[0]["needed"][tier])


def _numbers(group: Sequence[Document]) -> str:
    """Write which stages are alike.

    >>> _numbers([{"stage": 3}]), _numbers([{"stage": 1}, {"stage": 2}])
    ('stage 3', 'stage 1 to 2')
    """
    first, last = group[0]["stage"], group[-1]["stage"]
    return f"stage {first}" if first == last else f"stage {first} to {last}"


def _needed(reason: str) -> str:
    """Say why nothing runs without an option.

    >>> _needed("mem1_capacity"), _needed("offload_blocks"), _needed("")
    ('it does not fit', 'not without: offloading with fewer than 3 blocks per stage', '')
    """
    if reason.endswith("_capacity"):
        return "it does not fit"
    if reason.startswith("framework"):
        return "the framework needs it"
    return f"not without: {in_words(reason)}" if reason else ""


def percent_more(longer: float) -> str:
    """Write a relative difference of times with its sign.

    >>> percent_more(0.0693), percent_more(-0.031), percent_more(0.00004), percent_more(1.524)
    ('+6.9 %', '-3.1 %', '0.0 %', '+152 %')
    """
    if abs(longer) < _LEAST_SHARE / 2:
        return "0.0 %"
    return f"{longer * 100:+.0f} %" if abs(longer) >= 1 else f"{longer * 100:+.1f} %"


def gib_more(size: float) -> str:
    """Write a difference of memory with its sign.

    >>> gib_more(-12.34 * GIB), gib_more(0.0)
    ('-12.3 GiB', '0')
    """
    return f"{size / GIB:+.1f} GiB" if abs(size) >= 0.05 * GIB else "0"
