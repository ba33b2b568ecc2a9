"""The page of a sensitivity: a tornado of the figures of a machine, what more memory is worth, and break-even."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from calculon.base.frozen import dataclass
from calculon.base.units import GIB, duration, scaled, significant
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.origin import stated_name
from calculon.declarations.plan_words import plan_words
from calculon.documents.campaign_sections import assumed_section
from calculon.documents.campaign_words import tokens_words
from calculon.documents.page_title import page_title
from calculon.render.bars import COLORS, marks
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.grids import grid, indented
from calculon.render.terminal import drawn
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, edition_and_preset, heading

Document = Mapping[str, Any]
Usual = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""What a preset says of the fields of an execution (:meth:`calculon.declarations.presets.Preset.usual`)."""

SHOWN = 0.005
"""Relative change over the range from which on a figure has a row; of a share near 1, of what it lacks."""

_LEAST_GAIN = 1e-3
"""Relative gain by another plan from which on it is named."""

KINDS = {"run": "The run", "hardware": "Hardware", "use": "How well it is used"}
"""Titles of the kinds of figures (:data:`calculon.advise.elasticities.KINDS`), in the order of the page."""

HARDWARE = "hardware"

_AMOUNTS = ("USD", "tokens/USD", "h", "MWh", "t")
"""Units of amounts of whole runs."""

_MOST_STEPS, _MOST_PLANS = 5, 6
_TYPED = ("matrix.", "vector.", "ext.")
_MOST_IDLE = 4
_NARROW_BAR, _WIDEST_BAR, _GAP = 10, 40, 2
_NOW = 1  # column that is left out first
_LEAST_SHARE = 1e-4
_ROUNDING = 1e-9

_COLUMNS = (
    Column("path", "figure"),
    Column("name", "what it is", drop=2),
    Column("value", "now", right=True),
    Column("unit", "unit"),
    Column("elasticity", "elasticity", right=True),
    Column("low", "low", right=True),
    Column("high", "high", right=True),
    Column("at_low", "at low", right=True),
    Column("at_high", "at high", right=True),
    Column("elasticity_between_ends", "between ends", right=True, drop=1),
)
_REPLANNED = (
    Column("replanned_at_low", "replanned at low", right=True),
    Column("replanned_at_high", "replanned at high", right=True),
)


def figures_table(document: Document) -> Table:
    """Return every figure with an effect as a table of plain values, for files and other programs."""
    more = _REPLANNED if "replanned" in document else ()
    return Table((*_COLUMNS, *more), document["figures"])


def change(value: float | None, now: float) -> str:
    """Write how far a statistic is from now; None is where a plan does not run.

    >>> change(1.1, 1.0), change(0.996, 1.0), change(1.0, 1.0), change(None, 1.0)
    ('+10.0 %', '-0.4 %', '0', 'no fit')
    """
    if value is None:
        return "no fit"
    if not now:
        return significant(value)
    share = 100 * (value / now - 1)
    return (
        "0"
        if abs(share) < 0.005
        else f"{share:+.1f} %"
        if abs(share) >= 0.05
        else f"{share:+.2f} %"
    )


def whole(now: float, unit: str) -> float:
    """Return what a change of a statistic is told apart by: its value, of a share what it lacks to 1 if that is less.

    >>> whole(250.0, "s"), whole(0.25, "fraction"), whole(0.75, "fraction")
    (250.0, 0.25, 0.25)
    """
    lacks = 1 - now if unit == "fraction" else 0.0
    return min(abs(now), lacks) if lacks > 0 else abs(now)


def stated(value: float, unit: str) -> str:
    """Write a value of a figure in the unit of its file.

    >>> stated(989.0, "TFLOP/s"), stated(2e-05, "s"), stated(8, ""), stated(0.65, "")
    ('989 TFLOP/s', '20.00 us', '8', '0.65')
    """
    if unit == "s":
        return duration(value)
    text = f"{value:,.4g}" if abs(value) < 9_999.5 else f"{value:,.0f}"
    return f"{text} {unit}".rstrip()


