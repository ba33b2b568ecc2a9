"""Estimates of measured rows of served models: each row is a model, a deployment, a system and a workload."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from calculon.apps.validate.library import Library, fill
from calculon.apps.validate.predict import Prediction, named_specs, row_systems
from calculon.apps.validate.published_fields import Fields
from calculon.apps.validate.published_study import Study
from calculon.apps.validate.study_rows import Row, values, with_derived
from calculon.errors import Infeasible, SpecError
from calculon.expression import Expression
from calculon.hardware.system import System
from calculon.serving.records.asked import read_deployment, read_workload
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload
from calculon.serving.serve import serve
from calculon.spec.model import Model

R = TypeVar("R", Deployment, Workload)


def predict_served(
    library: Library, study: Study, rows: Sequence[Row], names: Iterable[str], edition: str
) -> Prediction:
    """Estimate the rows of a study of deployments; arguments and errors as of ``predict``.

    Rows that cannot run by the model have no figures, and a reason. Equal rows are estimated once.
    """
    wanted = list(dict.fromkeys(names))
    found = {name: np.full(len(rows), np.nan) for name in wanted}
    reasons = [""] * len(rows)
    known: dict[Hashable, tuple[dict[str, float | None], str]] = {}
    derived = with_derived(study, rows)
    models = [Model(**one) for one in named_specs(library, study, study.model, "model", derived)]
    systems = row_systems(library, study, derived)
    deployments = _records(study, study.deployment, derived, read_deployment)
    workloads = _records(study, study.workload, derived, read_workload)
    for i, asked in enumerate(zip(models, deployments, systems, workloads, strict=True)):
        model, deployment, system, workload = asked
        key = (model, deployment, workload, system.name)
        if key not in known:
            known[key] = _figures(*asked)
        figures, reasons[i] = known[key]
        for name in wanted if figures else ():
            found[name][i] = figures[name]
    return Prediction(found, reasons, np.zeros(len(rows), bool), [])


def _figures(
    model: Model, deployment: Deployment, system: System, workload: Workload
) -> tuple[dict[str, float | None], str]:
    """Return the figures of a deployment, or none of them and why it cannot run."""
    try:
        return serve(model, deployment, system, workload).stats, ""
    except Infeasible as error:
        return {}, error.reason


def _records(study: Study, form: Fields, rows: Sequence[Row], read: Callable[[Any], R]) -> list[R]:
    """Return the record of each row, from its fields or by its name; fields of blank cells have their defaults.

    Raises
    ------
    SpecError
        Of the row, for everything wrong with its record.
    """
    kind = form.record.__name__.lower()
    columns: dict[str, Sequence[Any]] = {}
    for key, formula in form.values.items():
        stated = isinstance(formula, Expression)
        place = f"{kind}.{key}"
        columns[key] = values(study, formula, rows, place) if stated else [formula] * len(rows)
    found = []
    for i, row in enumerate(rows):
        fields = {key: _whole(column[i]) for key, column in columns.items()}
        stated_ones = {key: value for key, value in fields.items() if value is not None}
        try:
            found.append(read(fill(form.source, row.cells) if form.source else stated_ones))
        except SpecError as error:
            one = error.problems[0]
            raise row.refuse(f"{kind}.{one.field}", one.expected, one.found, one.hint) from None
    return found


def _whole(value: Any) -> Any:
    """Return a whole number as one, which an expression may give as a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
