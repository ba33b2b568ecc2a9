"""Every kind of result as a notebook shows it."""

from collections.abc import Callable, Mapping
from typing import Any

from calculon.advise.answer import Answer
from calculon.advise.dependence import Sensitivity
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.largest_model import LargestModel
from calculon.advise.runs.training_run import TrainingRun
from calculon.advise.waterfall import Waterfall
from calculon.advise.why import Why
from calculon.architecture.parameters import parameter_count
from calculon.base.errors import in_words
from calculon.base.records import columns
from calculon.base.units import scaled
from calculon.declarations.execution import Execution
from calculon.declarations.fields import spec_fields
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.packing import Packing
from calculon.declarations.plan_words import choices_words, degrees_words, plan_words
from calculon.declarations.presets import find_preset
from calculon.declarations.statistics import CorrectedStats
from calculon.documents.batch_page import batch_page
from calculon.documents.campaign_page import campaign_page
from calculon.documents.comparison import Comparison
from calculon.documents.comparison_page import comparison_page
from calculon.documents.deployments_page import deployments_page
from calculon.documents.fleet_page import fleet_page
from calculon.documents.largest_model_page import largest_model_page
from calculon.documents.page import estimate_page
from calculon.documents.plan_page import plan_page
from calculon.documents.plans_table import plans_table
from calculon.documents.sensitivity_page import sensitivity_page
from calculon.documents.served_comparison import ServedComparison
from calculon.documents.serving_page import serving_page
from calculon.documents.views.estimate_result import result_of
from calculon.documents.views.launch_page import launch_page
from calculon.documents.views.waterfalls import fall_alone
from calculon.documents.views.why_page import why_page
from calculon.documents.waterfall_section import waterfall_section
from calculon.documents.winners import reasons_table, winners_table
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation
from calculon.hardware.system import System
from calculon.launch.dialect import Launch
from calculon.plan.plan import NAMES, Plan
from calculon.render.document import Document
from calculon.render.html import ROWS, folded, framed, heading, page, paragraph, table
from calculon.render.text_tables import Column, Table
from calculon.render.texts import bandwidth, capacity, figure, quantity
from calculon.search.deployments.deployments_found import DeploymentSearch
from calculon.search.search_result import SearchResult
from calculon.search.sweep.sweep_result import Sweep
from calculon.serving.by_batch import ByBatch
from calculon.serving.serve import Served


def page_of(result: Any) -> str:
    """Return a result as HTML."""
    return next(show for kind, show in PAGES.items() if isinstance(result, kind))(result)


def _estimate(one: Estimate) -> str:
    return page(estimate_page(result_of(one)))


def _served(one: Served) -> str:
    return page(serving_page(one.to_dict()))


def _deployments(one: DeploymentSearch) -> str:
    """Return the best deployments, and of none which limit the nearest misses."""
    shown = deployments_page(one.to_dict(), [figure.statistic for figure in one.objectives])
    return page(shown) + ("" if len(one) else paragraph(str(one.why)))


def _search(one: SearchResult) -> str:
    """Return the best executions, and of none the reasons."""
    space, counts = one.space, one.counts
    preset = "" if one.edition == PUBLISHED else f", {space.preset.name}"
    title = f"{space.model.name} on {space.num_procs:,} x {space.system.name}"
    told = f"{counts.total:,} executions, {counts.good:,} feasible"
    parts = [heading(title, f"edition {one.edition}{preset}"), paragraph(told)]
    if not len(one):
        reasons = reasons_table(counts.total, counts.good, counts.reasons, counts.nearest_miss)
        return framed(*parts, table(reasons))
    few = SearchResult(space, one.objectives, counts, one.numbers[:ROWS], one.scores[:, :ROWS])
    executions, stats = zip(*few.winners(), strict=True)
    asked = [objective.statistic for objective in one.objectives]
    if one.edition == PUBLISHED:
        shown = ("sample_rate", "total_time", "proc_mem_tier1_cap_req")
        extra = [statistic.name for statistic in asked if statistic.name not in shown]
        winners, shared = winners_table(executions, stats, extra), ""
    else:
        usual = [space.preset.usual(execution) for execution in executions]
        plans = plans_table(executions, stats, asked, usual, whole=True)
        winners, shared = plans.table, plans.shared
    said = [paragraph(shared)] if shared else []
    return framed(*parts, *said, table(winners, total=len(one)))


