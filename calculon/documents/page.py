"""The page of one result: the question, and where time, memory and messages go; in a terminal and in a report.

Every table is sorted by size; bars of times are drawn against the longest, those of memory against the capacity (unless
next to nothing is used). Zeros stay out of the way, and so does everything that a file does not tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from calculon.base.units import duration
from calculon.declarations.axes import FURTHER_AXES
from calculon.documents.context_section import context_section
from calculon.documents.expert_section import experts_section
from calculon.documents.figures_group import figures_group
from calculon.documents.how_sure import memory_text, nearest_table, remarks
from calculon.documents.layer_table import by_kind, layer_table
from calculon.documents.page_title import titled
from calculon.documents.rank_group_table import groups_section
from calculon.documents.result import Inputs, Result
from calculon.documents.setup import key_figures, setup_texts
from calculon.documents.stage_table import stages_group
from calculon.render.bars import COLORS, Bar, Share, has_blocks, marks
from calculon.render.document import labelled
from calculon.render.grids import grid, indented, side_by_side
from calculon.render.terminal import drawn
from calculon.render.texts import bandwidth, heading, level_text

SIDE_BY_SIDE = 144
"""Width from which time is next to memory and communication."""

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
    "host_time": ("work of the host", "waiting"),
    **{
        f"{axis.name}_comm_exposed_time": (f"{axis.kind}-parallel traffic", "communicating")
        for axis in FURTHER_AXES
    },
}
"""Words and group of every part of the iteration time."""

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
"""Words, degree and statistics of every kind of traffic."""


class Page:
    """The page of a result; it lays itself out for the width at hand."""

    def __init__(self, result: Result):
        self.result = result

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        result = self.result
        machine = (result.question or {}).get("system", {})
        setup = labelled(setup_texts(result))
        title = titled(result.title, f"edition {result.terms}", machine, lead=(setup,))
        yield from (drawn(title), Text(), drawn(key_figures(result)), Text())
        if result.belief is not None:
            yield from (*_how_sure(result.belief), Text())
        if result.residuals is not None:
            label = "interval" if result.interval is None else "kernels alone"
            yield from (_interval(result.residuals, label), Text())
        if "mfu" in result.stats:
            yield from (*figures_group(result, options.max_width), Text())
        coloured = bool(console.color_system) and not console.no_color
        experts = experts_section(result, table=True)
        context = context_section(result)
        time = Group(
            *_time(result, has_blocks(console, options) and coloured),
            *((Text(), *stages_group(result.stages, result.digits)) if result.stages else ()),
            *((Text(), drawn(context)) if context else ()),
            *((Text(), drawn(experts)) if experts else ()),
        )
        legend = "{} exposed {} hidden".format(*marks(console, options))
        traffic = (*_communication(result, legend), *groups_section(result.groups, result.domains))
        rest = Group(*_memory(result), Text(), *traffic)
        if options.max_width >= SIDE_BY_SIDE:
            yield side_by_side(time, rest)
        else:
            yield from (time, Text(), rest)
        training = result.execution is None or bool(result.execution["training"])
        for layers in by_kind(result.layers or ()):
            yield Text()
            yield from layer_table(layers, options.max_width, training=training)


def interval_texts(interval: Mapping[str, Any]) -> dict[str, str]:
    """Name level (rounded down) and ends of an interval, the parts that it is from, and those that it leaves out."""
    ends = f"{level_text(interval)}: {duration(interval['low'])} to {duration(interval['high'])}"
    parts = ", ".join(dict.fromkeys(one["part"] for one in interval["parts"]))
    texts = {"interval": f"{ends}, from residuals of {parts}", "method": interval["method"]}
    if interval["unknown"]:
        texts["taken as exact"] = ", ".join(interval["unknown"]) + " (no residuals)"
    return texts


def _how_sure(belief: Mapping[str, Any]) -> Sequence[RenderableType]:
    """Say what an interval rests on, what makes it less sure, and which measured runs are near."""
    notes = [Text.assemble((f"{label}: ", "bold"), text) for label, text in remarks(belief)]
    if belief["memory"]:
        notes.append(Text.assemble(("Memory: ", "bold"), memory_text(belief["memory"])))
    runs = belief["nearest"]
    parts = Group(*notes, *([nearest_table(runs)] if runs else []))
    return [heading("How sure", belief["basis"]), indented(parts)]


def _interval(interval: Mapping[str, Any], title: str) -> RenderableType:
    table = grid("text", "text")
    for label, text in interval_texts(interval).items():
        first = label == "interval"
        table.add_row(
            Text(title if first else label, "dim"), Text(text, "bold" if first else "dim")
        )
    return indented(table)


def _time(result: Result, swatches: bool) -> Sequence[RenderableType]:
    """Break the iteration into its parts, largest first."""
    total = result.value("total_time")
    times = {name: time for name, time in result.times().items() if time > 0}
    parts = sorted(times, key=lambda name: -times[name])
    table = _bars()
    digits = result.digits
    texts = digits.seconds([times[name] for name in parts], total)
    for name, text in zip(parts, texts, strict=True):
        label, group = PARTS[name]
        bar = Bar((Share(times[name] / times[parts[0]], GROUP_COLORS[group]),))
        table.add_row(label, text, digits.share(times[name] / total), bar)
    sums = ("total", *digits.seconds([total], total), digits.share(1.0))
    whole = (Text(text, "bold") for text in sums)
    table.add_row(*whole)
    label = PARTS[parts[0]][0]
    share = digits.share(times[parts[0]] / total)
    remark = f"{digits.duration(total)} per iteration; largest part: {label}, {share}"
    return [
        heading("Time", remark),
        indented(Group(_groups(times, total, swatches), table)),
    ]


def _groups(times: dict[str, float], total: float, swatches: bool) -> Text:
    """Return the share of each group of parts, most first; swatches are the legend of the bars."""
    groups = dict.fromkeys(GROUP_COLORS, 0.0)
    for name, time in times.items():
        groups[PARTS[name][1]] += time
    text = Text(style="dim")
    for group, time in sorted(groups.items(), key=lambda item: -item[1]):
        if time / total >= 0.005:
            text.append("  " if text else "")
            words = f"{group} {time / total * 100:.0f} %"
            if swatches:
                text.append("■\N{NO-BREAK SPACE}", f"not dim {COLORS[GROUP_COLORS[group]]}")
                words = words.replace(" ", "\N{NO-BREAK SPACE}")
            text.append(words)
    return text


def _memory(result: Result) -> Iterator[RenderableType]:
    """Show the memory of both tiers in use, by kind, against what is usable of them as far as that is known."""
    capacities, digits = result.capacities or (0.0, 0.0), result.digits
    for tier, (kinds, there) in enumerate(zip(result.memory(), capacities, strict=True)):
        used = sum(kinds.values())
        name = f"Memory, tier {tier + 1}"
        whole = result.inputs.machine.capacities[tier] if result.inputs else there
        most = digits.capacity(there) + " usable" * (there != whole)
        if used == 0:
            if there:
                yield heading(name, f"unused ({most})")
            continue
        table = _bars()
        scale = there if used > there / 20 and there else max(kinds.values())
        for kind, size in sorted(kinds.items(), key=lambda item: -item[1]):
            if size > 0:
                bar = Bar((Share(size / scale, "green"),))
                table.add_row(kind, digits.gib(size), digits.share(size / (there or used)), bar)
        full = (
            Bar((Share(used / there, "green"), Share(1 - used / there, "grey", solid=False)))
            if there
            else ""
        )
        sums = ("in use", digits.gib(used), digits.share(used / (there or used)))
        total = (Text(text, "bold") for text in sums)
        table.add_row(*total, full)
        remark = digits.gib(used)
        if there:
            remark += f" of {most}, {digits.gib(there - used)} free"
        yield from [Text()] * bool(tier)
        yield from (heading(name, remark), indented(table))
        if tier == 1 and result.inputs is not None:
            needed = bandwidth(result.value("offload_mem_bw_req"))
            have = bandwidth(result.inputs.machine.bandwidths[1])
            yield Text(f"  {needed} would hide all offloading; tier 2 has {have}", "dim")


def network_text(inputs: Inputs | None, degree: str) -> str:
    """Name the network of a degree of parallelism and its achieved bandwidth, when the system is known."""
    if inputs is None:
        return ""
    number = inputs.networks[degree]
    return f"network {number}, {bandwidth(inputs.machine.networks[number])}"


def _communication(result: Result, legend: str) -> Sequence[RenderableType]:
    """Set time on the link against exposed time for each kind of parallelism."""
    total, digits = result.value("total_time"), result.digits
    links = {key: result.value(f"{key}_link_time") for _, _, key in LINKS}
    exposed = {key: result.value(f"{key}_exposed_time") for _, _, key in LINKS}
    longest = max(*links.values(), *exposed.values())
    if longest == 0:
        return [heading("Communication", "none")]
    table = grid("text", "text", "right", "right", "wide", least=[0, 0, 7, 7])
    table.add_row("", "", *(Text(text, "dim") for text in ("on link", "exposed", legend)))
    for words, field, key in LINKS:
        link, out = links[key], exposed[key]
        if not link and not out:
            continue
        hidden = max(0.0, link - out)
        pieces = Share(out / longest, "vermilion"), Share(hidden / longest, "grey", solid=False)
        where = Text(network_text(result.inputs, field), "dim")
        texts = digits.seconds([link, out], longest if digits.spread else total)
        table.add_row(words, where, *texts, Bar(pieces))
    share = digits.share(sum(exposed.values()) / total)
    on_link, not_hidden = (digits.duration(sum(one.values())) for one in (links, exposed))
    remark = f"{on_link} on the link, {not_hidden} exposed ({share} of the time)"
    return [heading("Communication", remark), indented(table)]


def _bars() -> Table:
    """Return an empty table of label, value, share and bar."""
    return grid("left", "right", "right", "wide", least=[25, 11, 7])
