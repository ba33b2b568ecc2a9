"""Chart of time per token, throughput and time to first token by batch, with the limits of the batch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calculon.declarations.named_values import CORRECTED
from calculon.documents.batch_page import CUTS
from calculon.documents.serving_page import deployment_words, requests_words
from calculon.render.chart import Area, Axis, Chart, Line, Mark, Notes, Panel, Rule, Span, dots
from calculon.render.chart_axes import count_axis, time_unit, value_axis
from calculon.serving.by_batch import BatchBound, ByBatch
from calculon.serving.passes.row_times import CAUSES
from calculon.serving.records.load import Workload
from calculon.serving.serve import Served

WORDS = "Time per token, throughput and time to the first token of a deployment by batch, with the limits of the batch"
"""Description of the chart for readers who cannot see it (alt text)."""

_BANDS = {
    "weights": ("blue", ""),
    "cache": ("sky", "/"),
    "activations": ("blue+75", ""),
    "arithmetic": ("green", "."),
    "network": ("vermilion", "\\"),
    "floors": ("orange", "x"),
    "host": ("silver", ""),
}
"""Colors and hatches of the causes of decode time: memory blue, communication vermilion."""

_FEW = 4  # batch from which on its axis has ticks at powers of two
_ROUNDING = 1e-9
_NEAR = 0.3  # share of the width within which labels would overlap
_BEYOND = 1.2  # end of the axis over the largest batch


def batch_curves(curve: ByBatch) -> Chart:
    """Return three panels by batch: time per token, throughput, and time to first token."""
    served = curve.served
    columns = {name: column.tolist() for name, column in curve.columns.items()}
    batch = columns["batch"]
    powers = [2.0**n for n in range(int(math.log2(batch[-1])) + 1)]
    ends = (1.0, _BEYOND * batch[-1])
    axis = count_axis("Batch: sequences per replica", powers if batch[-1] >= _FEW else batch)
    x = replace(axis, limits=ends)
    bounds = list(_bounds(curve.cuts, x))
    rows = (
        ("tpot", "Time per token", 3.2),
        ("output_rate_per_proc", "Generated tokens/s\nper processor", 1.8),
        ("ttft", "First token", 1.5),
    )
    panels = []
    for name, label, height in rows:
        first = name == "tpot"
        unit, factor = ("", 1.0) if name.endswith("proc") else time_unit(max(columns[name]))
        values = [value * factor for value in columns[name]]
        y = value_axis(label, unit, values, padding=0.1)
        marks: list[Mark] = [Span(low=batch[-1], high=ends[1])]
        marks += _bands(columns, factor) if first else []
        marks.append(Line(x=batch, y=values, color="black" if first else "blue"))
        marks += _limit(served.workload, name, min(columns[name]), factor, x, y)
        # Labels of the limits are written in the first panel only.
        marks += bounds if first else [replace(bound, text="") for bound in bounds]
        marks += _point(served, name, factor, y)
        panels.append(Panel(x=x, y=y, marks=marks, height=height))
    return Chart(
        title=f"{served.model.name} on {served.deployment.num_procs:,} x {served.system.name}",
        subtitle=f"{deployment_words(served.deployment)}; {requests_words(served.workload)}",
        terms=[CORRECTED],
        rows=[(panel,) for panel in panels],
        width=6.4,
        shared=True,
    )


def _bands(columns: Mapping[str, list[float]], factor: float) -> Iterator[Area]:
    """Yield the parts of the time per token, stacked: causes of decode time, and prefill of other requests."""
    top = [0.0] * len(columns["batch"])
    parts = {CAUSES[name]: (columns[f"decoding_{name}"], *look) for name, look in _BANDS.items()}
    decoding = [sum(times) for times in zip(*(times for times, *_ in parts.values()), strict=True)]
    prompts = [a - b for a, b in zip(columns["tpot"], decoding, strict=True)]
    parts["prompts of other requests"] = (prompts, "purple+80", "")
    for name, (times, color, hatch) in parts.items():
        if max(times) > _ROUNDING * max(columns["tpot"]):
            low, top = top, [a + b * factor for a, b in zip(top, times, strict=True)]
            yield Area(name=name, x=columns["batch"], low=low, high=top, color=color, hatch=hatch)


def _limit(
    load: Workload, name: str, least: float, factor: float, x: Axis, y: Axis
) -> Iterator[Mark]:
    """Yield the limit of a time if it is within the panel, with a note if every batch misses it."""
    limit: float | None = getattr(load, f"{name}_limit", None)
    if limit is None or y.share(limit * factor) >= 1:
        return
    yield Rule(name="limit of the workload", at=limit * factor, level=True, dash="dash", width=0.9)
    if limit < least:
        text = f"{name.upper()} limit of {limit * 1e3:,g} ms: missed at every batch"
        yield Notes(x=[x.value(0.005)], y=[y.value(0.93)], texts=[text], size=7.0)


def _bounds(cuts: Sequence[BatchBound], x: Axis) -> Iterator[Rule]:
    """Yield the limits of the batch; labels of close ones are in separate lines."""
    names: dict[int, list[str]] = {}
    for cut in sorted(cuts, key=lambda one: one.batch):
        if cut.batch >= 1 and x.share(cut.batch) <= 1:
            names.setdefault(cut.batch, []).append(CUTS[cut.name])
    last, row = -1.0, 0
    for batch, several in names.items():
        place = x.share(batch)
        row = row + 1 if place - last < _NEAR else 0
        last = place
        side = "right" if place > 1 - _NEAR else "left" if place < _NEAR else "center"
        text = f"{', '.join(several)}: {batch:,}"
        yield Rule(at=batch, dash="dot", width=0.9, text=text, row=row, side=side)


def _point(served: Served, name: str, factor: float, y: Axis) -> Iterator[Line]:
    """Yield the operating point under the workload."""
    value = served[name] * factor
    if math.isfinite(value) and y.share(value) <= 1:
        look = {"name": "under the workload", "color": "black", "clip": False}
        yield dots([(served["concurrency"], value)], **look)