_SHOWN = ("total_time", "sample_rate", "proc_mem_tier1_cap_req", "total_efficiency")
"""Statistics that tables of executions have."""

_TITLES = {"total_time": "time", "sample_rate": "samples/s", "total_efficiency": "efficiency"}
_STATISTICS = {column.name: column for column in columns(CorrectedStats)}


def _statistic(name: str) -> Column:
    """Return the column of a statistic, in a unit that suits each value."""
    declared = _STATISTICS[name]

    def text(value: float) -> str:
        if value != value:  # noqa: PLR0124
            return "-"
        return figure(value) if name == "sample_rate" else quantity(value, declared.unit)

    title = "memory" if name == "proc_mem_tier1_cap_req" else _TITLES.get(name, name)
    return Column(name, title, right=True, text=text)


def _evaluation(one: Evaluation) -> str:
    """Return the first rows: plan, time, rate, memory, efficiency, and why a row cannot run."""
    good = int(one.feasible.sum())
    title = heading(f"{len(one):,} executions", f"{good:,} feasible")
    few = one.take(slice(0, ROWS))
    shown = [name for name in _SHOWN if name in few.names]
    rows = [
        {**_plan_cells(few.plan, i), "reason": in_words(str(few.reason[i]))}
        | {name: float(few[name][i]) for name in shown}
        for i in range(len(few))
    ]
    heads = (*_PLAN, *map(_statistic, shown), *(() if good == len(one) else (_REASON,)))
    return framed(title, table(Table(heads, rows), total=len(one)))


_PLAN = (Column("row", "row", right=True), Column("plan", "plan"), Column("also", "with"))
_REASON = Column("reason", "why not")


def _plan_cells(plan: Plan, row: int) -> dict[str, Any]:
    """Return number and words of a row of a table; of one with an impossible value only its number."""
    if plan.malformed[row] >= 0:
        return {"row": row, "plan": "-", "also": "-"}
    execution = {name: plan.values(name)[row].item() for name in NAMES}
    also = choices_words(execution, usual_of(execution))
    return {"row": row, "plan": degrees_words(execution), "also": ", ".join(also)}


