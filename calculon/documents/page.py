"""Page of one result: the question, time, memory and communication; for terminals and reports.

Tables are sorted by size. Bars of times are relative to the longest, bars of memory to the capacity (unless almost
nothing is used). Zeros are left out, and so is everything that a file does not contain.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from calculon.base.units import duration
from calculon.declarations.axes import FURTHER_AXES
from calculon.declarations.statistics import MEMORIES
from calculon.documents.confidence import (
    ABOVE,
    LIKELY_OUT,
    TIGHT,
    confidence_section,
    remarks,
    short_basis,
)
from calculon.documents.context_section import context_section
from calculon.documents.expert_section import experts_section
from calculon.documents.figures_group import figures_section
from calculon.documents.layer_table import by_kind, layers_section
from calculon.documents.page_title import titled
from calculon.documents.rank_group_table import groups_section
from calculon.documents.result import Inputs, Result
from calculon.documents.setup import (
    Row,
    key_figures,
    launch_lines,
    precision_lines,
    setup_texts,
    short_figures,
)
from calculon.documents.stage_table import stages_section
from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import (
    Block,
    Document,
    Grid,
    Legend,
    Section,
    SideBySide,
    Swatches,
    bold,
    dim,
    labeled,
)
from calculon.render.texts import bandwidth, level_text

SIDE_BY_SIDE = 144
"""Minimum width for time next to memory and communication."""

PARTS = {
    "fw_time": ("forward computation", "computing"),
    "bw_time": ("backward computation", "computing"),
    "optim_step_time": ("optimizer step", "computing"),
    "fw_offload_exposed_time": ("forward offloading", "offloading"),
    "bw_offload_exposed_time": ("backward offloading", "offloading"),
    "recompute_time": ("recomputation", "recomputing"),
    "recomm_exposed_time": ("repeated collectives", "communicating"),
    "bubble_time": ("pipeline bubble", "waiting"),
    "tp_comm_exposed_time": ("tensor-parallel traffic", "communicating"),
    "pp_comm_exposed_time": ("pipeline-parallel traffic", "communicating"),
    "dp_comm_exposed_time": ("data-parallel traffic", "communicating"),
    "host_time": ("host work", "waiting"),
    **{
        f"{axis.name}_comm_exposed_time": (f"{axis.kind}-parallel traffic", "communicating")
        for axis in FURTHER_AXES
    },
}
"""Label and group of every part of the iteration time."""

GROUP_COLORS = {
    "computing": "blue",
    "recomputing": "sky",
    "communicating": "vermilion",
    "waiting": "orange",
    "offloading": "purple",
}

LINKS = (
    ("tensor-parallel", "tensor_par", "tp_comm"),
    ("  repeated", "tensor_par", "recomm"),
    ("pipeline-parallel", "pipeline_par", "pp_comm"),
    ("data-parallel", "data_par", "dp_comm"),
    *((f"{axis.kind}-parallel", axis.degree, f"{axis.name}_comm") for axis in FURTHER_AXES),
)
"""Label, degree and statistics of every kind of traffic."""


def estimate_page(result: Result) -> Document:
    """Return the page of a result."""
    machine = (result.question or {}).get("system", {})
    time = (
        time_section(result),
        stages_section(result.stages, result.digits) if result.stages else None,
        context_section(result),
        experts_section(result, table=True),
    )
    traffic = (traffic_section(result), groups_section(result.groups, result.domains))
    columns = (time, (*_memory(result), *traffic))
    training = result.execution is None or bool(result.execution["training"])
    # The evidence interval replaces the residual interval as the headline; both are shown if both exist.
    label = "interval" if result.interval is None else "kernels only"
    parts = (
        key_figures(result),
        result.belief and confidence_section(result.belief, memory=True),
        result.residuals and _interval(result.residuals, label),
        figures_section(result) if "mfu" in result.stats else None,
        SideBySide(tuple(tuple(filter(None, column)) for column in columns), SIDE_BY_SIDE),
        *(layers_section(layers, training=training) for layers in by_kind(result.layers or ())),
    )
    lead = (labeled(setup_texts(result)),)
    terms = f"edition {result.terms}"
    return titled(result.title, terms, machine, lead=lead, parts=filter(None, parts))


def short_estimate_page(result: Result) -> Document:
    """Return the page of a result of edition ``corrected`` in about 20 lines."""
    texts = setup_texts(result)
    lead = labeled({name: texts[name] for name in ("split", "batch")})
    basis = short_basis(str((result.belief or {})["basis"]))
    said = (f"{label}: {text}" for label, text in remarks(result.belief or {}))
    # The short page keeps only the two warnings that change decisions.
    notes = tuple(text for text in said if text.startswith((ABOVE, LIKELY_OUT, TIGHT)))
    parts = (
        Section("", (short_figures(result), *notes)),
        time_section(result),
        dim(f"90 % interval: {basis}. -v: everything."),
    )
    machine = (result.question or {}).get("system", {})
    return titled(result.title, f"edition {result.terms}", machine, lead=(lead,), parts=parts)


def interval_texts(interval: Mapping[str, Any]) -> dict[str, str]:
    """Return level (rounded down) and ends of an interval, the parts with residuals, and the parts without."""
    ends = f"{level_text(interval)}: {duration(interval['low'])} to {duration(interval['high'])}"
    parts = ", ".join(dict.fromkeys(one["part"] for one in interval["parts"]))
    texts = {"interval": f"{ends}, from residuals of {parts}", "method": interval["method"]}
    if interval["unknown"]:
        texts["assumed exact"] = ", ".join(interval["unknown"]) + " (no residuals)"
    return texts


def _interval(interval: Mapping[str, Any], title: str) -> Section:
    texts = interval_texts(interval)
    first = (dim(title), bold(texts.pop("interval")))
    others = ((dim(label), dim(text)) for label, text in texts.items())
    return Section("", (Grid(("text", "text"), (first, *others)),))


def time_section(result: Result) -> Section:
    """Return the parts of the iteration, largest first."""
    total, digits = result.value("total_time"), result.digits
    found = [(name, time) for name, time in result.times().items() if time > 0]
    times = dict(sorted(found, key=lambda item: -item[1]))
    largest, longest = next(iter(times.items()))
    rows = list(_time_rows(result, times))
    rows.append((*map(bold, ("total", *digits.seconds([total], total), digits.share(1.0))),))
    part = f"{PARTS[largest][0]}, {digits.share(longest / total)}"
    remark = f"{digits.duration(total)} per iteration; largest part: {part}"
    blocks = (_groups(times, total), _bars(rows), *launch_lines(result), *precision_lines(result))
    return Section("Time", blocks, remark, opened=True)


def exposed_grid(result: Result) -> Grid | None:
    """Return the exposed collectives and transfers of an iteration, largest first."""
    times = {
        name: time
        for name, time in sorted(result.times().items(), key=lambda item: -item[1])
        if time > 0 and PARTS[name][1] == "communicating"
    }
    return _bars(_time_rows(result, times)) if times else None


def _time_rows(result: Result, times: Mapping[str, float]) -> Iterator[Row]:
    """Yield label, time, share of the iteration and bar of some parts of it."""
    total, digits = result.value("total_time"), result.digits
    longest, texts = max(times.values()), digits.seconds(times.values(), total)
    for (name, time), text in zip(times.items(), texts, strict=True):
        label, group = PARTS[name]
        # Relative to the longest part, so that small parts remain visible.
        bar = Bar((Share(time / longest, GROUP_COLORS[group]),))
        yield label, text, digits.share(time / total), bar


def _groups(times: dict[str, float], total: float) -> Swatches:
    """Return the share of each group of parts, largest first: the legend of the bars."""
    groups = dict.fromkeys(GROUP_COLORS, 0.0)
    for name, time in times.items():
        groups[PARTS[name][1]] += time
    return Swatches(
        tuple(
            (GROUP_COLORS[group], f"{group} {time / total * 100:.0f} %")
            for group, time in sorted(groups.items(), key=lambda item: -item[1])
            if time / total >= 0.005  # a smaller share would be written as 0 %
        )
    )


def _memory(result: Result) -> list[Section]:
    """Return the memory of both tiers by kind, relative to the usable memory if it is known."""
    capacities, digits = result.capacities or (0.0, 0.0), result.digits
    sections: list[Section] = []
    for tier, (kinds, there) in enumerate(zip(result.memory(), capacities, strict=True)):
        used = sum(kinds.values())
        name = MEMORIES[tier].capitalize()
        whole = result.inputs.machine.capacities[tier] if result.inputs else there
        # Usable memory is only named if the system withholds a part of the capacity.
        most = digits.capacity(there) + " usable" * (there != whole)
        if used == 0:
            if there and sections:
                unused = (bold(name), f": unused ({most})")
                # An unused tier is one line of the previous section, not a section of its own.
                sections[-1] = replace(sections[-1], blocks=(*sections[-1].blocks, unused))
            continue
        remark = digits.gib(used)
        if there:
            remark += f" of {most}, {digits.left(there - used)}"
        blocks: list[Block] = [memory_grid(kinds, there, digits)]
        if tier == 1 and result.inputs is not None:
            needed = bandwidth(result.value("offload_mem_bw_req"))
            have = bandwidth(result.inputs.machine.bandwidths[1])
            blocks.append(dim(f"{needed} would hide all offloading; host memory has {have}"))
        sections.append(Section(name, tuple(blocks), remark, opened=True))
    return sections


def memory_grid(kinds: Mapping[str, float], there: float, digits: Digits) -> Grid:
    """Return the kinds of memory, largest first, and their sum, relative to the usable memory if it is known."""
    return _bars(_memory_rows(kinds, there, digits))


def _memory_rows(kinds: Mapping[str, float], there: float, digits: Digits) -> Iterator[Row]:
    """Yield the kinds of memory, largest first, and their sum."""
    used = sum(kinds.values())
    # Below 5 % of the capacity, bars relative to it would be invisible.
    scale = there if used > there / 20 and there else max(kinds.values())

    def row(kind: str, size: float) -> tuple[str, str, str]:
        return kind, digits.gib(size), digits.share(size / (there or used))

    for kind, size in sorted(kinds.items(), key=lambda item: -item[1]):
        if size > 0:
            yield *row(kind, size), Bar((Share(size / scale, "green"),))
    total = map(bold, row("in use", used))
    if there:
        share = used / there
        bar = Bar((Share(share, "green"), Share(1 - share, "gray", solid=False)))
        yield *total, bar
    else:
        yield (*total,)


def traffic_degrees(result: Result) -> list[str]:
    """Return the degrees of the kinds of parallelism that send anything, in the order of :func:`traffic`."""
    ends = ("link_time", "exposed_time")
    return [degree for _, degree, key in LINKS if any(result.value(f"{key}_{end}") for end in ends)]


def traffic(result: Result) -> list[tuple[str, str, float, float]]:
    """Return label, network, time on the link and exposed time of each kind of parallelism that sends anything."""
    found = (
        (
            words,
            _network_text(result.inputs, degree),
            result.value(f"{key}_link_time"),
            result.value(f"{key}_exposed_time"),
        )
        for words, degree, key in LINKS
    )
    return [one for one in found if one[2] or one[3]]


def _network_text(inputs: Inputs | None, degree: str) -> str:
    """Return the network of a degree of parallelism and its achieved bandwidth, if the system is known."""
    if inputs is None:
        return ""
    number = inputs.networks[degree]
    return f"network {number}, {bandwidth(inputs.machine.networks[number])}"


def traffic_section(result: Result) -> Section:
    """Return time on the link and exposed time of each kind of parallelism."""
    several = traffic(result)
    if not several:
        return Section("Communication", (), "none")
    total, digits = result.value("total_time"), result.digits
    *_, links, exposed = zip(*several, strict=True)
    longest = max(*links, *exposed)
    legend = Legend("{} exposed {} hidden")
    rows: list[Row] = [("", "", dim("on link"), dim("exposed"), legend)]
    for words, network, link, out in several:
        # Exposed time may exceed the time on the link, for example by waiting.
        hidden = max(0.0, link - out)
        pieces = Share(out / longest, "vermilion"), Share(hidden / longest, "gray", solid=False)
        texts = digits.seconds([link, out], longest if digits.spread else total)
        rows.append((words, dim(network), *texts, Bar(pieces)))
    share = digits.share(sum(exposed) / total)
    on_link, not_hidden = (digits.duration(sum(one)) for one in (links, exposed))
    remark = f"{on_link} on the link, {not_hidden} exposed ({share} of the time)"
    kinds, least = ("text", "text", "right", "right", "wide"), (0, 0, 7, 7)
    grid = Grid(kinds, tuple(rows), heads=1, least=least)
    return Section("Communication", (grid,), remark)


def _bars(rows: Iterable[Row]) -> Grid:
    """Return a grid of label, value, share and bar."""
    return Grid(("left", "right", "right", "wide"), tuple(rows), least=(25, 11, 7))
