"""Sections of the page of a whole run: days by use, failures, money, energy, and assumptions."""

from collections.abc import Mapping, Sequence
from typing import Any

from calculon.base.units import GIGA, scaled, significant
from calculon.documents.campaign_words import DAY, events, interval_words, span
from calculon.documents.run_defaults import defaults_table
from calculon.render.bars import Bar, Share
from calculon.render.digits import Digits
from calculon.render.document import Grid, Section, dim, labeled
from calculon.render.texts import counted, percent

Data = Mapping[str, Any]
"""Run as plain data (:meth:`calculon.advise.runs.training_run.TrainingRun.to_dict`)."""

USES = {
    "useful": ("productive steps", "blue"),
    "evaluation": ("evaluation", "sky"),
    "saving": ("waiting for checkpoints", "orange"),
    "lost": ("work lost", "vermilion"),
    "restart": ("restarts", "purple"),
    "waiting": ("waiting for nodes", "orange"),
    "repeated": ("steps repeated", "vermilion"),
    "slowed": ("slow nodes", "green"),
    "other": ("other overhead", "sky"),
}
"""Labels and colors of the uses of a run's days (:class:`~calculon.declarations.run_figures.DaysByUse`)."""

_ENERGY = {
    "stepping": "processors, training",
    "waiting": "processors, waiting",
    "spares": "spares",
    "nodes": "rest of the nodes",
}

_DEPENDS = {"usd": "USD"}


def uses_section(run: Data) -> Section:
    """Return the days of a run by use, largest first."""
    figures = run["figures"]
    total = figures["days"]
    days = {use: figures[f"{name}_days"] for name, use in USES.items()}
    rows = tuple(
        (words, span(value, total), percent(value / total), Bar((Share(value / total, color),)))
        for (words, color), value in sorted(days.items(), key=lambda row: -row[1])
        if value > 0
    )
    remark = f"goodput {percent(figures['goodput'])}"
    table = Grid(("left", "right", "right", "wide"), rows)
    return Section("Where the days go", (table,), remark, opened=True)


def failures_section(run: Data, parameters: float) -> Section:
    """Return failures, checkpoints and spares of a run; `parameters` is the size of its model."""
    figures, failures = run["figures"], run["figures"]["failures"]
    said = "none"
    if failures:
        each = interval_words(figures["mtbf_hours"] * 3600)
        said = f"{events(failures)} expected, one in {each}"
    rows = {}
    if failures:
        # Per failure, not in total: users compare these with their own logs.
        restart, lost = (
            interval_words(figures[f"{name}_days"] * DAY / failures) for name in ("restart", "lost")
        )
        rows["each costs"] = f"{restart} to restart, {lost} of work lost"
    size = figures["checkpoint_size"]
    each_size, pause = size / parameters, interval_words(figures["checkpoint_time"])
    rows["checkpoints"] = (
        f"{scaled(size, 'B', digits=1)}, {each_size:.3g} B per parameter; each blocks training for {pause}{_save(run)}"
    )
    rows["every"] = _interval(run)
    nodes = run["nodes"]
    why = "as stated" if nodes["spares_stated"] else "which minimizes paid time"
    rows["spares"] = (
        f"{counted(nodes['spares'], 'node')} in addition to {nodes['job']:,} of {nodes['processors']}, {why}; "
        f"{events(nodes['in_repair'])} in repair on average, at most {nodes['spares_enough']:,} for 99.9 % of the time"
    )
    warnings = map(dim, run["warnings"])
    return Section("Failures", (labeled(rows), *warnings), said, opened=True)


def _save(run: Data) -> str:
    """Return the storage bandwidth of all nodes, and the pause that an asynchronous save also needs."""
    rate = f"; storage writes {significant(run['checkpoint']['storage_bandwidth'] / GIGA, 3)} GB/s in total"
    stated = run["question"]["campaign"].get("checkpoints") or {}
    pause = next((one for one in run["assumed"] if one["field"] == "checkpoints.pause"), None)
    if stated.get("mode") != "sync" or pause is None:
        return rate
    return f"{rate}; {_value(pause)} of it is the pause of an asynchronous save, assumed here (checkpoints.pause)"


