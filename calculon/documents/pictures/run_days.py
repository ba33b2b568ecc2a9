"""A whole run: the days of its parts, what is lost beside them, and when it ends."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calculon.base.frozen import dataclass
from calculon.declarations.origin import stated_name
from calculon.documents.campaign_sections import USES
from calculon.documents.campaign_words import span
from calculon.render.bars import COLORS
from calculon.render.canvas import (
    BLACK,
    GREY,
    drawing,
    figure,
    note_edition,
    wrapped,
)
from calculon.render.digits import Digits
from calculon.render.texts import level_text, percent, token_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Document = Mapping[str, Any]

WORDS = "Days of a training run by its parts, what else takes time, and when it ends"
"""The picture for those who do not see it."""

MOST = 8
"""Parts that have a bar each; the shortest of more are one."""

_WIDTH, _ROW, _AROUND = 8.4, 0.3, 1.1
"""Inches: the width, a bar, and title and axis of a panel."""

_ROOM = 1.5
"""Width of the axes over the longest bar, for the text behind it."""

_DOT: Mapping[str, Any] = {"marker": "o", "mec": "white", "mew": 0.8, "ms": 7, "zorder": 3}

_LABEL = 24  # letters of a line


@dataclass(frozen=True, slots=True)
class RunDays:
    """The content of the picture.

    Attributes
    ----------
    run : mapping
        :meth:`calculon.advise.runs.training_run.TrainingRun.to_dict`.
    digits : Digits
        Those of its days.
    interval : mapping or None
        The interval of a step, whose level is that of the days.
    ended : sequence of (float, float)
        Shares of such runs, ascending, and the days by which they have ended: what failures alone leave open.
    """

    run: Document
    digits: Digits
    interval: Document | None = None
    ended: Sequence[tuple[float, float]] = ()


def draw(content: RunDays) -> "Figure":
    """Draw the parts of a run, its losses, and below when it ends."""
    run = content.run
    parts, losses = _parts(run), _losses(run)
    ends = _ends(content)
    rows = max(len(parts), len(losses), 1)
    heights = (_AROUND + _ROW * rows, _AROUND + _ROW * len(ends))
    with drawing():
        picture = figure(_WIDTH, sum(heights))
        upper, lower = picture.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
        left, right = upper.subplots(1, 2)
        _bars(left, [(label, days, "blue") for label, days in parts], run, rows)
        left.set_title("Steps that count, by batch x sequence")
        _bars(right, losses, run, rows, shares=True)
        right.set_title("What else takes time")
        spread = content.ended and content.ended[0][1] < content.ended[-1][1]
        ratios = (2, 1) if spread else (1,)
        several = lower.subplots(1, len(ratios), squeeze=False, width_ratios=ratios)[0]
        _intervals(several[0], ends, run)
        if spread:
            _chances(several[1], content)
        note_edition(several[0], [run["question"]["edition"]])
        picture.suptitle(wrapped(_title(content), 100), x=0.01, ha="left", fontsize=10)
    return picture


def _title(content: RunDays) -> str:
    """Say what the run is, and how long it takes."""
    asked, figures = content.run["question"], content.run["figures"]
    machine = f"{asked['execution']['fields']['num_procs']:,} x {stated_name(asked['system'])}"
    unit, factor = _unit(figures["days"])
    days = f"{content.digits.rate(figures['days'] * factor)} {unit.lower()}"
    about = (
        f"{token_count(content.run['tokens'])} tokens of {stated_name(asked['model'])} on {machine}"
    )
    return f"{about}: {days}, goodput {percent(figures['goodput'])}"


def _parts(run: Document) -> list[tuple[str, float]]:
    """Return the parts in their order, each with its days; the shortest together where there are many."""
    parts = run["parts"]
    longest = sorted(parts, key=lambda one: -one["days"])
    kept = longest if len(parts) <= MOST else longest[: MOST - 1]
    found = [(_part(one), one["days"]) for one in parts if one in kept]
    rest = [one["days"] for one in parts if one not in kept]
    return found + ([(f"{len(rest)} other parts", sum(rest))] if rest else [])


def _part(one: Document) -> str:
    name = f"{one['name']}: " if one["name"] else ""
    return wrapped(f"{name}{one['batch_size']:,} x {one['seq_size']:,}", _LABEL)


def _losses(run: Document) -> list[tuple[str, float, str]]:
    """Return what takes days beside the steps that count, the most first."""
    causes = ((name, words, color) for name, (words, color) in USES.items() if name != "useful")
    found = [(words, run["figures"][f"{name}_days"], color) for name, words, color in causes]
    return sorted((one for one in found if one[1] > 0), key=lambda one: -one[1])


def _bars(
    axes: "Axes",
    bars: Sequence[tuple[str, float, str]],
    run: Document,
    rows: int,
    *,
    shares: bool = False,
) -> None:
    """Draw bars of days below each other, each with its text."""
    from matplotlib.ticker import MaxNLocator

    total = run["figures"]["days"]
    longest = max((days for _, days, _ in bars), default=1.0)
    unit, factor = _unit(longest)
    for place, (_, days, color) in enumerate(bars):
        axes.barh(place, days * factor, height=0.62, color=COLORS[color], edgecolor="white", lw=0.6)
        text = span(days, longest) + (f" ({percent(days / total)})" if shares else "")
        _note(axes, text, (days * factor, place), 4)
    if not bars:
        _note(axes, "nothing", (0.0, 0.0), 4)
    axes.set_xlim(0, _ROOM * longest * factor)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_ylim(rows - 0.4, -0.6)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)


def _unit(longest: float) -> tuple[str, float]:
    """Return the unit in which :func:`span` writes the parts of some days, and how many of it are a day."""
    return ("Hours", 24.0) if span(longest, longest).endswith("h") else ("Days", 1.0)


def _note(axes: "Axes", text: str, place: tuple[float, float], offset: int) -> None:
    """Write a text behind a bar or a line; white around it keeps it apart from the deadline."""
    from matplotlib.patheffects import withStroke

    look: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8}
    look["path_effects"] = [withStroke(linewidth=2.5, foreground="white")]
    axes.annotate(text, place, xytext=(offset, 0), **look)


@dataclass(frozen=True, slots=True)
class _End:
    """A row of the lower panel: from where to where the days are, and the most likely."""

    label: str
    low: float
    middle: float
    high: float
    text: str


def _ends(content: RunDays) -> list[_End]:
    """Return where the end of a run may be: without failures, as failures leave it, as far as the model is sure."""
    run, figures = content.run, content.run["figures"]
    ideal, days = figures["useful_days"], figures["days"]
    low, middle, high = (figures[f"days_{part}"] for part in ("p10", "p50", "p90"))
    alone = _days(run, ideal)
    found = [_End("steps alone", ideal, ideal, ideal, alone)]
    said = f"{_days(run, low)} to {_days(run, high)}"
    found.append(_End("failures: p10 to p90", low, middle, high, said))
    if run["days_between"] is not None:
        first, last = run["days_between"]
        digits = content.digits
        unit, factor = _unit(days)
        low, high = (digits.rate(end * factor, like=days * factor) for end in (first, last))
        said = f"{low} to {high} {unit[0].lower()}"
        level = f": {level_text(content.interval)} interval" if content.interval else ""
        found.append(_End(f"cost model{level}", first, days, last, said))
    return found


def _intervals(axes: "Axes", ends: Sequence[_End], run: Document) -> None:
    """Draw each end as a line with a mark, and the deadline across them."""
    colors = (COLORS["blue"], COLORS["vermilion"], GREY)
    unit, factor = _unit(run["figures"]["days"])
    for place, (one, color) in enumerate(zip(ends, colors, strict=False)):
        if one.low < one.high:
            line = [one.low * factor, one.high * factor]
            axes.plot(line, [place] * 2, color=color, lw=4, solid_capstyle="butt")
        axes.plot([one.middle * factor], [place], color=color, **_DOT)
        _note(axes, one.text, (one.high * factor, place), 8)
    values = [end for one in ends for end in (one.low, one.high)]
    limit = _deadline(run)
    if limit is not None:
        values.append(limit)
        axes.axvline(limit * factor, color=BLACK, lw=1.4, label=f"deadline, {limit:,.3g} d")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), borderpad=0, handlelength=1.2)
    low, high = min(values) * factor, max(values) * factor
    room = max(high - low, 0.02 * high)
    axes.set_xlim(low - 0.06 * room, high + 0.3 * room)
    axes.set_ylim(len(ends) - 0.4, -0.6)
    axes.set_yticks(range(len(ends)), [one.label for one in ends])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"{unit} (not from 0)")
    axes.set_title("When it ends")


def _chances(axes: "Axes", content: RunDays) -> None:
    """Draw the chance to have ended by each day, as failures alone leave it, with p10, p50 and p90."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    figures, color = content.run["figures"], COLORS["vermilion"]
    unit, factor = _unit(figures["days"])
    shares, days = zip(*content.ended, strict=True)
    axes.plot([one * factor for one in days], [100 * one for one in shares], color=color)
    for share in (10, 50, 90):
        axes.plot([figures[f"days_p{share}"] * factor], [share], color=color, **_DOT)
    axes.set_ylim(0, 100)
    axes.set_yticks((10, 50, 90))
    axes.set_ylabel("Ended (%)")
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
    axes.set_xlabel(unit)
    axes.set_title("Failures alone")


def _deadline(run: Document) -> float | None:
    """Return the days that the run may take, if it says so."""
    found = [one["limit"] for one in run["limits"] if one["field"] == "deadline"]
    return found[0] if found else None


def _days(run: Document, value: float) -> str:
    return span(value, run["figures"]["days"])
