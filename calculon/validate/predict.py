"""Predictions of measured rows: grouped by model and system into tables that are evaluated at once."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from calculon.base.errors import Infeasible, Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.declarations.decode import decode
from calculon.declarations.execution import Execution
from calculon.declarations.fields import optional_defaults, spec_fields
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.override import override
from calculon.declarations.preset_file import plain
from calculon.declarations.presets import PUBLISHED_FORMS, find_preset, lacking, refused
from calculon.declarations.statistics import TIER1
from calculon.editions import EDITIONS
from calculon.estimate.evaluate import Evaluation, evaluate, evaluate_one
from calculon.estimate.stages import stage_rows
from calculon.hardware.system import System
from calculon.plan.plan import PUBLISHED_NAMES, Plan
from calculon.plan.rules.all_rules import check, raise_for
from calculon.plan.rules.rule import Request
from calculon.validate.published_fields import Fields
from calculon.validate.published_study import STAGES, Library, Study, fill, is_of_stage, of_stage
from calculon.validate.study_rows import Row, field_values, require, with_derived

_DEFAULTS = optional_defaults(Execution)
_FIELDS = {one.name: one.declaration for one in spec_fields(Execution)}
UNLIMITED = 1e30
"""Tier-1 capacity for rows that were measured: they did fit, even if the model predicts that they do not."""


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs of the model for a measured row: the model, the fields of its execution, and the system."""

    model: Model
    execution: dict[str, Any]
    system: System

    def broken_rule(self) -> str:
        """Return the message of the first rule that the execution violates; empty if there is none."""
        execution = Execution(**self.execution)
        code = int(check(self.model, self.system, Plan.of(execution))[0])
        try:
            raise_for(Request(self.model, self.system, execution), code)
        except Infeasible as error:
            return str(error)
        except SpecError as error:  # an option that the framework of the preset lacks
            one = error.problems[0]
            return f"{one.field}: expected {one.expected}, found {one.found}"
        return ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Statistics of measured rows.

    Attributes:
        values (shape (rows,)): Statistics by name, in SI units; not-a-number for rows that the model cannot represent.
        reasons: The reasons; empty for rows that it can represent.
        too_large (shape (rows,)): Mask of rows that exceed tier-1 memory according to the model, although they ran.
        cases: Inputs of the model for each row.
    """

    values: dict[str, Array]
    reasons: list[str]
    too_large: Array
    cases: list[Case]


def predict(
    library: Library,
    study: Study,
    rows: Sequence[Row],
    names: Iterable[str],
    edition: str,
) -> Prediction:
    """Evaluate the rows of a study under an edition; the published edition uses published fields only.

    Args:
        library: Library of named models and systems.
        study: The study, or an alternative of it.
        rows: The measured rows.
        names: Requested statistics, also of a named stage (:func:`~calculon.validate.published_study.of_stage`).
        edition: Edition of the cost model.

    Raises:
        SpecError: For invalid content of a row or of the study; names file, row and field.
    """
    wanted = [*dict.fromkeys((*names, TIER1))]
    found = {name: np.full(len(rows), np.nan) for name in wanted}
    if not rows:
        return Prediction(found, [], np.zeros(0, bool), [])
    some = _cases(library, study, rows, edition)
    reasons = [""] * len(rows)
    capacity = np.array([EDITIONS[edition].machine(case.system).usable[0] for case in some])
    # A table has one model and one system; its rows are computed together, much faster than one by one.
    groups: dict[tuple[Model, str], list[int]] = {}
    for i, case in enumerate(some):
        groups.setdefault((case.model, case.system.name), []).append(i)
    for (model, _), members in groups.items():
        plan = Plan.from_records(some[i].execution for i in members)
        result = _evaluate(model, some[members[0]].system, plan, edition)
        for name in wanted:
            if not is_of_stage(name):
                found[name][members] = result[name]
        staged = [name for name in wanted if is_of_stage(name)]
        for i, why in zip(members, result.reason, strict=True):
            for name, value in (
                _stage_figures(some[i], staged, edition) if staged and not why else {}
            ).items():
                found[name][i] = value
        for i, why in zip(members, result.reason, strict=True):
            reasons[i] = str(why)
    return Prediction(found, reasons, found[TIER1] > capacity, some)


def _cases(library: Library, study: Study, rows: Sequence[Row], edition: str) -> list[Case]:
    """Return the inputs of the model for each row of a study under an edition; errors as in :func:`predict`."""
    rows = with_derived(study, rows)
    models = [Model(**fields) for fields in named_specs(library, study, study.model, "model", rows)]
    executions = [
        _completed(one, study)
        for one in named_specs(library, study, study.execution, "execution", rows)
    ]
    if problems := misstated_choices(study, rows, executions):
        raise SpecError(study.file, problems)
    if edition == PUBLISHED:
        models = [model.published() for model in models]
        executions = [{name: fields[name] for name in PUBLISHED_NAMES} for fields in executions]
    if study.is_alternative:
        executions = [_unlimited(*one) for one in zip(executions, models, strict=True)]
    systems = row_systems(library, study, rows)
    return [Case(*one) for one in zip(models, executions, systems, strict=True)]


def _completed(fields: dict[str, Any], study: Study) -> dict[str, Any]:
    """Return the fields of an execution with the values of its preset, so that the study runs under any edition."""
    if "preset" not in fields:
        return fields
    preset = find_preset(fields["preset"])
    if problems := list(preset.too_new(fields)):
        raise SpecError(study.file, problems)
    result = preset.completed(fields)
    for name in PUBLISHED_NAMES:
        if name not in result:
            problem = Problem(f"execution.{name}", "a constant or an expression", "nothing")
            raise SpecError(study.file, problem)
    return result


def _unlimited(fields: dict[str, Any], model: Model) -> dict[str, Any]:
    """Return the fields of an alternative, without its preset if the framework does not support them.

    An alternative shows the effect of a choice on the model, for choices that the framework lacks, too.
    """
    preset = find_preset(fields.get("preset", PUBLISHED_FORMS))

    def value_of(name: str) -> Any:
        found = fields[name] if name in fields else _DEFAULTS.get(name)
        return _FIELDS[name].plain(found) if name in _FIELDS else getattr(model, name)

    refuses = any(lacking(preset, value_of)) or any(refused(preset, value_of))
    return fields | {"preset": PUBLISHED_FORMS} if refuses else fields


def misstated_choices(
    study: Study, rows: Sequence[Row], executions: Sequence[dict[str, Any]]
) -> list[Problem]:
    """Return a problem for each field of ``chosen`` that differs from the completed execution of a row."""
    result = []
    for field in spec_fields(Execution):
        if field.key not in study.chosen.values:
            continue
        place = f"chosen.{field.key}"
        stated = field_values(study, field, study.chosen.values[field.key], rows, place)
        # Both in plain form, in which values with the same meaning are equal.
        held = field.declaration.plain
        for row, value, execution in zip(rows, stated, executions, strict=True):
            runs = execution.get(field.name, _DEFAULTS.get(field.name))
            if held(value) != held(runs):
                wanted = f"{plain(runs)}, the value with which {row.place} runs"
                hint = "correct the claim here and under `choices`, or state the value under `execution`"
                result.append(Problem(place, wanted, plain(value), hint))
                # One problem for each field suffices: other rows usually repeat it.
                break
    return result


def _evaluate(model: Model, system: System, plan: Plan, edition: str) -> Evaluation:
    memory = dataclasses.replace(system.mem1, capacity=UNLIMITED)
    return evaluate(model, plan, dataclasses.replace(system, mem1=memory), edition=edition)


def _stage_figures(case: Case, keys: Sequence[str], edition: str) -> dict[str, float]:
    """Return statistics of the first and the last stage by their keys."""
    plan = Plan.from_records([case.execution])
    rows = stage_rows(evaluate_one(case.model, case.system, plan, EDITIONS[edition]))
    return {
        key: rows[place][name]
        for stage, place in STAGES.items()
        for name in rows[place]
        if (key := of_stage(stage, name)) in keys
    }


def row_systems(library: Library, study: Study, rows: Sequence[Row]) -> list[System]:
    """Return the system of each row, with the overrides of the study."""
    known: dict[str, System] = {}
    names = _sources(study, study.system, "system", rows)
    for row, name in zip(rows, names, strict=True):
        if name not in known:
            file, raw = _found(library, study, "system", name, row, study.system)
            known[name] = decode(System, raw, file, name=name)
            if study.override:
                known[name] = _overridden(study, raw, name)
    return [known[name] for name in names]


def _overridden(study: Study, raw: object, name: str) -> System:
    """Return a system with the overrides of the study; problems with overrides refer to the study."""
    try:
        return decode(System, override(raw, study.override, study.file), study.file, name=name)
    except SpecError as error:
        inside = [dataclasses.replace(p, field=f"override.{p.field}") for p in error.problems]
        raise SpecError(study.file, inside) from None


def named_specs(
    library: Library, study: Study, form: Fields, kind: str, rows: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """Yield the fields of a spec for each row: fields of the named spec, replaced by fields that the study states."""
    cls: Any = form.record
    sources = _sources(study, form.source, kind, rows)
    named: dict[str, dict[str, Any]] = {"": {}}
    for row, source in zip(rows, sources, strict=True):
        if source not in named:
            file, raw = _found(library, study, kind, source, row, form.source)
            named[source] = decode(cls, raw, file).to_dict()
    stated = {}
    for field in spec_fields(cls):
        place = f"{kind}.{field.key}"
        if field.key in form.values:
            formula = form.values[field.key]
            stated[field.name] = field_values(study, field, formula, rows, place)
        elif not form.source and not field.declaration.optional and "preset" not in form.values:
            raise SpecError(study.file, Problem(place, "a constant or an expression", "nothing"))
    for i, source in enumerate(sources):
        yield named[source] | {name: column[i] for name, column in stated.items()}


def _found(
    library: Library, study: Study, kind: str, source: str, row: Row, template: str
) -> tuple[str, object]:
    """Read a spec; an unknown name in the cells of a row is an error of that row."""
    try:
        return library.spec(kind, source, study)
    except SpecError as error:
        if source == template or error.file != study.file:
            raise
        one = error.problems[0]
        raise row.refuse(kind, one.expected, one.found, one.hint) from None


def _sources(study: Study, template: str, kind: str, rows: Sequence[Row]) -> list[str]:
    """Return the names from a template for all rows."""
    try:
        return [fill(template, row.cells) for row in rows]
    except KeyError as error:
        require(error.args[0], rows[0].cells, study.file, kind)
        raise
