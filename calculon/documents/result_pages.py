"""Notebook pages for every kind of result."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from calculon.advise.answer import Answer
from calculon.advise.runs.fleet import FleetAnswer
from calculon.advise.runs.largest_model import LargestModel
from calculon.advise.runs.training_run import TrainingRun
from calculon.advise.sensitivity_result import Sensitivity
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
from calculon.declarations.origin import note_on
from calculon.declarations.packing import Packing
from calculon.declarations.plan_words import choices_words, degrees_words, plan_words
from calculon.declarations.presets import find_preset
from calculon.declarations.statistics import MEMORIES, CorrectedStats
from calculon.documents.batch_page import batch_page
from calculon.documents.campaign_page import campaign_page
from calculon.documents.charts.sweep_chart import with_unit
from calculon.documents.check_page import check_page
from calculon.documents.comparison import Comparison, SideBySide
from calculon.documents.comparison_page import comparison_page
from calculon.documents.deployments_page import deployments_page
from calculon.documents.estimate_result import result_of
from calculon.documents.fleet_page import fleet_page
from calculon.documents.largest_model_page import largest_model_page
from calculon.documents.launch_page import launch_page
from calculon.documents.page import estimate_page
from calculon.documents.plan_page import plan_page
from calculon.documents.plans_table import plans_table
from calculon.documents.sensitivity_page import sensitivity_page
from calculon.documents.served_comparison import ServedComparison
from calculon.documents.serving_page import replay_page, serving_page
from calculon.documents.waterfall_section import waterfall_section
from calculon.documents.waterfalls import waterfall_data
from calculon.documents.why_page import why_page
from calculon.documents.winners import reasons_table, winners_table
from calculon.estimate.estimate import Estimate
from calculon.estimate.evaluate import Evaluation
from calculon.hardware.system import System
from calculon.launch.dialect import Launch
from calculon.plan.plan import NAMES, Plan, all_fields
from calculon.render.document import Document, Section
from calculon.render.html import NOTEBOOK, ROWS, page
from calculon.render.text_tables import Column, Table
from calculon.render.texts import bandwidth, capacity, figure, quantity
from calculon.search.deployments.deployment_search import DeploymentSearch
from calculon.search.search_result import SearchResult
from calculon.search.sweep.sweep_result import Sweep
from calculon.serving.by_batch import ByBatch
from calculon.serving.replay.replayed import Replay
from calculon.serving.serve import Served
from calculon.validate.served_check import ServedCheck


def page_of(result: Any) -> str:
    """Return a result as HTML for a notebook."""
    look = replace(NOTEBOOK, rows=None) if isinstance(result, _WHOLE) else NOTEBOOK
    return page(document_of(result), look)


def document_of(result: Any) -> Document:
    """Return the document of a result of any kind."""
    # Subclasses find the document of their base class.
    for kind, make in DOCUMENTS.items():
        if isinstance(result, kind):
            return make(result)
    raise TypeError(f"{type(result).__name__} has no line in DOCUMENTS")


def _deployments(one: DeploymentSearch) -> Document:
    """Return the best deployments, or the limit that the nearest misses if there are none."""
    shown = deployments_page(one)
    return shown if len(one) else replace(shown, parts=(*shown.parts, str(one.why)))


def _search(one: SearchResult) -> Document:
    """Return the best executions, or the reasons why none can run."""
    space, counts = one.space, one.counts
    preset = "" if one.edition == PUBLISHED else f", {space.preset.name}"
    title = f"{space.model.name} on {space.num_procs:,} x {space.system.name}"
    terms = f"edition {one.edition}{preset}"
    lead = (f"{counts.total:,} executions, {counts.good:,} feasible",)
    if not len(one):
        reasons = reasons_table(counts.total, counts.good, counts.reasons, counts.nearest_miss)
        return Document(title, terms, lead, (reasons,))
    few = SearchResult(space, one.objectives, counts, one.numbers[:ROWS], one.scores[:, :ROWS])
    # Only the shown rows are evaluated: a search may keep thousands.
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
    return Document(title, terms, lead, (shared, replace(winners, total=len(one))))


_SHOWN = ("total_time", "sample_rate", "proc_mem_tier1_cap_req", "total_efficiency")
"""Statistics in tables of executions."""

_TITLES = {"total_time": "time", "sample_rate": "samples/s", "total_efficiency": "efficiency"}
_STATISTICS = {column.name: column for column in columns(CorrectedStats)}


def _statistic(name: str) -> Column:
    """Return the column of a statistic, with a suitable unit for each value."""
    declared = _STATISTICS[name]

    def text(value: float) -> str:
        # NaN is the only value unequal to itself; the row cannot run.
        if value != value:  # noqa: PLR0124
            return "-"
        return figure(value) if name == "sample_rate" else quantity(value, declared.unit)

    title = "memory" if name == "proc_mem_tier1_cap_req" else _TITLES.get(name, name)
    return Column(name, title, right=True, text=text)


def _evaluation(one: Evaluation) -> Document:
    """Return the first rows: plan, time, rate, memory, efficiency, and the reason if a row cannot run."""
    good = int(one.feasible.sum())
    few = one.take(slice(0, ROWS))
    shown = [name for name in _SHOWN if name in few.names]
    rows = [
        {**_plan_cells(few.plan, i), "reason": in_words(str(few.reason[i]))}
        | {name: float(few[name][i]) for name in shown}
        for i in range(len(few))
    ]
    heads = (*_PLAN, *map(_statistic, shown), *(() if good == len(one) else (_REASON,)))
    table = Table(heads, rows, total=len(one))
    return Document(f"{len(one):,} executions", f"{good:,} feasible", parts=(table,))


_PLAN = (Column("row", "row", right=True), Column("plan", "plan"), Column("also", "with"))
_REASON = Column("reason", "why not")


def _plan_cells(plan: Plan, row: int) -> dict[str, Any]:
    """Return the row number and the words of a plan; only the number if a value is impossible."""
    if plan.malformed[row] >= 0:
        return {"row": row, "plan": "-", "also": "-"}
    execution = {name: plan.values(name)[row].item() for name in NAMES}
    also = choices_words(execution, usual_of(execution))
    return {"row": row, "plan": degrees_words(execution), "also": ", ".join(also)}


def usual_of(execution: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of an execution that need no words: the values of its preset."""
    if execution["edition"] == PUBLISHED:
        return {}
    return find_preset(execution["preset"]).usual(execution)