def capped(row: Document, share: float) -> bool:
    """Whether a figure ends at its limit before the end of the range, as shares do at 1.

    >>> capped({"value": 0.84, "unit": "", "high": 1.0}, 0.25)
    True
    >>> capped({"value": 0.6, "unit": "", "high": 0.75}, 0.25)
    False
    """
    high, value = row["high"], row["value"]
    if row["unit"] or isinstance(value, int) or high is None:
        return False
    return bool(high < value * (1 + share) * (1 - _ROUNDING))


def folded(path: str, width: int) -> list[str]:
    """Cut a path into lines that end at dots; a part that is longer than a line keeps its own.

    >>> folded("ext.kernels.product.bfloat16.sustained", 30), folded("mem1.GBps", 30)
    (['ext.kernels.product.bfloat16.', 'sustained'], ['mem1.GBps'])
    """
    lines = [""]
    for part in re.findall(r"[^.]+\.?", path):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


@dataclass(frozen=True, slots=True)
class Tornado:
    """Two bars from a middle: to the left what makes a statistic smaller, to the right what makes it larger.

    Attributes
    ----------
    low, high : float
        Relative changes at both ends of the range of a figure.
    largest : float
        The change that fills a half.
    """

    low: float
    high: float
    largest: float

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_NARROW_BAR, min(_WIDEST_BAR, options.max_width))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        half = min(options.max_width, _WIDEST_BAR) // 2
        solid, light = marks(console, options)
        pieces = {"left": (0, light, "blue"), "right": (0, light, "vermilion")}
        for value, mark in ((self.low, light), (self.high, solid)):
            side, color = ("left", "blue") if value < 0 else ("right", "vermilion")
            length = round(abs(value) / self.largest * half) if self.largest else 0
            if length > pieces[side][0]:
                pieces[side] = length, mark, color
        (left, mark, color), (right, other, its_color) = pieces["left"], pieces["right"]
        yield Segment(" " * (half - left))
        yield Segment(mark * left, Style.parse(COLORS[color]))
        yield Segment(other * right, Style.parse(COLORS[its_color]))


