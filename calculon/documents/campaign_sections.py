"""Sections of the page of a whole run: where its days go, failures, money, energy, and what was assumed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from calculon.base.units import GIGA, scaled, significant
from calculon.documents.campaign_words import DAY, events, interval_words, span
from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Section, dim
from calculon.render.grids import grid, indented
from calculon.render.text_tables import Column, Table
from calculon.render.texts import counted, heading, percent

Document = Mapping[str, Any]
"""A run as plain data (:meth:`calculon.advise.runs.training_run.TrainingRun.to_dict`)."""

USES = {
    "useful": ("steps that count", "blue"),
    "evaluation": ("evaluation", "sky"),
    "saving": ("waiting for checkpoints", "orange"),
    "lost": ("work lost", "vermilion"),
    "restart": ("restarts", "purple"),
    "waiting": ("waiting for nodes", "orange"),
    "repeated": ("steps repeated", "vermilion"),
    "slowed": ("slow nodes", "green"),
}
"""Words and colours of what the days of a run go to (:class:`~calculon.declarations.run_figures.DaysByUse`)."""

_ENERGY = {
    "stepping": "processors in steps",
    "waiting": "processors that wait",
    "spares": "spares",
    "nodes": "rest of the nodes",
}


_DEPENDS = {"usd": "USD"}


def uses_section(run: Document) -> Iterator[RenderableType]:
    """Tell where the days of a run go, the most first."""
    figures = run["figures"]
    total = figures["days"]
    yield heading("Where the days go", f"goodput {percent(figures['goodput'])}")
    table = grid("left", "right", "right", "wide")
    days = {name: figures[f"{name}_days"] for name in USES}
    for name, value in sorted(days.items(), key=lambda one: -one[1]):
        if value > 0:
            words, color = USES[name]
            bar = Bar((Share(value / total, color),))
            table.add_row(words, span(value, total), percent(value / total), bar)
    yield indented(table)


def failures_section(run: Document, parameters: float) -> Iterator[RenderableType]:
    """Tell failures, checkpoints and spares; `parameters` are those of the model."""
    figures, failures = run["figures"], run["figures"]["failures"]
    said = "none"
    if failures:
        each = interval_words(figures["mtbf_hours"] * 3600)
        said = f"{events(failures)} expected, one in {each}"
    yield heading("Failures", said)
    rows = {}
    if failures:
        restart, lost = (
            interval_words(figures[f"{name}_days"] * DAY / failures) for name in ("restart", "lost")
        )
        rows["each costs"] = f"{restart} to restart, {lost} of work lost"
    size = figures["checkpoint_size"]
    each_size, pause = size / parameters, interval_words(figures["checkpoint_time"])
    rows["checkpoints"] = (
        f"{scaled(size, 'B', digits=1)}, {each_size:.3g} B for each parameter; steps wait {pause} for one{_save(run)}"
    )
    rows["every"] = _interval(run)
    nodes = run["nodes"]
    why = "as stated" if nodes["spares_stated"] else "which makes the paid time the least"
    rows["spares"] = (
        f"{counted(nodes['spares'], 'node')} beside the {nodes['job']:,} of {nodes['processors']}, {why}; "
        f"{events(nodes['in_repair'])} in repair on average, at most {nodes['spares_enough']:,} for 99.9 % of the time"
    )
    table = grid("left", "text")
    for label, words in rows.items():
        table.add_row(Text(label, "dim"), Text(words))
    yield indented(table)
    yield from (indented(Text(said, "dim")) for said in run["warnings"])


def _save(run: Document) -> str:
    """Say how fast the storage of all nodes is, and what else stops the steps while they wait for it."""
    rate = f"; storage takes {significant(run['checkpoint']['storage_bandwidth'] / GIGA, 3)} GB/s of all nodes"
    stated = run["question"]["campaign"].get("checkpoints") or {}
    pause = next((one for one in run["assumed"] if one["field"] == "checkpoints.pause"), None)
    if stated.get("mode") != "sync" or pause is None:
        return rate
    return f"{rate}; {_value(pause)} of the wait are of an asynchronous save, kept here (checkpoints.pause)"


def _interval(run: Document) -> str:
    """Say how far apart checkpoints are, and why."""
    figures, chosen = run["figures"], run["checkpoint"]
    interval = figures["checkpoint_interval"]
    if interval is None:
        return "never: nothing fails"
    steps = sum(one["steps"] for one in run["parts"])
    each = round(interval / (figures["useful_days"] * DAY / steps))
    said = f"{interval_words(interval)} of steps ({counted(max(1, each), 'step')})"
    if (between := chosen["memory_interval"]) is not None:
        said += f", to the memory of another node every {interval_words(between)}"
    if chosen["reason"] == "stated":
        best = chosen["best_interval"]
        better = "none at all" if best is None else interval_words(best)
        return f"{said}, as stated; {better} makes the run shortest"
    if chosen["reason"] == "storage":
        rate, needed = (
            f"{chosen[name] / GIGA:,.3g} GB/s"
            for name in ("storage_bandwidth", "storage_bandwidth_needed")
        )
        return f"{said}: storage of {rate} limits it, {needed} would not"
    return f"{said}: " + (
        "the run ends before another" if chosen["reason"] == "run" else "the run is shortest"
    )


def money_section(money: Document, digits: Digits) -> Iterator[RenderableType]:
    """Tell the dollars by what they are for, and where the price is from."""
    price = money["price"]
    of = (price["kind"].replace("_", " "), price["source"], price["date"])
    told = ", ".join(one for one in of if one)
    yield heading("Money", f"{price['usd']:,.2f} USD for an hour of a processor")
    yield indented(Text(f"Price: {told}.", "dim"))
    parts = {
        "processors, spares too": money["processors"],
        "checkpoints kept": money["storage"],
        "experiments, beside the run": money["experiments"],
    }
    table = grid("left", "right", "text")
    for label, value in parts.items():
        if value:
            table.add_row(label, f"{digits.rate(value)} USD", "")
    if not money["storage"]:
        table.add_row("checkpoints kept", "-", "not counted: no price (fleet.storage)")
    if money["experiments"]:
        table.add_row("together", f"{digits.rate(money['total'])} USD", "")
    if (hours := money["reserved_from_hours"]) is not None:
        table.add_row("reserved is cheaper", f"{hours:,.0f} h", "a year of use, and more")
    yield indented(table)


def energy_section(energy: Document, digits: Digits) -> Iterator[RenderableType]:
    """Tell the energy by what takes it, and the convention of model cards beside."""
    power = energy["power"]
    kind = "an estimate" if power["estimate"] else "by measured power"
    yield heading("Energy", f"{kind}, TDP {power['tdp']:,.0f} W")
    yield indented(Text(f"Power: {power['in_words']}.", "dim"))
    table = grid("left", "right", "text")
    for name, words in _ENERGY.items():
        if energy[name]:
            table.add_row(words, f"{digits.rate(energy[name])} MWh", "")
    pue, facility = energy["pue"], energy["facility"]
    said = "without a PUE: --pue 1.2" if pue is None else f"PUE {pue:g}"
    table.add_row("data centre", f"{digits.rate(facility)} MWh" if facility else "-", said)
    card = "TDP x hours, as model cards have it, beside"
    table.add_row("model card", f"{digits.rate(energy['model_card'])} MWh", card)
    if (carbon := energy["carbon"]) is not None:
        of = ", ".join(carbon[key] for key in ("name", "source", "date") if carbon[key])
        table.add_row("carbon", f"{carbon['g_co2_per_kwh']:g} g/kWh", of or "as given")
    if (market := energy["t_co2_market"]) is not None:
        table.add_row("by contracts", f"{digits.rate(market)} t CO2", "")
    if (litres := energy["water_litres"]) is not None:
        table.add_row("water", f"{digits.rate(litres)} L", "")
    yield indented(table)


def elasticities_section(found: Mapping[str, Sequence[Document]]) -> Iterator[RenderableType]:
    """Tell the largest elasticities of figures of a run, by the name of the figure."""
    said = "change with each percent of a figure; more: calculon sensitivity"
    yield heading("Largest elasticities", said)
    table = grid("left", "text")
    for name, rows in found.items():
        said = ", ".join(f"{one['path']} {one['elasticity']:+.2f} %" for one in rows)
        table.add_row(Text(_DEPENDS.get(name, name), "dim"), said)
    yield indented(table)


def assumed_section(rows: Sequence[Document], *, every: bool) -> Section:
    """List the defaults that nobody stated, with their sources; `every` also those without effect."""
    shown = [one for one in rows if every or one["counts"]]
    columns = (
        Column("field", "field"),
        Column("value", "value", right=True),
        Column("source", "source", fold=True),
    )
    cells = [
        {"field": one["field"], "value": _value(one), "source": one["source"]} for one in shown
    ]
    left = len(rows) - len(shown)
    more = [dim(f"{counted(left, 'more default')} without effect here (-v).")] if left else []
    remark = "defaults that nobody stated; --set campaign.FIELD=VALUE"
    return Section("Assumed", (Table(columns, cells), *more), remark)


def _value(one: Document) -> str:
    value = one["value"]
    text = value if isinstance(value, str) else f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}"
    return f"{text} {one['unit']}".rstrip()