def usual_of(execution: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what needs no word of an execution: what its preset says."""
    if execution["edition"] == PUBLISHED:
        return {}
    return find_preset(execution["preset"]).usual(execution)


def _plan(one: Plan) -> str:
    rows = [_plan_cells(one, i) for i in range(min(ROWS, len(one)))]
    return framed(heading(f"{len(one):,} executions"), table(Table(_PLAN, rows), total=len(one)))


def _sweep(one: Sweep) -> str:
    """Return the first rows: what was asked, time, rate, memory, efficiency, and why a row cannot run."""
    good = int(one.feasible.sum())
    over = f"over {', '.join(one.axes)}; " if one.axes else ""
    title = heading(f"Sweep of {len(one):,} rows", f"{over}{good:,} feasible")
    shown = [name for name in _SHOWN if name in one.evaluation.names]
    first = range(min(ROWS, len(one)))
    rows = [
        {name: values[i] for name, values in one.asked.items()}
        | {"reason": in_words(str(one.evaluation.reason[i]))}
        | {name: float(one[name][i]) for name in shown}
        for i in first
    ]
    asked = [
        Column(name, _with_unit(name, one.units), right=values.dtype.kind in "if", text=_value)
        for name, values in one.asked.items()
    ]
    reason = () if good == len(one) else (_REASON,)
    return framed(
        title, table(Table((*asked, *map(_statistic, shown), *reason), rows), total=len(one))
    )


def _with_unit(name: str, units: Mapping[str, str]) -> str:
    unit = units.get(name, "")
    return f"{name} ({unit})" if unit and unit != "fraction" else name


def _value(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _model(one: Model) -> str:
    count = f"{scaled(parameter_count(one))} parameters"
    return framed(heading(one.name, count), _fields(one, Model, one.to_dict()))


def _execution(one: Execution) -> str:
    """Return its words, and folded away the fields that have another value than their default."""
    fields = {name: getattr(one, name) for name in NAMES}
    words = plan_words(fields, usual_of(fields))
    terms = one.edition if one.edition == PUBLISHED else f"{one.edition}, {one.preset}"
    title = heading(f"{one.num_procs:,} processors", f"edition {terms}")
    shown = {
        field.key: getattr(one, field.name)
        for field in spec_fields(Execution)
        if not field.declaration.optional or getattr(one, field.name) != field.default
    }
    inner = _fields(one, Execution, shown)
    return framed(title, paragraph(words), folded(f"{len(shown)} fields", inner))


def _fields(record: Any, kind: type, values: Mapping[str, Any]) -> str:
    """Return fields with their values, units and meaning."""
    heads = (
        Column("field", "field"),
        Column("value", "value", right=True, text=_field_value),
        Column("unit", "unit"),
        Column("help", "meaning"),
    )
    rows = [
        {
            "field": f.key,
            "value": values[f.key],
            "unit": f.declaration.unit,
            "help": f.declaration.help,
        }
        for f in spec_fields(kind)
        if f.key in values
    ]
    shown = tuple(head for head in heads if any(row[head.key] != "" for row in rows))
    return table(Table(shown, rows), most=len(rows))


def _field_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _system(one: System) -> str:
    """Return peak rates, memories and networks."""
    rows: list[dict[str, str]] = []
    for part, engines in (("matrix", one.matrix), ("vector", one.vector)):
        rows += [
            {"figure": f"{part} {name}", "value": f"{engine.peak / 1e12:,.4g} TFLOP/s"}
            for name, engine in engines.items()
        ]
    for tier, memory in enumerate((one.mem1, one.mem2), start=1):
        size = f"{capacity(memory.capacity)} at {bandwidth(memory.bandwidth)}"
        rows.append({"figure": f"memory, tier {tier}", "value": size})
    for number, network in enumerate(one.networks):
        joined = f"{network.size:,} processors at {bandwidth(network.bandwidth)}"
        rows.append({"figure": f"network {number}", "value": joined})
    heads = Column("figure", "figure"), Column("value", "value")
    return framed(heading(one.name, "a system"), table(Table(heads, rows), most=len(rows)))


def _packing(one: Packing) -> str:
    help_of = {field.key: field.declaration.help for field in spec_fields(Execution)}
    heads = (
        Column("field", "field"),
        Column("value", "value", right=True),
        Column("help", "meaning"),
    )
    rows = [{"field": name, "value": value, "help": help_of[name]} for name, value in one.items()]
    return framed(table(Table(heads, rows)))


def _comparison(one: Comparison | ServedComparison) -> str:
    """Return the differences, except those of single statistics of training."""
    return page(comparison_page(one, statistics=False), rows=None)


def _waterfall(one: Waterfall) -> str:
    """Return a row for each change between both plans."""
    fall = fall_alone(one)
    section = waterfall_section(fall.waterfall, fall.digits)
    alone = Document(fall.title, f"edition {fall.terms}", parts=section.blocks)
    return page(alone, rows=None)


Shower = Callable[[Any], str]
"""What makes the HTML of one kind of result."""

PAGES: dict[type, Shower] = {
    Estimate: _estimate,
    Answer: lambda one: page(plan_page(one)),
    FleetAnswer: lambda one: page(fleet_page(one)),
    SearchResult: _search,
    Evaluation: _evaluation,
    Sensitivity: lambda one: page(sensitivity_page(one.to_dict(), one.preset.usual)),
    Waterfall: _waterfall,
    TrainingRun: lambda one: page(campaign_page(one)),
    Launch: lambda one: page(launch_page(one)),
    LargestModel: lambda one: page(largest_model_page(one.to_dict())),
    Served: _served,
    DeploymentSearch: _deployments,
    ByBatch: lambda one: page(batch_page(one.to_dict())),
    Why: lambda one: page(why_page(one)),
    Sweep: _sweep,
    Comparison: _comparison,
    ServedComparison: _comparison,
    Plan: _plan,
    Execution: _execution,
    Model: _model,
    System: _system,
    Packing: _packing,
}
"""What makes the HTML of each kind of result."""