class SensitivityPage:
    """The page of a sensitivity; it lays itself out for the width at hand.

    Parameters
    ----------
    document : mapping
        The sensitivity as plain data (:meth:`calculon.advise.dependence.Sensitivity.to_dict`).
    usual : callable
        What needs no word of an execution.
    """

    def __init__(self, document: Document, usual: Usual):
        self.document, self.usual = document, usual
        self.now: float = document["value"]
        self.least = whole(self.now, document["unit"]) / abs(self.now) if self.now else 1.0
        self.again: Document | None = document.get("replanned")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._question()
        yield Text()
        yield from self._figures(options.max_width)
        yield from self._notes()
        if self.again is not None:
            yield from (Text(), *self._plans(self.again))
            yield from (Text(), *self._memory(self.again["capacity"]))
            yield from self._sizes(self.again["sizes"])
        if "break_even" in self.document:
            yield from (Text(), *self._break_even(self.document["break_even"]))
        felt = {row["path"] for row in self.document["figures"]}
        if used := [one for one in self.document.get("assumed", ()) if one["field"] in felt]:
            yield from (Text(), drawn(assumed_section(used, every=True)))

    def _question(self) -> Iterator[RenderableType]:
        asked = self.document["question"]
        fields = asked["execution"]["fields"]
        procs = f"{fields['num_procs']:,} x {stated_name(asked['system'])}"
        title = f"Sensitivity of {stated_name(asked['model'])} on {procs}"
        yield from page_title(title, f"edition {edition_and_preset(asked)}", asked["system"])
        table = grid("text", "text")
        table.add_row(Text("plan", "dim"), Text(self._words(fields)))
        if (run := asked.get("campaign")) is not None:
            table.add_row(Text("run", "dim"), Text(_length(run)))
        name = self.document["statistic"]
        table.add_row(Text(name, "dim"), Text(f"{self._value(self.now)}, {self.document['help']}"))
        yield indented(table)

    def _words(self, execution: Document) -> str:
        return plan_words(execution, self.usual(execution))

    def _value(self, value: float) -> str:
        unit = self.document["unit"]
        if unit == "s":
            digits = Digits(
                WITHOUT_INTERVAL if self.document["question"]["edition"] != PUBLISHED else 0.0
            )
            return digits.duration(value)
        if unit == "B":
            return f"{value / GIB:,.2f} GiB"
        if unit == "fraction":
            return f"{100 * value:.2f} %"
        if unit in _AMOUNTS:
            return f"{Digits(WITHOUT_INTERVAL).rate(value)} {unit}"
        return scaled(value, unit) if abs(value) >= 10_000 else f"{significant(value)} {unit}"

    def _figures(self, width: int) -> Iterator[RenderableType]:
        """Draw the tornado: the figures of each kind, in the same columns where there is room."""
        rows = [row for row in self.document["figures"] if self._large(row)]
        kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
        widths = {kind: self._widths(some, kind) for kind, some in kinds.items() if some}
        shortest = min(map(len, widths.values()), default=0)
        same = [
            max(some) for some in zip(*(one[:shortest] for one in widths.values()), strict=True)
        ]
        fits = all(_room([*same, *own[shortest:]], width) >= 0 for own in widths.values())
        again = ", and with the plan searched again" if self.again else ""
        remark = f"elasticity, the change at both ends of a range{again}"
        for kind, own in widths.items():
            yield heading(KINDS[kind], remark)
            shown = [*same, *own[shortest:]] if fits else own
            yield indented(self._tornado(kinds[kind], shown, width))
            remark = ""

    def _widths(self, rows: Sequence[Document], kind: str) -> list[int]:
        """Return the widths of the columns that rows of a kind need."""
        texts = [self._titles(hardware=kind == HARDWARE), *(self._cells(row) for row in rows)]
        return [max(map(len, cells)) for cells in zip(*texts, strict=True)]

    def _large(self, row: Document) -> bool:
        changes = self._changes(row)
        if self.again is not None:
            best = self.again["now"]["value"]
            ends = (row["replanned_at_low"], row["replanned_at_high"])
            changes += [one / best - 1 for one in ends if one is not None and best]
        least = SHOWN * self.least
        return self._stuck(row) or max(map(abs, changes), default=0.0) >= least

    def _stuck(self, row: Document) -> bool:
        """Whether the plan does not run at an end of the range."""
        return any(row[end] is not None and row[f"at_{end}"] is None for end in ("low", "high"))

    def _changes(self, row: Document) -> list[float]:
        ends = (row["at_low"], row["at_high"])
        return [one / self.now - 1 for one in ends if one is not None] if self.now else []

    def _tornado(self, rows: Sequence[Document], widths: Sequence[int], width: int) -> Grid:
        """Lay rows out in the columns that there is room for: values of now and bars are the first to go."""
        room = _room(widths, width)
        shown = [*range(len(widths))]
        if room < 0:
            shown.remove(_NOW)
            room += widths[_NOW] + _GAP
        bars = room >= _NARROW_BAR + _GAP
        kinds = ["text", *["right"] * (len(shown) - 1), *(["wide"] if bars else [])]
        least = () if room < 0 else (widths[i] for i in shown)
        longest = widths[0] + min(0, room)
        table = grid(*kinds, gap=_GAP, least=least)
        largest = max(
            (abs(c) for row in self.document["figures"] for c in self._changes(row)), default=0.0
        )
        for row in (None, *rows):
            titles = self._titles(hardware=rows[0]["hardware"])
            cells = titles if row is None else self._cells(row)
            cells[0] = "\n  ".join(
                folded(cells[0], longest - 2 if len(cells[0]) > longest else longest)
            )
            line: list[RenderableType] = [
                Text(cells[i], "dim" if row is None else "") for i in shown
            ]
            if bars:
                line.append("" if row is None else Tornado(*self._ends(row), largest))
            table.add_row(*line)
        return table

    def _titles(self, *, hardware: bool) -> list[str]:
        within = self.document["range"]["share"]
        low, high = f"-{100 * within:g} %", f"+{100 * within:g} %"
        more = ("again", "again") if self.again and hardware else ()
        return ["", "now", "elast.", low, high, *more]

    def _cells(self, row: Document) -> list[str]:
        elasticity = row["elasticity"]
        cells = [row["path"], stated(row["value"], row["unit"])]
        mark = "*" if row["kink"] else ""
        cells.append(f"{elasticity:+.2f}{mark}" if elasticity else "0" if elasticity == 0 else "-")
        cells += [self._end(row, end, f"at_{end}") for end in ("low", "high")]
        if self.again is not None and row["hardware"]:
            cells += [self._end(row, end, f"replanned_at_{end}") for end in ("low", "high")]
        return cells

    def _end(self, row: Document, end: str, name: str) -> str:
        """Write the change at an end of a range; counts, and shares that end at 1, say their value there."""
        if row[end] is None:
            return "-"
        text = change(row[name], self.now)
        if end == "high" and self._capped(row):
            return f"to {stated(row[end], row['unit'])}: {text}"
        count = row["hardware"] and isinstance(row["value"], int)
        return f"{row[end]:,}: {text}" if count else text

    def _capped(self, row: Document) -> bool:
        return capped(row, self.document["range"]["share"])

    def _ends(self, row: Document) -> tuple[float, float]:
        """Return the relative changes at both ends; 0 where the plan does not run."""
        low, high = (
            0.0 if one is None or not self.now else one / self.now - 1
            for one in (row["at_low"], row["at_high"])
        )
        return low, high

    def _notes(self) -> Iterator[RenderableType]:
        """Say what has no row, and what the elasticities add up to."""
        small = [row for row in self.document["figures"] if not self._large(row)]
        lines = []
        if small:
            lines.append(
                f"{counted(len(small), 'more figure')} with less than {100 * SHOWN * self.least:.2g} %."
            )
        idle = self.document["without_effect"]
        if idle:
            named = ", ".join([one for one in idle if not one.startswith(_TYPED)][:_MOST_IDLE])
            more = f", among them {named}" if named else ""
            lines.append(f"{counted(len(idle), 'figure')} without effect{more}.")
        if any(row["kink"] for row in self.document["figures"] if self._large(row)):
            lines.append(
                "* At a threshold: the elasticity is another one below and above, and this is their mean."
            )
        if total := self.document.get("sum_of_elasticities"):
            lines.append(_sum(total))
        if self.document["range"]["calibrated"]:
            lines.append("Rates of calibrated parts go to the ends of their intervals.")
        yield from (indented(Text(line, "dim")) for line in lines)

    def _plans(self, again: Document) -> Iterator[RenderableType]:
        """Name the best plan now, and the other plans that changes make better."""
        best, told = again["now"], grid("text", "right", "text")
        yield heading("Searched again", "the best plan on each changed machine")
        if not best["kept"]:
            told.add_row(
                "nothing changed", change(best["value"], self.now), self._words(best["execution"])
            )
        gains = []
        for row in self.document["figures"]:
            if not row["hardware"]:
                continue
            for end, found in zip(
                ("low", "high"), again["ends"].get(row["path"], ()), strict=False
            ):
                if found is None or found["kept"] or found["execution"] == best["execution"]:
                    continue
                gained = abs(found["value"] - min(best["value"], row[f"at_{end}"] or math.inf))
                gains.append(
                    (gained / self.now, f"{row['path']} {stated(row[end], row['unit'])}", found)
                )
        gains = [one for one in gains if one[0] > _LEAST_GAIN]
        for _, words, found in sorted(gains, key=lambda one: -one[0])[:_MOST_PLANS]:
            told.add_row(words, change(found["value"], self.now), self._words(found["execution"]))
        if told.row_count:
            yield indented(told)
        else:
            yield indented(Text("No change makes another plan better by more than 0.1 %."))

    def _memory(self, stairs: Document) -> Iterator[RenderableType]:
        """Say what more memory is worth, and what less costs."""
        now, steps, here = stairs["now"], stairs["steps"], stairs["capacity"]
        yield heading(
            "Memory",
            f"{here / GIB:,.4g} GiB, of which plans get {(here - stairs['withheld']) / GIB:,.4g}",
        )
        price = stairs["shadow_price_of_1_GiB"]
        told = grid("left", "right", "text")
        if now > 0:
            below = f"{steps[now - 1]['capacity'] / GIB:,.4g} to "
            below += _capacity(steps[now]["capacity"], here)
            told.add_row(below, *self._step(steps[now - 1]))
        more = here + GIB
        same = (
            change(steps[now]["value"] - (price or 0.0), self.now),
            "" if price else "no other plan",
        )
        rows = [(step["capacity"], self._step(step)) for step in _steps(stairs)]
        for size, words in sorted([(more, same), *rows], key=lambda row: row[0]):
            told.add_row(_capacity(size, here), *words)
        yield indented(told)

    def _step(self, step: Document) -> tuple[str, str]:
        return change(step["value"], self.now), self._words(step["execution"])

    def _sizes(self, sizes: Mapping[str, Document]) -> Iterator[RenderableType]:
        if not sizes:
            return
        yield from (Text(), heading("Domain", "processors of the innermost network"))
        told = grid("left", "right", "right", "text")
        told.add_row(*(Text(title, "dim") for title in ("", "same plan", "again", "")))
        for size, found in sizes.items():
            best = found["best"]
            words = "" if best is None or best["kept"] else self._words(best["execution"])
            value = change(None if best is None else best["value"], self.now)
            told.add_row(f"{int(size):,}", change(found["same_plan"], self.now), value, words)
        yield indented(told)

    def _break_even(self, even: Document) -> Iterator[RenderableType]:
        yield heading(f"As good as {even['with']}", "with one figure alone at")
        yield indented(Text(f"Compared: {even['compared']}.", "dim"))
        units = {row["path"]: row for row in even["figures"]}
        known = [row for row in units.values() if row["value"] is not None]
        told = grid("left", "right", "right")
        for row in known:
            told.add_row(row["path"], stated(row["value"], row["unit"]), f"{row['factor']:,.3g} x")
        yield indented(told) if known else indented(Text("None of them."))
        if never := [path for path, row in units.items() if row["value"] is None]:
            yield indented(Text(f"Never within 1/16 to 16 times: {', '.join(never)}.", "dim"))


