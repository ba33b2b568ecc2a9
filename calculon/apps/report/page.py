"""The page of one estimate: what runs where, and where its time, its memory and its messages go.

Every table is sorted by size; bars of times are drawn against the longest, those of memory against the capacity (unless
next to nothing is used). What is zero stays out of the way.
"""

from collections.abc import Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from calculon.apps.report.bars import COLORS, Bar, Share, has_blocks, marks
from calculon.apps.report.figures_group import figures_group, has_figures
from calculon.apps.report.interval_group import interval_group
from calculon.apps.report.layer_table import by_kind, layer_table
from calculon.apps.report.rank_group_table import groups_section
from calculon.apps.report.setup import key_figures, setup, title
from calculon.apps.report.sheet import Sheet
from calculon.apps.report.stage_table import stages_group
from calculon.apps.report.texts import bandwidth, capacity, gib, heading, percent, seconds
from calculon.spec.axes import FURTHER_AXES
from calculon.statistics import ALL_PARTS_OF_TIME
from calculon.units import duration

SIDE_BY_SIDE = 144
"""Width from which time stands beside memory and communication."""

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
    """The page of an estimate; it lays itself out for the width at hand."""

    def __init__(self, sheet: Sheet):
        self.sheet = sheet

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = self.sheet
        yield from (
            title(sheet),
            setup(sheet),
            Text(),
            key_figures(sheet, options.max_width),
            Text(),
        )
        if sheet.interval is not None:
            yield from (interval_group(sheet.interval), Text())
        if has_figures(sheet.stats):
            yield from (*figures_group(sheet.stats, options.max_width), Text())
        coloured = bool(console.color_system) and not console.no_color
        time = Group(
            *_time(sheet, has_blocks(console, options) and coloured),
            *((Text(), *stages_group(sheet.stages)) if sheet.stages else ()),
        )
        legend = "{} exposed {} hidden".format(*marks(console, options))
        traffic = (*_communication(sheet, legend), *groups_section(sheet.groups))
        rest = Group(*_memory(sheet), Text(), *traffic)
        if options.max_width >= SIDE_BY_SIDE:
            beside = Table.grid(padding=(0, 4), expand=True)
            beside.add_column(ratio=1)
            beside.add_column(ratio=1)
            beside.add_row(time, rest)
            yield beside
        else:
            yield from (time, Text(), rest)
        if sheet.layers is not None:
            training = bool(sheet.execution["training"])
            for layers in by_kind(sheet.layers):
                yield Text()
                yield from layer_table(layers, options.max_width, training=training)


def _time(sheet: Sheet, swatches: bool) -> Sequence[RenderableType]:
    """Break the iteration into its parts, largest first."""
    total = sheet.value("total_time")
    times = {name: sheet.value(name) for name in ALL_PARTS_OF_TIME if sheet.value(name) > 0}
    parts = sorted(times, key=lambda name: -times[name])
    table = _bars()
    texts = seconds([times[name] for name in parts], total)
    for name, text in zip(parts, texts, strict=True):
        label, group = PARTS[name]
        bar = Bar((Share(times[name] / times[parts[0]], GROUP_COLORS[group]),))
        table.add_row(label, text, percent(times[name] / total), bar)
    whole = (Text(text, "bold") for text in ("total", *seconds([total], total), "100.0 %"))
    table.add_row(*whole)
    label = PARTS[parts[0]][0]
    remark = f"{duration(total)} per iteration; largest part: {label}, {percent(times[parts[0]] / total)}"
    return [
        heading("Time", remark),
        Padding(Group(_groups(times, total, swatches), table), (0, 0, 0, 2)),
    ]


def _groups(times: dict[str, float], total: float, swatches: bool) -> Text:
    """Say what kind of thing the iteration is spent on, most first; swatches are the legend of the bars."""
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


def _memory(sheet: Sheet) -> Sequence[RenderableType]:
    """Show what both tiers hold, by kind, against what they can hold."""
    shown: list[RenderableType] = []
    for tier, kinds in enumerate(sheet.memory()):
        used, there = sum(kinds.values()), sheet.machine.capacities[tier]
        name = f"Memory, tier {tier + 1}"
        if used == 0:
            if there:
                shown.append(heading(name, f"unused ({capacity(there)})"))
            continue
        table = _bars()
        scale = there if used > there / 20 else max(kinds.values())
        for kind, size in sorted(kinds.items(), key=lambda item: -item[1]):
            if size > 0:
                table.add_row(
                    kind, gib(size), percent(size / there), Bar((Share(size / scale, "green"),))
                )
        full = Bar((Share(used / there, "green"), Share(1 - used / there, "grey", solid=False)))
        whole = (Text(text, "bold") for text in ("in use", gib(used), percent(used / there)))
        table.add_row(*whole, full)
        remark = f"{gib(used)} of {capacity(there)}, {gib(there - used)} free"
        shown += [Text()] * bool(tier) + [heading(name, remark), Padding(table, (0, 0, 0, 2))]
        if tier == 1:
            needed = bandwidth(sheet.value("offload_mem_bw_req"))
            have = bandwidth(sheet.machine.bandwidths[1])
            shown.append(Text(f"  {needed} would hide all offloading; tier 2 has {have}", "dim"))
    return shown


def network_text(sheet: Sheet, degree: str) -> str:
    """Name the network of a degree of parallelism, and what it achieves."""
    number = sheet.networks[degree]
    network = sheet.machine.links[number]
    return f"network {number}, {bandwidth(network.bandwidth * network.efficiency)}"


def _communication(sheet: Sheet, legend: str) -> Sequence[RenderableType]:
    """Set time on the link against exposed time for each kind of parallelism."""
    total = sheet.value("total_time")
    links = {key: sheet.value(f"{key}_link_time") for _, _, key in LINKS}
    exposed = {key: sheet.value(f"{key}_exposed_time") for _, _, key in LINKS}
    longest = max(*links.values(), *exposed.values())
    if longest == 0:
        return [heading("Communication", "none")]
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column()
    table.add_column()
    for _ in range(2):
        table.add_column(justify="right", no_wrap=True, min_width=7)
    table.add_column(ratio=1)
    table.add_row("", "", *(Text(text, "dim") for text in ("on link", "exposed", legend)))
    for words, field, key in LINKS:
        link, out = links[key], exposed[key]
        if not link and not out:
            continue
        hidden = max(0.0, link - out)
        pieces = Share(out / longest, "vermilion"), Share(hidden / longest, "grey", solid=False)
        where = Text(network_text(sheet, field), "dim")
        table.add_row(words, where, *seconds([link, out], total), Bar(pieces))
    share = percent(sum(exposed.values()) / total)
    on_link, not_hidden = duration(sum(links.values())), duration(sum(exposed.values()))
    remark = f"{on_link} on the link, {not_hidden} exposed ({share} of the time)"
    return [
        heading("Communication", remark),
        Padding(table, (0, 0, 0, 2)),
    ]


def _bars() -> Table:
    """Return an empty table of label, value, share and bar."""
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True, min_width=25)
    table.add_column(justify="right", no_wrap=True, min_width=11)
    table.add_column(justify="right", no_wrap=True, min_width=7)
    table.add_column(ratio=1)
    return table
