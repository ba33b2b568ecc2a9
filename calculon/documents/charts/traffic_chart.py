"""Chart of communication by kind of parallelism: exposed and hidden time."""

from collections.abc import Sequence

from calculon.documents.charts.breakdown import result_chart
from calculon.documents.page import traffic
from calculon.documents.result import Result
from calculon.render.chart import Axis, Bars, Chart, Panel, categories, stacked
from calculon.render.chart_axes import time_unit

_AROUND, _ROW = 0.9, 0.36
"""Inches: title and axis; a bar."""


def traffic_chart(result: Result) -> Chart | None:
    """Return times on the link as bars, the exposed part first; None without traffic."""
    links = traffic(result)
    if not links:
        return None
    names = [name.strip() for name, *_ in links]
    exposed = [out for *_, out in links]
    hidden = [max(0.0, link - out) for *_, link, out in links]
    longest = max(map(sum, zip(exposed, hidden, strict=True)))
    unit, factor = time_unit(longest)
    total, digits = result.value("total_time"), result.digits

    def bars(name: str, color: str, times: Sequence[float]) -> Bars:
        texts = digits.seconds(times, max(times) if digits.spread else total)
        return Bars(
            name=name,
            at=range(len(names)),
            lengths=[factor * time for time in times],
            color=color,
            words=[f"{kind}: {text} {name}" for kind, text in zip(names, texts, strict=True)],
        )

    panel = Panel(
        x=Axis(label="Time per step", unit=unit, limits=(0.0, 1.04 * factor * longest)),
        y=categories(names),
        marks=stacked([bars("exposed", "vermilion", exposed), bars("hidden", "gray", hidden)]),
        height=_AROUND + _ROW * len(names),
    )
    return result_chart(result, panel)