def _interval(run: Data) -> str:
    """Return the checkpoint interval and its reason."""
    figures, chosen = run["figures"], run["checkpoint"]
    interval = figures["checkpoint_interval"]
    if interval is None:
        return "never: nothing fails"
    steps = sum(one["steps"] for one in run["parts"])
    # By the mean time of a step over all phases.
    each = round(interval / (figures["useful_days"] * DAY / steps))
    said = f"{interval_words(interval)} of steps ({counted(max(1, each), 'step')})"
    if (between := chosen["memory_interval"]) is not None:
        said += f", to the memory of another node every {interval_words(between)}"
    if chosen["reason"] == "stated":
        best = chosen["best_interval"]
        better = "none at all" if best is None else interval_words(best)
        return f"{said}, as stated; {better} gives the shortest run"
    if chosen["reason"] == "storage":
        rate, needed = (
            f"{chosen[name] / GIGA:,.3g} GB/s"
            for name in ("storage_bandwidth", "storage_bandwidth_needed")
        )
        return f"{said}: storage of {rate} limits it, {needed} would not"
    return f"{said}: " + (
        "the run ends before another" if chosen["reason"] == "run" else "gives the shortest run"
    )


def money_section(money: Data, digits: Digits) -> Section:
    """Return the dollars of a run by use, and the source of the price."""
    price = money["price"]
    of = (price["kind"].replace("_", " "), price["source"], price["date"])
    text = ", ".join(one for one in of if one)
    remark = f"{price['usd']:,.2f} USD per processor-hour"
    parts = {
        "processors, with spares": money["processors"],
        "checkpoints kept": money["storage"],
        "experiments, in addition": money["experiments"],
    }
    rows = [(label, f"{digits.rate(value)} USD", "") for label, value in parts.items() if value]
    if not money["storage"]:
        rows.append(("checkpoints kept", "-", "not counted: no price (fleet.storage)"))
    if money["experiments"]:
        rows.append(("together", f"{digits.rate(money['total'])} USD", ""))
    if (hours := money["reserved_from_hours"]) is not None:
        rows.append(("reserved is cheaper", f"{hours:,.0f} h", "or more of use per year"))
    return _amounts("Money", remark, f"Price: {text}.", rows)


def _amounts(title: str, remark: str, basis: str, rows: Sequence[tuple[str, str, str]]) -> Section:
    """Return amounts with remarks, below a note on their basis."""
    return Section(title, (dim(basis), Grid(("left", "right", "text"), tuple(rows))), remark)


def energy_section(energy: Data, digits: Digits) -> Section:
    """Return the energy of a run by consumer, and by the convention of model cards."""
    power = energy["power"]
    kind = "an estimate" if power["estimate"] else "from measured power"
    remark = f"{kind}, TDP {power['tdp']:,.0f} W"
    rows = [
        (words, f"{digits.rate(energy[name])} MWh", "")
        for name, words in _ENERGY.items()
        if energy[name]
    ]
    pue, facility = energy["pue"], energy["facility"]
    said = "without a PUE: --pue 1.2" if pue is None else f"PUE {pue:g}"
    rows.append(("data center", f"{digits.rate(facility)} MWh" if facility else "-", said))
    card = "TDP x hours, the convention of model cards"
    rows.append(("model card", f"{digits.rate(energy['model_card'])} MWh", card))
    if (carbon := energy["carbon"]) is not None:
        of = ", ".join(carbon[key] for key in ("name", "source", "date") if carbon[key])
        rows.append(("carbon", f"{carbon['g_co2_per_kwh']:g} g/kWh", of or "as given"))
    if (market := energy["t_co2_market"]) is not None:
        rows.append(("by contracts", f"{digits.rate(market)} t CO2", ""))
    if (litres := energy["water_litres"]) is not None:
        rows.append(("water", f"{digits.rate(litres)} L", ""))
    return _amounts("Energy", remark, f"Power: {power['in_words']}.", rows)


def elasticities_section(largest: Mapping[str, Sequence[Data]]) -> Section:
    """Return the largest elasticities of a run's figures, by figure."""
    remark = "change per percent; more: calculon sensitivity"
    texts = {
        _DEPENDS.get(name, name): ", ".join(
            f"{row['path']} {row['elasticity']:+.2f} %" for row in rows
        )
        for name, rows in largest.items()
    }
    return Section("Largest elasticities", (labeled(texts),), remark)


def assumed_section(rows: Sequence[Data], *, every: bool) -> Section:
    """List defaults, with their sources; `every` also those without effect."""
    shown = [one for one in rows if every or one["counts"]]
    left = len(rows) - len(shown)
    more = [dim(f"{counted(left, 'more default')} without effect here (-v).")] if left else []
    remark = "defaults; change with --set campaign.FIELD=VALUE"
    return Section("Assumed", (defaults_table(shown, _value), *more), remark)


def _value(one: Data) -> str:
    value = one["value"]
    text = value if isinstance(value, str) else f"{value:,.5g}" if value < 1e5 else f"{value:,.0f}"
    return f"{text} {one['unit']}".rstrip()
