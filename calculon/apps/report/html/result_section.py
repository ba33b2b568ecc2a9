"""One result on the page: what runs, key figures, where time and memory go, layers, statistics and the search."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calculon.apps.report.figures_group import NO_VOCABULARY, figures, has_figures, has_vocabulary
from calculon.apps.report.html.html_bars import Piece, bar, legend
from calculon.apps.report.html.tags import Cell, Html, element, joined, plain_table, table
from calculon.apps.report.interval_group import ends, interval_texts
from calculon.apps.report.layer_table import (
    QUANTITIES,
    Layer,
    by_kind,
    chosen_units,
    kind_of,
    timed_quantities,
)
from calculon.apps.report.page import LINKS, PARTS, network_text
from calculon.apps.report.plain_result import EVERYTHING, Result
from calculon.apps.report.rank_group_table import NUMBERS, REMARK, TITLES, group_rows
from calculon.apps.report.setup import setup_texts
from calculon.apps.report.sheet import PUBLISHED
from calculon.apps.report.texts import capacity, figure, gib, percent, seconds
from calculon.apps.report.winners import LEGEND, winners_table
from calculon.records import columns
from calculon.statistics import AXIS_PARTS_OF_TIME, CorrectedStats
from calculon.units import duration

LOOKS = {
    "fw_time": "blue",
    "bw_time": "blue2",
    "optim_step_time": "blue3",
    "recompute_time": "sky",
    "tp_comm_exposed_time": "vermilion",
    "pp_comm_exposed_time": "vermilion2",
    "dp_comm_exposed_time": "vermilion3",
    **dict.fromkeys(AXIS_PARTS_OF_TIME, "vermilion4"),
    "recomm_exposed_time": "vermilion4",
    "fw_offload_exposed_time": "purple",
    "bw_offload_exposed_time": "purple2",
    "bubble_time": "orange",
    "host_time": "grey",
    "weights": "blue",
    "weight gradients": "blue2",
    "optimizer state": "blue3",
    "activations": "green",
    "checkpoints": "green2",
    "activation gradients": "orange",
    "gathered weights": "sky",
    "gradients being reduced": "vermilion3",
    "reserved": "grey",
    EVERYTHING: "grey",
}
"""Style class of every piece of a bar."""

MOST_WINNERS = 50


def result_section(result: Result, place: str, *, headed: bool) -> Html:
    """Return the section of a result; with a heading where there are several."""
    parts = [element("h2", result.label)] if headed else []
    return element("section", *parts, *_parts(result), id_=place, class_="result")


def _parts(result: Result) -> Iterator[Html]:
    if result.sheet is not None:
        texts = setup_texts(result.sheet)
        if result.edition != PUBLISHED:
            texts["edition"] = result.edition
        terms = ((element("dt", name), element("dd", text)) for name, text in texts.items())
        yield element("dl", *(one for pair in terms for one in pair))
    elif result.execution is not None:
        words = "model and system are not known: give --model and --system for more"
        yield element("p", f"{result.split}; {words}", class_="quiet")
    else:
        text = "A file of statistics: what was asked is not known."
        yield element("p", text, class_="quiet")
    yield _cards(result)
    if has_figures(result.stats):
        yield from _figures(result)
    yield from _time(result)
    yield from _memory(result)
    yield from _communication(result)
    if result.layers:
        yield from _layers(result)
    if len(result.winners) > 1:
        yield from _search(result)
    yield _statistics(result)


def _cards(result: Result) -> Html:
    """Return the figures that people compare."""
    rate = result.value("sample_rate")
    shown = {
        "time per iteration": duration(result.value("total_time")),
        "samples/s": figure(rate),
    }
    if result.sheet is not None:
        tokens = rate * result.sheet.seq_length
        shown["tokens/s"] = figure(tokens)
        shown["tokens/s per processor"] = figure(tokens / result.sheet.execution["num_procs"])
    elif has_figures(result.stats):
        shown["tokens/s"] = figure(result.value("tokens_per_second"))
        shown["tokens/s per processor"] = figure(result.value("tokens_per_second_per_proc"))
    if has_figures(result.stats):
        shown["MFU, full attention"] = percent(result.value("mfu"))
    shown["of the peak while computing"] = percent(result.value("compute_efficiency"))
    shown["of the peak in total"] = percent(result.value("total_efficiency"))
    shown["tier-1 memory per processor"] = gib(result.value("proc_mem_tier1_cap_req"))
    cards = (
        element("div", element("b", value), element("span", name), class_="card")
        for name, value in shown.items()
    )
    return element("div", *cards, class_="cards")


def _figures(result: Result) -> Iterator[Html]:
    """Yield the figures that people quote, with what each of them counts."""
    yield _heading("Figures", "utilisation, size, and the ends of the model")
    rows = [[Cell(one.name), Cell(one.text), Cell(one.remark)] for one in figures(result.stats)]
    yield table(("figure", "value", "what it counts"), rows, numbers=(False, True, False))
    if not has_vocabulary(result.stats):
        yield element("p", NO_VOCABULARY, class_="quiet")


def _heading(text: str, remark: str) -> Html:
    return element("h3", f"{text} ", element("span", remark))


def _time(result: Result) -> Iterator[Html]:
    """Yield picture and table of the iteration time."""
    times, total = result.times(), result.value("total_time")
    texts = dict(zip(times, seconds(times.values(), total), strict=True))
    pieces = [
        Piece(PARTS[name][0], times[name], texts[name], LOOKS[name])
        for name in LOOKS
        if times.get(name, 0) > 0
    ]
    known = result.sheet.interval if result.sheet else None
    remark = f" ({ends(known)})" if known else ""
    yield _heading("Time", f"{duration(total)} per iteration{remark}")
    for label, text in interval_texts(known).items() if known else ():
        yield element("p", f"{label}: {text}", class_="quiet")
    yield bar("Time per iteration by part", pieces)
    yield legend(pieces, total, seconds([total], total)[0])


def _memory(result: Result) -> Iterator[Html]:
    """Yield picture and table of what each tier in use holds."""
    for tier, kinds in enumerate(result.memory()):
        used = sum(kinds.values())
        if not used:
            continue
        there = result.capacities[tier] if result.capacities else None
        remark = f"{gib(used)} of {capacity(there)} in use" if there else f"{gib(used)} in use"
        pieces = [Piece(n, kinds[n], gib(kinds[n]), LOOKS[n]) for n in LOOKS if kinds.get(n, 0) > 0]
        yield _heading(f"Memory of a processor, tier {tier + 1}", remark)
        limit = there if there and there < 20 * used else None
        yield bar("Memory by kind", pieces, limit, capacity(limit) if limit else "")
        yield legend(pieces, used, gib(used))


def _communication(result: Result) -> Iterator[Html]:
    """Yield time on the link against exposed time."""
    total = result.value("total_time")
    rows = []
    for words, field, key in LINKS:
        link, out = (result.value(f"{key}_{kind}_time") for kind in ("link", "exposed"))
        if not link and not out:
            continue
        where = "" if result.sheet is None else network_text(result.sheet, field)
        texts = seconds([link, out], total)
        values = (words.strip(), where, *texts, percent(out / total))
        rows.append([Cell(text) for text in values])
    if rows:
        yield _heading("Communication", "on the link, and exposed: not hidden behind computation")
        titles = ("traffic", "", "on link", "exposed", "of the time")
        yield table(titles, rows, numbers=(False, False, True, True, True))
    if result.sheet is not None and result.sheet.groups:
        yield _heading("Groups", REMARK)
        rows = [[Cell(text) for text in row] for row in group_rows(result.sheet.groups)]
        yield table(TITLES, rows, numbers=NUMBERS)


def _layers(result: Result) -> Iterator[Html]:
    """Yield the layers of a block of each kind; a click on a title sorts them."""
    training = bool(result.execution["training"]) if result.execution else True
    for layers in by_kind(result.layers or ()):
        yield from _of_kind(layers, training=training)


def _of_kind(layers: Sequence[Layer], *, training: bool) -> Iterator[Html]:
    """Yield the layers of a block of one kind."""
    timed = timed_quantities(layers, training=training)
    shown = [*timed, *QUANTITIES]
    units = chosen_units(shown, timed, layers)
    busy = [sum(q.value(layer) for q in timed) for layer in layers]
    rows = []
    for layer, time in zip(layers, busy, strict=True):
        values = [q.value(layer) for q in shown]
        cells = [_scaled(v, factor) for v, (factor, _) in zip(values, units, strict=True)]
        name = str(layer["name"]).replace("Block_", " ").replace("_", " ")
        of_block = time / sum(busy) if sum(busy) else 0.0
        rows.append([Cell(name), *cells, Cell(percent(of_block) if time else "-", time)])
    titles = [f"{q.title} ({unit})" for q, (_, unit) in zip(shown, units, strict=True)]
    sums = [sum(q.value(layer) for layer in layers) for q in shown]
    footer = [_scaled(v, factor).text for v, (factor, _) in zip(sums, units, strict=True)]
    yield _heading("Layers", f"one {kind_of(layers)} and microbatch, in the order of execution")
    yield table(
        ["layer", *titles, "time"],
        rows,
        numbers=(False, *(True for _ in titles), True),
        sortable=True,
        footer=("total", *footer, "100.0 %"),
    )


def _scaled(value: float, factor: float) -> Cell:
    """Return a cell in the unit of its column; a dash is exactly nothing."""
    text = "<0.001" if 0 < value * factor < 0.0005 else f"{value * factor:,.3f}"
    return Cell(text if value else "-", value)


def _search(result: Result) -> Iterator[Html]:
    """Yield the best executions of the search that the result is from."""
    shown = result.winners[:MOST_WINNERS]
    remark = f"{len(shown)} of {len(result.winners)}" if len(shown) < len(result.winners) else ""
    yield _heading("Best executions of the search", remark)
    stats: list[Mapping[str, Any]] = [one.stats for one in shown]
    yield plain_table(winners_table([one.execution for one in shown], stats))
    yield element("p", LEGEND, class_="quiet")


def _statistics(result: Result) -> Html:
    """Return all statistics, folded away."""
    rows = []
    for column in columns(CorrectedStats):
        if column.name not in result.stats:
            continue
        value = result.stats[column.name]
        text = "-" if value is None else f"{value:,.6g}"
        cells = [Cell(column.name), Cell(text, value), Cell(column.unit.symbol), Cell(column.help)]
        rows.append(cells)
    titles = ("statistic", "value", "unit", "what it is")
    inner = table(titles, rows, numbers=(False, True, False, False), sortable=True)
    summary = element("summary", f"All {len(rows)} statistics")
    return element("details", joined((summary, inner)))
