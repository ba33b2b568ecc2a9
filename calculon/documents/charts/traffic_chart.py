"""Traffic of each kind of parallelism: exposed time, and time that work hides."""

from collections.abc import Sequence

from calculon.render.chart import Axis, Bars, Chart, Panel, categories
from calculon.render.chart_axes import time_unit


def traffic(
    title: str, terms: str, names: Sequence[str], links: Sequence[float], exposed: Sequence[float]
) -> Chart:
    """Return times on the link in seconds as bars, the exposed part first."""
    hidden = [max(0.0, link - out) for link, out in zip(links, exposed, strict=True)]
    longest = max(out + rest for out, rest in zip(exposed, hidden, strict=True))
    unit, factor = time_unit(longest)
    starts = [0.0] * len(names)
    bars = []
    for name, times, color in (("exposed", exposed, "vermilion"), ("hidden", hidden, "grey")):
        lengths = [time * factor for time in times]
        words = [
            f"{kind}: {time:.3g} {unit} {name}" for kind, time in zip(names, lengths, strict=True)
        ]
        bars.append(
            Bars(
                name=name,
                at=range(len(names)),
                starts=starts,
                lengths=lengths,
                color=color,
                words=words,
            )
        )
        starts = lengths
    panel = Panel(
        x=Axis(label="Time of a step", unit=unit, limits=(0.0, 1.05 * longest * factor)),
        y=categories(names),
        marks=bars,
        height=0.7 + 0.35 * len(names),
    )
    return Chart(title=title, terms=[terms], rows=((panel,),))
