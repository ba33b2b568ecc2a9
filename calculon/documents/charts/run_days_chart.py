"""Chart of a training run: days of its parts, time losses, and when it ends."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.base.frozen import dataclass
from calculon.base.records import Plain
from calculon.declarations.origin import stated_name
from calculon.documents.campaign_sections import USES
from calculon.documents.campaign_words import span
from calculon.documents.estimate_result import result_of
from calculon.documents.result import Result
from calculon.render.canvas import wrapped
from calculon.render.chart import (
    Axis,
    Bars,
    Chart,
    Line,
    Mark,
    Notes,
    Panel,
    Rule,
    categories,
    dots,
)
from calculon.render.texts import level_text, percent, token_count

if TYPE_CHECKING:
    from calculon.advise.runs.training_run import TrainingRun

WORDS = "Days of a training run by its parts, what else takes time, and when it ends"
"""Description of the chart for readers who cannot see it (alt text)."""

MOST = 8
"""Maximum number of bars of parts; the shortest parts share one."""

_CHANCES = (0.005, *(share / 100 for share in range(1, 100)), 0.995)
"""Shares of runs whose end dates are drawn."""

_AROUND, _ROW = 0.85, 0.3  # inches: title and axis of a panel; a bar
_LOWER = 1.75  # inches: the panels of the end
_SIZES = (7.0,)  # points: width of dots
_ROOM = 1.5  # times the longest bar, with space for the text at its end
_LABEL = 24  # characters per line


def run_days(training_run: "TrainingRun") -> Chart:
    """Return the parts of a run and its losses, and below them when it ends.

    The longest part provides the split, and the interval and digits of a step, which also apply to the days.
    """
    run, main = training_run.to_dict(), result_of(training_run.main.estimate)
    ended = training_run.whole.days_by(_CHANCES).tolist()
    parts, losses = _parts(run), _losses(run)
    rows = max(len(parts), len(losses), 1)
    ends = [_ends_panel(run, main)]
    if ended[0] < ended[-1]:
        ends.append(_chances_panel(run, ended))
    return Chart(
        title=_title(run, main),
        subtitle=main.split,
        terms=[run["question"]["edition"]],
        rows=(
            (
                _bars_panel("Productive steps, by batch x sequence", parts, run, rows),
                _bars_panel("Time losses", losses, run, rows, shares=True),
            ),
            ends,
        ),
        width=8.4,
        legends="rows",
    )


def _title(run: Plain, main: Result) -> str:
    """Return the run in words, and its length."""
    asked, figures = run["question"], run["figures"]
    machine = f"{asked['execution']['fields']['num_procs']:,} x {stated_name(asked['system'])}"
    unit, factor = _unit(figures["days"])
    days = f"{main.digits.rate(figures['days'] * factor)} {unit.lower()}"
    tokens = f"{token_count(run['tokens'])} tokens of {stated_name(asked['model'])}"
    return f"{tokens} on {machine}: {days}, goodput {percent(figures['goodput'])}"


_Bar = tuple[str, float, str]
"""Label, days and color of a bar."""


def _parts(run: Plain) -> list[_Bar]:
    """Return the parts in order; with many parts the shortest share a bar."""
    parts = run["parts"]
    longest = sorted(parts, key=lambda one: -one["days"])
    # The rest shares one bar, so that charts of long ramps remain readable.
    kept = longest if len(parts) <= MOST else longest[: MOST - 1]
    found = [(_part(one), one["days"], "blue") for one in parts if one in kept]
    rest = [one["days"] for one in parts if one not in kept]
    return found + ([(f"{len(rest)} other parts", sum(rest), "blue")] if rest else [])


def _part(one: Plain) -> str:
    name = f"{one['name']}: " if one["name"] else ""
    return wrapped(f"{name}{one['batch_size']:,} x {one['seq_size']:,}", _LABEL)


def _losses(run: Plain) -> list[_Bar]:
    """Return the days lost by cause, largest first."""
    causes = ((name, words, color) for name, (words, color) in USES.items() if name != "useful")
    found = [(words, run["figures"][f"{name}_days"], color) for name, words, color in causes]
    return sorted((one for one in found if one[1] > 0), key=lambda one: -one[1])


def _bars_panel(
    title: str, bars: Sequence[_Bar], run: Plain, rows: int, *, shares: bool = False
) -> Panel:
    """Return bars of days, each with its days and its share of the run."""
    total = run["figures"]["days"]
    days = [one for _, one, _ in bars]
    longest = max(days, default=1.0)
    unit, factor = _unit(longest)
    lengths = [factor * one for one in days]
    texts = [span(one, longest) + (f" ({percent(one / total)})" if shares else "") for one in days]
    labels = [label for label, _, _ in bars]
    notes = Notes(x=lengths or [0.0], y=range(max(1, len(bars))), texts=texts or ["nothing"])
    drawn = Bars(at=range(len(bars)), lengths=lengths, color=[color for *_, color in bars])
    return Panel(
        title=title,
        x=Axis(label=unit, limits=(0.0, _ROOM * longest * factor)),
        y=replace(categories(labels), limits=(rows - 0.4, -0.6)),
        marks=(drawn, notes),
        height=_AROUND + _ROW * rows,
    )


def _unit(longest: float) -> tuple[str, float]:
    """Return the unit in which :func:`span` writes parts of some days, and the factor from days."""
    return ("Hours", 24.0) if span(longest, longest).endswith("h") else ("Days", 1.0)


@dataclass(frozen=True, slots=True)
class _End:
    """Range of days, its most likely value, and its text."""

    label: str
    color: str
    low: float
    middle: float
    high: float
    text: str


def _ends(run: Plain, main: Result) -> Iterator[_End]:
    """Yield end dates: without failures, with failures, and within the interval of the cost model."""
    figures = run["figures"]
    ideal, days = figures["useful_days"], figures["days"]
    low, middle, high = (figures[f"days_{part}"] for part in ("p10", "p50", "p90"))
    yield _End("without failures", "blue", ideal, ideal, ideal, span(ideal, days))
    text = f"{span(low, days)} to {span(high, days)}"
    yield _End("failures: p10 to p90", "vermilion", low, middle, high, text)
    if run["days_between"] is not None:
        first, last = run["days_between"]
        unit, factor = _unit(days)
        words = [main.digits.rate(end * factor, like=days * factor) for end in (first, last)]
        text = f"{' to '.join(words)} {unit[0].lower()}"
        level = f": {level_text(main.interval)} interval" if main.interval else ""
        yield _End(f"cost model{level}", "gray", first, days, last, text)


def _ends_panel(run: Plain, main: Result) -> Panel:
    """Return the end dates as lines with a mark, and the deadline across them."""
    ends = [*_ends(run, main)]
    unit, factor = _unit(run["figures"]["days"])
    values = [end * factor for one in ends for end in (one.low, one.high)]
    marks: list[Mark] = []
    for limit in (one["limit"] for one in run["limits"] if one["field"] == "deadline"):
        marks.append(Rule(name=f"deadline, {limit:,.3g} d", at=limit * factor))
        values.append(limit * factor)
    for place, one in enumerate(ends):
        if one.low < one.high:
            line = [one.low * factor, one.high * factor]
            marks.append(Line(x=line, y=[place] * 2, color=one.color, width=4.0))
        marks.append(dots([(one.middle * factor, place)], color=one.color, sizes=_SIZES))
    highs = [one.high * factor for one in ends]
    marks.append(Notes(x=highs, y=range(len(ends)), texts=[one.text for one in ends]))
    low, high = min(values), max(values)
    # Ranges may be empty or tiny: at least 2 % of the days keeps the axis readable.
    room = max(high - low, 0.02 * high)
    return Panel(
        title="When it ends",
        x=Axis(label=f"{unit}, not from 0", limits=(low - 0.06 * room, high + 0.3 * room)),
        y=categories([one.label for one in ends]),
        marks=marks,
        height=_LOWER,
        share=2.0,
    )


def _chances_panel(run: Plain, ended: Sequence[float]) -> Panel:
    """Return the probability of having ended by each day, due to failures alone, with p10, p50 and p90."""
    figures = run["figures"]
    unit, factor = _unit(figures["days"])
    marked = (10, 50, 90)
    middle = [(factor * figures[f"days_p{share}"], share) for share in marked]
    days = [factor * one for one in ended]
    line = Line(x=days, y=[100 * share for share in _CHANCES], color="vermilion")
    return Panel(
        title="Failures alone",
        x=Axis(label=unit),
        y=Axis(label="Ended", unit="%", limits=(0.0, 100.0), ticks=[(n, str(n)) for n in marked]),
        marks=(line, dots(middle, color="vermilion", sizes=_SIZES)),
        height=_LOWER,
    )
