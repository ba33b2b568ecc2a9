"""Measured rates over sizes and the fitted curve, or measured over predicted times: a panel for each part."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from calculon.base.frozen import dataclass
from calculon.base.units import scaled
from calculon.documents.charts.validation_chart import BAND, agreement
from calculon.render.chart import Axis, Chart, Line, Mark, Panel, Rule, Span, in_rows
from calculon.render.chart_axes import log_ticks, time_unit, widened

_WIDEST, _MOST_ERRORS = 3, 4
"""Panels in a row: of parts, and of errors."""

MOST = 50.0
"""Largest error that is drawn, in percent."""

XY = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Rates:
    """One part of a system.

    Attributes
    ----------
    title : str
        The part, and a few words about its errors.
    unit : str
        Of the sizes: ``B`` or ``FLOP``.
    fitted, held : pair of sequences of float
        Sizes and measured rates of the rows that were fitted, and of the rows held out.
    curve : pair of sequences of float
        Sizes and rates of the new file.
    left : pair of sequences of float
        As `fitted`: rows that did not count.
    """

    title: str
    unit: str
    fitted: XY
    held: XY
    curve: XY
    left: XY = ((), ())


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted and measured times in seconds, of rows that were fitted and of rows held out."""

    title: str
    fitted: XY
    held: XY


@dataclass(frozen=True, slots=True)
class Errors:
    """Measured times in seconds and errors of the prediction in percent, of rows fitted and of rows held out."""

    title: str
    fitted: XY
    held: XY


def calibration(title: str, parts: Sequence[Rates | Comparison]) -> Chart:
    """Return a panel for each part, both axes logarithmic."""
    panels = [_rates(one) if isinstance(one, Rates) else _comparison(one) for one in parts]
    rows = in_rows(panels, _WIDEST)
    return Chart(title=title, rows=rows, width=1.0 + 3.6 * len(rows[0]))


def _measured(fitted: XY, held: XY, left: XY = ((), ())) -> Iterator[Line]:
    """Yield the measured rows."""
    for name, (x, y), marker, hollow in (
        ("measured, fitted", fitted, "circle", False),
        ("measured, held out", held, "square", True),
        ("measured, left out", left, "thin cross", False),
    ):
        if len(x):
            yield Line(name=name, x=x, y=y, dash="none", marker=marker, hollow=hollow, sizes=(4.2,))


def _rates(one: Rates) -> Panel:
    scale, prefix = (1e9, "G") if one.unit == "B" else (1e12, "T")
    curve, fitted, held, left = (
        (sizes, [rate / scale for rate in rates])
        for sizes, rates in (one.curve, one.fitted, one.held, one.left)
    )
    lines = [
        Line(name="calibrated file", x=curve[0], y=curve[1], color="vermilion"),
        *_measured(fitted, held, left),
    ]
    x, y = ([value for line in lines for value in values(line)] for values in (_x, _y))
    label = "Size (FLOP)" if one.unit == "FLOP" else "Bytes moved"
    return Panel(
        title=one.title,
        x=_few(x, label, _size),
        y=_few(y, f"Rate ({prefix}{one.unit}/s)", "{:,g}".format),
        marks=lines,
        height=3.0,
    )


def _x(line: Line) -> Sequence[float]:
    return line.x


def _y(line: Line) -> Sequence[float]:
    return line.y


def _few(values: Sequence[float], label: str, form: Callable[[float], str], most: int = 6) -> Axis:
    """Return a logarithmic axis with few ticks."""
    ends = widened(values, 0.05, log=True)
    ticks = [(tick, form(tick)) for tick in log_ticks(*ends, most=most)]
    return Axis(label=label, scale="log", limits=ends, ticks=ticks)


def _comparison(one: Comparison) -> Panel:
    """Return measured over predicted times, with the diagonal and the band around it."""
    times = [time for pair in (one.fitted, one.held) for some in pair for time in some]
    axis = replace(_few(times, "", "{:g}".format), limits=(min(times) / 1.3, max(times) * 1.3))
    return Panel(
        title=one.title,
        x=replace(axis, label="Predicted", unit="s"),
        y=replace(axis, label="Measured", unit="s"),
        marks=[*agreement(axis, "calibrated file"), *_measured(one.fitted, one.held)],
        height=3.0,
    )


def errors(title: str, groups: Sequence[Errors]) -> Chart:
    """Return errors over measured times; errors beyond :data:`MOST` are at the edge."""
    rows = in_rows([_errors(one) for one in groups], _MOST_ERRORS)
    return Chart(
        title=title,
        subtitle=f"errors beyond {MOST:g} % are at the edge",
        rows=rows,
        width=max(4.2, 0.9 + 2.4 * len(rows[0])),
    )


def _errors(one: Errors) -> Panel:
    """Return the errors of a group, with held-out rows above the others."""
    band = 100 * BAND
    marks: list[Mark] = [
        Span(name=f"within {band:g} %", low=-band, high=band, level=True),
        Rule(at=0.0, level=True, color="grey", width=0.8),
    ]
    for name, color, marker, hollow, (times, percents) in (
        ("seen by the fit", "sky", "circle", False, one.fitted),
        ("held out", "vermilion", "square", True, one.held),
    ):
        inside = [min(max(error, -MOST), MOST) for error in percents]
        if inside:
            marks.append(
                Line(
                    name=name,
                    x=times,
                    y=inside,
                    dash="none",
                    color=color,
                    marker=marker,
                    hollow=hollow,
                    sizes=(2.5,),
                )
            )
    return Panel(
        title=one.title,
        x=_few([*one.fitted[0], *one.held[0]], "Measured time", _duration, most=5),
        y=Axis(
            label="Error",
            unit="%",
            limits=(-MOST - 4, MOST + 4),
            ticks=[(n, f"{n}") for n in (-50, -25, 0, 25, 50)],
        ),
        marks=marks,
        height=2.2,
    )


def _duration(seconds: float) -> str:
    unit, factor = time_unit(seconds * 1.001)
    return f"{seconds * factor:g} {unit}"


def _size(value: float) -> str:
    return scaled(value, digits=0) if value >= 1 else f"{value:g}"