def _plan(one: Plan) -> Document:
    rows = [_plan_cells(one, i) for i in range(min(ROWS, len(one)))]
    return Document(f"{len(one):,} executions", parts=(Table(_PLAN, rows, total=len(one)),))


def _sweep(one: Sweep) -> Document:
    """Return the first rows: inputs, time, rate, memory, efficiency, and the reason if a row cannot run."""
    good = int(one.feasible.sum())
    over = f"over {', '.join(one.axes)}; " if one.axes else ""
    shown = [name for name in _SHOWN if name in one.evaluation.names]
    first = range(min(ROWS, len(one)))
    rows = [
        {name: values[i] for name, values in one.asked.items()}
        | {"reason": in_words(str(one.evaluation.reason[i]))}
        | {name: float(one[name][i]) for name in shown}
        for i in first
    ]
    asked = [
        Column(name, with_unit(name, one.units), right=values.dtype.kind in "if", text=_value)
        for name, values in one.asked.items()
    ]
    reason = () if good == len(one) else (_REASON,)
    table = Table((*asked, *map(_statistic, shown), *reason), rows, total=len(one))
    return Document(f"Sweep of {len(one):,} rows", f"{over}{good:,} feasible", parts=(table,))


def _value(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else str(value)


def _model(one: Model) -> Document:
    count = f"{scaled(parameter_count(one))} parameters"
    return Document(one.name, count, parts=(_fields(Model, one.to_dict()),))


def _execution(one: Execution) -> Document:
    """Return an execution in words, and (folded) the fields that differ from their defaults."""
    fields = all_fields(one)
    words = plan_words(fields, usual_of(fields))
    terms = one.edition if one.edition == PUBLISHED else f"{one.edition}, {one.preset}"
    shown = {
        field.key: getattr(one, field.name)
        for field in spec_fields(Execution)
        if not field.declaration.optional or getattr(one, field.name) != field.default
    }
    every = Section(f"{len(shown)} fields", (_fields(Execution, shown),))
    return Document(f"{one.num_procs:,} processors", f"edition {terms}", (words,), (every,))


def _fields(kind: type, values: Mapping[str, Any]) -> Table:
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
    return Table(tuple(head for head in heads if any(row[head.key] != "" for row in rows)), rows)


def _field_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _system(one: System) -> Document:
    """Return peak rates, memories and networks."""
    rows: list[dict[str, str]] = []
    for part, engines in (("matrix", one.matrix), ("vector", one.vector)):
        rows += [
            {"figure": f"{part} {name}", "value": f"{engine.peak / 1e12:,.4g} TFLOP/s"}
            for name, engine in engines.items()
        ]
    for name, memory in zip(MEMORIES, (one.mem1, one.mem2), strict=True):
        size = f"{capacity(memory.capacity)} at {bandwidth(memory.bandwidth)}"
        rows.append({"figure": name, "value": size})
    for number, network in enumerate(one.networks):
        joined = f"{network.size:,} processors at {bandwidth(network.bandwidth)}"
        rows.append({"figure": f"network {number}", "value": joined})
    heads = Column("figure", "figure"), Column("value", "value")
    return Document(one.name, "a system", parts=(Table(heads, rows),))


def _packing(one: Packing) -> Document:
    help_of = {field.key: field.declaration.help for field in spec_fields(Execution)}
    heads = (
        Column("field", "field"),
        Column("value", "value", right=True),
        Column("help", "meaning"),
    )
    rows = [{"field": name, "value": value, "help": help_of[name]} for name, value in one.items()]
    return Document("", parts=(Table(heads, rows),))


def _waterfall(one: Waterfall) -> Document:
    """Return a row for each change between two plans."""
    data = waterfall_data(one)
    section = waterfall_section(data.waterfall, data.digits)
    return Document(data.title, f"edition {data.terms}", parts=section.blocks)


DOCUMENTS: dict[type, Callable[[Any], Document]] = {
    Estimate: lambda one: estimate_page(result_of(one)),
    Answer: plan_page,
    FleetAnswer: fleet_page,
    SearchResult: _search,
    Evaluation: _evaluation,
    Sensitivity: sensitivity_page,
    Waterfall: _waterfall,
    TrainingRun: campaign_page,
    Launch: launch_page,
    LargestModel: largest_model_page,
    Served: lambda one: serving_page(one.record, note_on(one.system)),
    Replay: lambda one: replay_page(one.record),
    DeploymentSearch: _deployments,
    ServedCheck: check_page,
    ByBatch: batch_page,
    Why: why_page,
    Sweep: _sweep,
    Comparison: lambda one: comparison_page(one, statistics=False),
    ServedComparison: comparison_page,
    Plan: _plan,
    Execution: _execution,
    Model: _model,
    System: _system,
    Packing: _packing,
}
"""Function that makes the document, by kind of result."""

_WHOLE = (SideBySide, Waterfall, Execution, Model, System)
"""Results whose long tables are shown completely."""
