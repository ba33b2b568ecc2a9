"""Predictions of measured serving rows: each row is a model, a deployment, a system and a workload."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from calculon.base.errors import Infeasible, SpecError
from calculon.declarations.expression import Expression
from calculon.declarations.model import Model
from calculon.declarations.serving_figures import SERVING_FIGURES
from calculon.hardware.system import System
from calculon.serving.caches.cache import check_length, check_served
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.deployments import grouped
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import check_split, serve
from calculon.serving.states.operating_point import OperatingPointSolver
from calculon.validate.predict import Case, Prediction, named_specs, row_systems
from calculon.validate.published_fields import Fields
from calculon.validate.published_study import Library, Study, fill
from calculon.validate.study_rows import Row, values, with_derived

R = TypeVar("R", Deployment, Workload)

OF_CLASSES = ("concurrency", "max_concurrency")
"""Figures of every row that classify its load."""


def predict_served(
    library: Library, study: Study, rows: Sequence[Row], names: Iterable[str], edition: str
) -> Prediction:
    """Predict the rows of a study of deployments; arguments and errors as of ``predict``.

    Rows that cannot run according to the model have no figures, but a reason. Equal rows are evaluated once, and rows
    that differ only in the sizes of their deployments are evaluated together.
    """
    wanted = list(dict.fromkeys((*names, *OF_CLASSES)))
    found = {name: np.full(len(rows), np.nan) for name in wanted}
    reasons = [""] * len(rows)
    derived = with_derived(study, rows)
    models = [Model(**one) for one in named_specs(library, study, study.model, "model", derived)]
    systems = row_systems(library, study, derived)

    def deployed(i: int, raw: Any) -> Deployment:
        return read_deployment(raw, facts=facts_of(models[i], systems[i]))

    deployments = _records(study, study.deployment, derived, deployed)
    workloads = _records(study, study.workload, derived, lambda _, raw: read_workload(raw))
    alike: dict[tuple[Model, str, Workload], dict[Deployment, list[int]]] = {}
    for i, deployment in enumerate(deployments):
        own = alike.setdefault((models[i], systems[i].name, workloads[i]), {})
        own.setdefault(deployment, []).append(i)
    for (model, _, workload), members in alike.items():
        system = systems[next(iter(members.values()))[0]]
        answers = _answers(model, system, workload, [*members], wanted)
        for (figures, why), places in zip(answers, members.values(), strict=True):
            for i in places:
                reasons[i] = why
                for name, value in figures.items():
                    found[name][i] = value
    cases = [Case(model, {}, system) for model, system in zip(models, systems, strict=True)]
    return Prediction(found, reasons, np.zeros(len(rows), bool), cases)


def _answers(
    model: Model,
    system: System,
    workload: Workload,
    deployments: Sequence[Deployment],
    names: Iterable[str],
) -> list[tuple[Mapping[str, float], str]]:
    """Return the figures of deployments as in :func:`serve`, or a reason for deployments that cannot run."""
    check_served(model)
    check_length(model, workload)
    for one in deployments:
        check_split(model, one)
    result: list[tuple[Mapping[str, float], str]] = [({}, "")] * len(deployments)
    for columns, places in grouped(deployments):
        points = OperatingPointSolver(Replica(model, system, columns, workload)).solve()
        values = {name: SERVING_FIGURES[name].of(points.figures) for name in names}
        for row, place in enumerate(places):
            if points.fits[row]:
                result[place] = {name: float(one[row]) for name, one in values.items()}, ""
            else:
                result[place] = {}, _refusal(model, deployments[place], system, workload)
    return result


def _refusal(model: Model, deployment: Deployment, system: System, workload: Workload) -> str:
    """Return the reason why a deployment cannot run, which lacks memory for a sequence."""
    try:
        serve(model, deployment, system, workload)
    except Infeasible as error:
        return error.reason
    raise AssertionError("a deployment without room for a sequence is answered")


def _records(
    study: Study, form: Fields, rows: Sequence[Row], read: Callable[[int, Any], R]
) -> list[R]:
    """Return the record of each row, from its fields or by its name; blank cells give defaults.

    Args:
        study, form, rows: The study, its fields of the record, and its rows.
        read: Function from the index of a row and a source to the record.

    Raises:
        SpecError: With the row, for any invalid record.
    """
    kind = form.record.__name__.lower()
    columns: dict[str, Sequence[Any]] = {}
    for key, formula in form.values.items():
        stated = isinstance(formula, Expression)
        place = f"{kind}.{key}"
        columns[key] = values(study, formula, rows, place) if stated else [formula] * len(rows)
    result = []
    for i, row in enumerate(rows):
        fields = {key: _whole(column[i]) for key, column in columns.items()}
        stated_ones = {key: value for key, value in fields.items() if value is not None}
        try:
            result.append(read(i, fill(form.source, row.cells) if form.source else stated_ones))
        except SpecError as error:
            one = error.problems[0]
            raise row.refuse(f"{kind}.{one.field}", one.expected, one.found, one.hint) from None
    return result


def _whole(value: Any) -> Any:
    """Return an integral float as an integer, because expressions may compute floats."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
