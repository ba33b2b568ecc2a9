"""Charts of fits: measured rates by size with the fitted curve, measured over predicted times, and kernel errors."""

from collections.abc import Sequence
from dataclasses import replace

from calculon.base.units import scaled
from calculon.render.chart import Axis, Chart, Line, Panel, Rule, Span, band, dots, tiled
from calculon.render.chart_axes import log_axis, time_unit

Points = tuple[Sequence[float], Sequence[float]]
"""Coordinates of points on both axes."""

BAND = 0.1
"""Relative error of the band around the diagonal."""

MOST = 50.0
"""Largest drawn error, in percent."""

_FIT, _ERRORS = 3, 4
"""Panels per row."""

_TICKS = 5
"""Maximum number of ticks of an axis."""


def calibration_chart(system: str, panels: Sequence[Panel]) -> Chart:
    """Return the fitted parts of a system."""
    across = min(_FIT, len(panels))
    return Chart(
        title=f"Calibration of {system}", rows=tiled(panels, across), width=1.0 + 3.6 * across
    )


def _measured(fitted: Points, held: Points, left: Points = ((), ())) -> list[Line]:
    """Return the measured points that were fitted, held out, and excluded."""
    looks = (
        (fitted, "fitted", "circle", False),
        (held, "held out", "square", True),
        (left, "left out", "thin cross", False),
    )
    return [
        dots(
            zip(*points, strict=True),
            marker,
            name=f"measured, {rows}",
            sizes=(4.5 if hollow else 4.0,),
            hollow=hollow,
        )
        for points, rows, marker, hollow in looks
        if points[0]
    ]


def rates_panel(
    title: str, unit: str, fitted: Points, held: Points, curve: Points, left: Points = ((), ())
) -> Panel:
    """Return measured rates by size with the curve of the new file.

    Args:
        title: The part, and its errors.
        unit: Unit of the sizes: ``B`` or ``FLOP``.
        fitted, held, curve, left: Sizes and rates of the fitted rows, of the held-out rows, of the new file, and of the
            excluded rows.
    """
    scale, prefix = (1e9, "G") if unit == "B" else (1e12, "T")
    fitted, held, curve, left = (
        (sizes, [rate / scale for rate in rates]) for sizes, rates in (fitted, held, curve, left)
    )
    lines = [
        Line(name="calibrated file", x=curve[0], y=curve[1], color="vermilion"),
        *_measured(fitted, held, left),
    ]
    x, y = ([value for line in lines for value in getattr(line, along)] for along in "xy")
    size = ("Bytes moved", "") if unit == "B" else ("Size", unit)
    return Panel(
        title=title,
        x=log_axis(*size, x, form=_size, most=_TICKS),
        y=log_axis("Rate", f"{prefix}{unit}/s", y, most=_TICKS),
        marks=lines,
        height=3.2,
    )


def _size(value: float) -> str:
    return scaled(value, digits=0) if value >= 1 else f"{value:g}"


def times_panel(title: str, fitted: Points, held: Points) -> Panel:
    """Return measured over predicted seconds, with the diagonal and the error band around it."""
    times = [time for pair in (fitted, held) for some in pair for time in some]
    axis = log_axis(
        "Predicted", "s", [min(times) / 1.3, max(times) * 1.3], padding=0.0, most=_TICKS
    )
    ends = axis.limits or (0.0, 1.0)
    return Panel(
        title=title,
        x=replace(axis, unit=f"s, band: {100 * BAND:g} %"),
        y=replace(axis, label="Measured"),
        marks=[
            band(ends, BAND, color="vermilion", opacity=0.15),
            Line(name="calibrated file", x=ends, y=ends, color="vermilion"),
            *_measured(fitted, held),
        ],
        height=3.2,
    )


def errors_chart(title: str, panels: Sequence[Panel]) -> Chart:
    """Return the errors of groups of kernels."""
    across = min(_ERRORS, len(panels))
    return Chart(
        title=title,
        subtitle=f"Errors above {MOST:g} % are drawn at the edge.",
        rows=tiled(panels, across),
        width=0.9 + 2.4 * across,
    )


def errors_panel(title: str, fitted: Points, held: Points) -> Panel:
    """Return errors in percent by measured seconds; held-out rows are drawn on top."""
    looks = (
        (fitted, "circle", "sky", "fitted"),
        (held, "square", "vermilion", "held out"),
    )
    percent = 100 * BAND
    return Panel(
        title=title,
        x=log_axis("Measured time", "", [*fitted[0], *held[0]], form=_duration, most=_TICKS - 1),
        y=Axis(
            label="Error",
            unit="%",
            limits=(-MOST - 4, MOST + 4),
            ticks=[(tick, f"{tick}".replace("-", "\N{MINUS SIGN}")) for tick in range(-50, 51, 25)],
        ),
        marks=[
            Span(name=f"within {percent:g} %", low=-percent, high=percent, level=True, opacity=0.5),
            Rule(at=0.0, level=True, color="gray", width=0.8),
            *(
                dots(
                    [
                        (time, min(max(error, -MOST), MOST))
                        for time, error in zip(*points, strict=True)
                    ],
                    marker,
                    name=name,
                    sizes=(2.5,),
                    hollow=marker == "square",
                    color=color,
                )
                for points, marker, color, name in looks
                if points[0]
            ),
        ],
        height=1.9,
    )


def _duration(seconds: float) -> str:
    unit, factor = time_unit(seconds * 1.001)
    return f"{seconds * factor:g} {unit}"
