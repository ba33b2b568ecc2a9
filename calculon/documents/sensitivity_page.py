"""Page of a sensitivity analysis: tornado of machine figures, value of more memory, and break-even."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from calculon.advise.elasticities import Total
from calculon.advise.replanned import CapacitySweep, Replanned, Step
from calculon.advise.sensitivity_result import ReplannedPlans, Sensitivity
from calculon.base.records import Plain
from calculon.base.units import GIB, duration, scaled, significant
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.plan_words import plan_words
from calculon.declarations.statistics import RISK
from calculon.documents.campaign_sections import assumed_section
from calculon.documents.campaign_words import tokens_words
from calculon.documents.confidence import risk_words
from calculon.documents.page_title import machine_of, titled
from calculon.render.bars import TwoSided
from calculon.render.digits import WITHOUT_INTERVAL, Digits
from calculon.render.document import Block, Document, Grid, Line, Section, Styled, dim, labeled
from calculon.render.fitted_grid import aligned
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, edition_and_preset

SHOWN = 0.005
"""Smallest relative change over the range that gets a row; for a share near 1, relative to its distance from 1."""

_MIN_GAIN = 1e-3
"""Smallest relative gain by another plan that is listed."""

KINDS = {"run": "The run", "hardware": "Hardware", "use": "Efficiencies"}
"""Titles of the kinds of figures (:data:`calculon.advise.elasticities.KINDS`), in the order of the page."""

HARDWARE = "hardware"

_AMOUNTS = ("USD", "tokens/USD", "h", "MWh", "t")
"""Units of amounts of whole runs."""

_NO_NAMES: Mapping[str, str] = {}

_MAX_STEPS, _MAX_PLANS = 5, 6
_TYPED = ("matrix.", "vector.", "ext.")
_MAX_IDLE = 4
_SHARED = 5  # columns common to all kinds of figures
_MIN_SHARE = 1e-4
_ROUNDING = 1e-9

_COLUMNS = (
    Column("path", "figure"),
    Column("name", "description", drop=2),
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


def figures_table(analysis: Sensitivity) -> Table:
    """Return every figure with an effect as a table of plain values, for files and other programs."""
    more = () if analysis.searched is None else _REPLANNED
    return Table((*_COLUMNS, *more), analysis.rows())


def change(value: float | None, now: float) -> str:
    """Write the change of a statistic; None means that the plan cannot run.

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