def _length(run: Document) -> str:
    """Say what a campaign is about, or how long it is, as it states that itself."""
    known = ((name, run[name]) for name in ("tokens", "steps") if name in run)
    stated = (f"{one if isinstance(one, str) else tokens_words(one)} {name}" for name, one in known)
    loss = f"to a loss of {run['loss']}" if "loss" in run else "phases"
    return str(run.get("about") or next(stated, loss))


def _capacity(size: float, now: float) -> str:
    """Write a capacity, and how much more it is than now."""
    return f"{size / GIB:,.4g} GiB ({(size - now) / GIB:+,.3g})"


def _room(widths: Sequence[int], width: int) -> int:
    """Return the room that columns leave in an indented line; below 0 where they do not fit."""
    return width - 2 - sum(widths) - _GAP * (len(widths) - 1)


def _steps(stairs: Document) -> list[Document]:
    """Return the steps up that are worth telling: the next one, and those that gain a little more."""
    shown: list[Document] = []
    last = stairs["steps"][stairs["now"]]["value"]
    for step in stairs["steps"][stairs["now"] + 1 :]:
        if not shown or abs(step["value"] / last - 1) > SHOWN:
            shown.append(step)
            last = step["value"]
    return shown[:_MOST_STEPS]


def _sum(total: Document) -> str:
    """Say what the elasticities of rates and times add up to."""
    text = f"Elasticities of all rates, less those of all times: {total['sum']:.4f}"
    left = total["unstated"]
    if abs(left) > _LEAST_SHARE:
        text += (
            f"; {100 * left:.2g} % of the time follows from latencies that the file does not state"
        )
    if abs(total["sum"] - total["together"]) > _LEAST_SHARE:
        text += "; thresholds make the rest"
    return f"{text}."