def reference_value(now: float, unit: str) -> float:
    """Return the reference for changes of a statistic: its value, or the distance of a share from 1 if that is smaller.

    >>> reference_value(250.0, "s"), reference_value(0.25, "fraction"), reference_value(0.75, "fraction")
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


def capped(row: Plain, share: float) -> bool:
    """Return True if a figure reaches its limit before the end of the range, as shares do at 1.

    >>> capped({"value": 0.84, "unit": "", "high": 1.0}, 0.25)
    True
    >>> capped({"value": 0.6, "unit": "", "high": 0.75}, 0.25)
    False
    """
    high, value = row["high"], row["value"]
    if row["unit"] or isinstance(value, int) or high is None:
        return False
    return bool(high < value * (1 + share) * (1 - _ROUNDING))


def sensitivity_page(analysis: Sensitivity) -> Document:
    """Return the page of a sensitivity analysis."""
    return _SensitivityPage(analysis).document()


class _SensitivityPage:
    """Builder of the page of a sensitivity analysis."""

    def __init__(self, analysis: Sensitivity):
        self.found, self.now, self.again = analysis, analysis.value, analysis.searched
        self.rows = analysis.rows()
        unit = analysis.statistic.unit.symbol
        self.least = reference_value(self.now, unit) / abs(self.now) if self.now else 1.0

    def document(self) -> Document:
        """Return the complete page."""
        found = self.found
        said = {
            "plan": self._words(found.execution.to_dict()),
            "run": "" if found.campaign is None else _length(found.campaign.document),
            found.statistic.name: f"{self._value(self.now)}, {found.statistic.help}",
            "memory": ""
            if found.fits is None or found.fits >= 1 - RISK
            else risk_words(found.fits),
        }
        terms = {"edition": found.execution.edition, "preset": found.preset.to_dict()}
        return titled(
            f"Sensitivity of {found.model.name} on {found.execution.num_procs:,} x {found.system.name}",
            f"edition {edition_and_preset(terms)}",
            machine_of(found.system),
            lead=(labeled(said),),
            parts=self._sections(),
        )

    def _sections(self) -> Iterator[Section]:
        yield from self._figures()
        if notes := tuple(map(dim, self._notes())):
            yield Section("", notes)
        if self.again is not None:
            yield self._plans(self.again)
            yield memory_section(self.again.staircase, self.now, self._words)
            if self.again.sizes:
                yield self._sizes(self.again)
        if self.found.rival:
            yield break_even_section(self.found)
        felt = {row["path"] for row in self.rows}
        if used := [one for one in self.found.assumed if one["field"] in felt]:
            yield assumed_section(used, every=True)

    def _words(self, execution: Plain) -> str:
        return plan_words(execution, self.found.preset.usual(execution))

    def _value(self, value: float) -> str:
        unit = self.found.statistic.unit.symbol
        if unit == "s":
            exact = self.found.execution.edition == PUBLISHED
            return Digits(0.0 if exact else WITHOUT_INTERVAL).duration(value)
        if unit == "B":
            return f"{value / GIB:,.2f} GiB"
        if unit == "fraction":
            return f"{100 * value:.2f} %"
        if unit in _AMOUNTS:
            return f"{Digits(WITHOUT_INTERVAL).rate(value)} {unit}"
        return scaled(value, unit) if abs(value) >= 10_000 else f"{significant(value)} {unit}"

    def _figures(self) -> Iterator[Section]:
        """Yield the tornado: the figures by kind; the longest bar fills its half."""
        rows = [row for row in self.rows if self._large(row)]
        kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
        shown = {KINDS[kind]: some for kind, some in kinds.items() if some}
        again = ", and with the plan searched again (again)" if self.again else ""
        remark = f"elasticity, the change at both ends of a range{again}"
        grids = aligned([self._tornado(some) for some in shown.values()], _SHARED)
        for title, grid in zip(shown, grids, strict=True):
            yield Section(title, (grid,), remark, opened=True)
            remark = ""

    def _large(self, row: Plain) -> bool:
        changes = self._changes(row)
        if self.again is not None:
            best = self.again.now.value
            ends = (row["replanned_at_low"], row["replanned_at_high"])
            changes += [one / best - 1 for one in ends if one is not None and best]
        least = SHOWN * self.least
        return self._stuck(row) or max(map(abs, changes), default=0.0) >= least

    def _stuck(self, row: Plain) -> bool:
        """Return True if the plan cannot run at an end of the range."""
        return any(row[end] is not None and row[f"at_{end}"] is None for end in ("low", "high"))

    def _changes(self, row: Plain) -> list[float]:
        ends = (row["at_low"], row["at_high"])
        return [one / self.now - 1 for one in ends if one is not None] if self.now else []

    def _tornado(self, rows: Sequence[Plain]) -> Grid:
        """Return a row for each figure; narrow pages hide the bars, then the present values."""
        share = 100 * self.found.within.share
        ends = (f"again -{share:g} %", f"again +{share:g} %")
        again = ends if self.again and rows[0]["hardware"] else ()
        titles = ("", "now", "elast.", f"-{share:g} %", f"+{share:g} %", *again)
        changes = (abs(one) for row in self.rows for one in self._changes(row))
        largest = max(changes, default=0.0)
        return Grid(
            ("path", *["right"] * (len(titles) - 1), "wide"),
            (
                (*map(dim, titles), ""),
                *((*self._cells(row), self._bar(row, largest)) for row in rows),
            ),
            heads=1,
            optional=(len(titles), titles.index("now")),
        )

    def _cells(self, row: Plain) -> list[str]:
        # None is unknown and becomes a dash; 0 is a result.
        elasticity = row["elasticity"]
        cells = [row["path"], stated(row["value"], row["unit"])]
        mark = "*" if row["kink"] else ""
        cells.append(f"{elasticity:+.2f}{mark}" if elasticity else "0" if elasticity == 0 else "-")
        cells += [self._end(row, end, f"at_{end}") for end in ("low", "high")]
        if self.again is not None and row["hardware"]:
            cells += [self._end(row, end, f"replanned_at_{end}") for end in ("low", "high")]
        return cells

    def _end(self, row: Plain, end: str, name: str) -> str:
        """Write the change at an end of a range; for counts, and for shares that reach 1, with the value there."""
        if row[end] is None:
            return "-"
        text = change(row[name], self.now)
        if end == "high" and capped(row, self.found.within.share):
            return f"to {stated(row[end], row['unit'])}: {text}"
        # A count changes in whole steps, so its end differs from the nominal range.
        count = row["hardware"] and isinstance(row["value"], int)
        return f"{row[end]:,}: {text}" if count else text

    def _bar(self, row: Plain, largest: float) -> TwoSided:
        """Return the bar of the changes at both ends; an end at which the plan cannot run has no bar."""
        low, high = (
            0.0 if one is None or not self.now or not largest else (one / self.now - 1) / largest
            for one in (row["at_low"], row["at_high"])
        )
        return TwoSided(low, high)

    def _notes(self) -> Iterator[str]:
        """Yield the number of figures without a row, and the sum of the elasticities."""
        if small := sum(not self._large(row) for row in self.rows):
            yield f"{counted(small, 'more system parameter')} with an effect below {100 * SHOWN * self.least:.2g} %."
        if idle := self.found.without_effect:
            named = ", ".join([one for one in idle if not one.startswith(_TYPED)][:_MAX_IDLE])
            more = f", among them {named}" if named else ""
            yield f"No effect: {counted(len(idle), 'system parameter')}{more}."
        if any(row["kink"] for row in self.rows if self._large(row)):
            yield "* At a threshold: the elasticity differs below and above; this is the mean."
        if self.found.total is not None:
            yield _sum(self.found.total)
        if self.found.within.calibrated:
            yield "Rates of calibrated parts vary over their intervals."

    def _plans(self, again: ReplannedPlans) -> Section:
        """Return the best plan now, and the plans that become better when the machine changes."""
        best, rows = again.now, []
        if not best.kept:
            rows.append(("nothing changed", *self._step(best)))
        gains = []
        for row in self.rows:
            if not row["hardware"]:
                continue
            for end, found in zip(("low", "high"), again.ends.get(row["path"], ()), strict=False):
                if found is None or found.kept or found.execution == best.execution:
                    continue
                # The new plan must beat both alternatives: the plan as it is, and the best plan now.
                gained = abs(found.value - min(best.value, row[f"at_{end}"] or math.inf))
                gains.append(
                    (gained / self.now, f"{row['path']} {stated(row[end], row['unit'])}", found)
                )
        gains = [one for one in gains if one[0] > _MIN_GAIN]
        for _, words, found in sorted(gains, key=lambda one: -one[0])[:_MAX_PLANS]:
            rows.append((words, *self._step(found)))
        none = "No change makes another plan more than 0.1 % better."
        block = Grid(("text", "right", "text"), tuple(rows)) if rows else none
        return Section(
            "Searched again", (block,), "best plan for each changed machine", opened=True
        )

    def _step(self, best: Replanned) -> tuple[str, str]:
        return change(best.value, self.now), self._words(best.execution)

    def _sizes(self, again: ReplannedPlans) -> Section:
        rows: list[tuple[Line, ...]] = [("", dim("same plan"), dim("again"), "")]
        for size, (same_plan, best) in again.sizes.items():
            words = "" if best is None or best.kept else self._words(best.execution)
            value = change(None if best is None else best.value, self.now)
            rows.append((f"{size:,}", change(same_plan, self.now), value, words))
        grid = Grid(("left", "right", "right", "text"), tuple(rows), heads=1)
        return Section("Domain", (grid,), "processors of the innermost network")


def _no_link(*_: object) -> str:
    return ""


def memory_section(
    stairs: CapacitySweep,
    value: float,
    words: Callable[[Plain], str],
    link: Callable[[float], str] = _no_link,
    most: int = _MAX_STEPS,
) -> Section:
    """Return the gains from more memory, and the costs of less.

    Args:
        stairs: Best plan for each capacity.
        value: Reference of changes: the statistic now.
        words: Function that returns an execution in words.
        link: Function that returns the address of a page with a capacity in bytes.
        most: Maximum number of steps up.
    """
    here = stairs.capacity

    def row(text: str, step: Step) -> tuple[Line, ...]:
        size = Styled(text, link=link(step.capacity))
        return size, change(step.best.value, value), words(step.best.execution)

    rows = [
        (step.capacity, row(_capacity(step.capacity, here), step)) for step in _steps(stairs, most)
    ]
    if (now := stairs.here) is not None:
        price = stairs.shadow_price
        same = change(now.best.value - (price or 0.0), value)
        more = (_capacity(here + GIB, here), same, "" if price else "no other plan")
        rows.insert(0, (here + GIB, more))
    shown = [cells for _, cells in sorted(rows, key=lambda one: one[0])]
    if now is not None and (down := stairs.down) is not None:
        below = f"{down.capacity / GIB:,.4g} to "
        shown.insert(0, row(below + _capacity(now.capacity, here), down))
    usable = (here - stairs.withheld) / GIB
    return Section(
        "Memory",
        (Grid(("left", "right", "text"), tuple(shown)),),
        f"{here / GIB:,.4g} GiB, usable by plans: {usable:,.4g}",
    )


def break_even_section(
    analysis: Sensitivity,
    names: Mapping[str, str] = _NO_NAMES,
    link: Callable[[str, float], str] = _no_link,
) -> Section:
    """Return the figures that alone make two plans, or two machines, equal.

    Args:
        analysis: A sensitivity with break-even values.
        names: Names of figures by their paths.
        link: Function that returns the address of a page with a figure at a value.
    """
    blocks: list[Block] = [dim(f"Compared: {analysis.compared}.")]
    rows = tuple(
        (
            names.get(one.figure.path, one.figure.path),
            Styled(stated(one.value, one.figure.unit), link=link(one.figure.path, one.value)),
            f"{one.factor:,.3g} x",
        )
        for one in analysis.break_evens
        if one.value is not None
    )
    blocks.append(Grid(("left", "right", "right"), rows) if rows else "None of them.")
    paths = (one.figure.path for one in analysis.break_evens if one.value is None)
    if never := ", ".join(names.get(path, path) for path in paths):
        blocks.append(dim(f"No such value between 1/16 and 16 times today's: {never}."))
    return Section(
        f"As good as {analysis.rival}", tuple(blocks), "value of a single figure that is sufficient"
    )


def _length(run: Plain) -> str:
    """Return a campaign's description, or its length as it states it."""
    known = ((name, run[name]) for name in ("tokens", "steps") if name in run)
    stated = (f"{one if isinstance(one, str) else tokens_words(one)} {name}" for name, one in known)
    loss = f"to a loss of {run['loss']}" if "loss" in run else "phases"
    return str(run.get("about") or next(stated, loss))


def _capacity(size: float, now: float) -> str:
    """Write a capacity, and its difference from now."""
    return f"{size / GIB:,.4g} GiB ({(size - now) / GIB:+,.3g})"


def _steps(stairs: CapacitySweep, most: int) -> list[Step]:
    """Return the steps up to show: the next one, and later ones with a noticeable further gain."""
    shown: list[Step] = []
    for step in stairs.up:
        # Many steps gain almost nothing: compare with the last step shown.
        if not shown or abs(step.best.value / shown[-1].best.value - 1) > SHOWN:
            shown.append(step)
    return shown[:most]


def _sum(total: Total) -> str:
    """Return the sum of the elasticities of rates and times."""
    # If all rates double and all times halve, the step takes half as long.
    explained = "all of the time depends on these figures"
    text = f"Sum of the elasticities, times negated: {total.sum:.4f} (1 or -1: {explained})"
    left = total.unstated
    if abs(left) > _MIN_SHARE:
        text += (
            f"; {100 * left:.2g} % of the time comes from latencies that the file does not state"
        )
    if abs(total.sum - total.together) > _MIN_SHARE:
        text += "; the rest is due to thresholds"
    return f"{text}."
