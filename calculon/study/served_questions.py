"""Studies of deployments: a question for each combination of models, systems, deployments and workloads."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from types import SimpleNamespace
from typing import Any, Self

from calculon.base.errors import CalculonError, Infeasible, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.search.deployments.best_deployment import serve
from calculon.search.task import check_version, program
from calculon.serving.caches.cache import check_served
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.study.points import Scope, Specs, check_number, points
from calculon.study.study_fields import Point, inside
from calculon.study.study_file import Study


@dataclass(frozen=True, slots=True)
class Question:
    """Deployment with a workload: a few kilobytes that are sent to processes and machines.

    Attributes:
        number: Position in the study.
        deployment: A record; a processor count for a default deployment; or contradictory fields.
        changes: Stated fields of a default deployment.
        version: Program that sends the question (:func:`program`); workers with another program refuse it.
    """

    number: int
    model: Model
    system: System
    deployment: Deployment | int | Mapping[str, Any]
    changes: Mapping[str, Any]
    workload: Workload
    version: str = field(default_factory=program)


@dataclass(frozen=True, slots=True)
class Answer:
    """Figures of a deployment, or the reason why it cannot run.

    Attributes:
        search: Number of the question.
        deployment: Fields of the deployment as in files.
        batch, cut: Sequences of a replica, and the limit that determines them.
        figures: Figures by name.
        missed: Limits that it misses, in words.
        reason: Reason why it cannot run; empty if it can.
    """

    search: int
    deployment: Mapping[str, Any]
    batch: int
    cut: str
    figures: Mapping[str, float | None]
    missed: tuple[str, ...] = ()
    reason: str = ""

    @property
    def good(self) -> bool:
        """True if the deployment runs and meets all limits."""
        return not (self.missed or self.reason)

    def to_record(self) -> dict[str, Any]:
        """Return the answer as a line of a journal."""
        return {
            "search": self.search,
            "deployment": dict(self.deployment),
            "batch": self.batch,
            "cut": self.cut,
            "figures": dict(self.figures),
            "missed": list(self.missed),
            "reason": self.reason,
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the answer of a record; raise KeyError, TypeError or ValueError for a damaged one."""
        figures = {
            str(name): None if value is None else float(value)
            for name, value in record["figures"].items()
        }
        return cls(
            int(record["search"]),
            dict(record["deployment"]),
            int(record["batch"]),
            str(record["cut"]),
            figures,
            tuple(map(str, record["missed"])),
            str(record["reason"]),
        )


@dataclass(frozen=True, slots=True)
class PlannedQuestion:
    """Question of a study, with the values that define it in the study."""

    search: Question
    values: Point


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions of a study, and a fingerprint of all inputs of their answers."""

    searches: tuple[PlannedQuestion, ...]
    fingerprint: str


def plan_questions(study: Study) -> Questions:
    """Return all questions of a study of deployments; the last list varies fastest.

    Raises:
        SpecError: For unknown names and files, for models that cannot be served, and for invalid records. Single
            combinations that contradict themselves or do not fit a model are answered with a reason instead.
    """
    total = 1
    for axis in study.axes:
        total *= len(axis.points)
    check_number(study, total)
    specs = Specs(study.file)
    digest = hashlib.sha256(f"{program()} serving".encode())
    planned: list[PlannedQuestion] = []
    lines = _Lines()
    for point, places in points(study):
        model, model_digest = specs.get("model", Model, point, places)
        check_served(model)
        system, system_digest = specs.get("system", System, point, places)
        deployment, changes = lines.deployment(specs, point, places, facts_of(model, system))
        _, raw = specs.document("workload", point, places)
        with specs.placed("workload", point, places):
            load = read_workload(raw, inside("workload", point))
        scope = Scope(study, point)
        asked = Question(len(planned), model, system, deployment, changes, load)
        own = {"deployment": _fields(asked), "workload": load.to_dict()}
        values = {
            name: scope[name] if name in point or name in study.quantities else _of(own, name)
            for name in study.names
        }
        planned.append(PlannedQuestion(asked, values))
        known = [model_digest, system_digest, _fields(asked), load.to_dict()]
        record = [known, *values.items()]
        digest.update(json.dumps(record, sort_keys=True, default=str).encode())
    lines.check()
    return Questions(tuple(planned), digest.hexdigest())


def _of(records: Mapping[str, Mapping[str, Any]], name: str) -> Any:
    """Return the value of a path from the record of a line that does not state it; None for any other path."""
    kind, _, path = name.partition(".")
    value: Any = records.get(kind)
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


class _Lines:
    """Deployments of the lines of a study: a line without any valid combination is an error."""

    def __init__(self) -> None:
        self._sound: set[tuple[Any, ...]] = set()
        self._wrong: dict[tuple[Any, ...], SpecError] = {}

    def deployment(
        self, specs: Specs, point: Point, places: Mapping[str, str], facts: SimpleNamespace
    ) -> tuple[Deployment | int | dict[str, Any], dict[str, Any]]:
        """Return the deployment of a point, or a processor count and the stated fields."""
        stated, source = inside("deployment", point), point.get("deployment")
        line = (source, *stated)
        plain = isinstance(source, int)
        raw = {"num_procs": source} if plain else specs.document("deployment", point, places)[1]
        try:
            with specs.placed("deployment", point, places):
                found = read_deployment(raw, stated, facts)
        except SpecError as error:
            # Single combinations of a line may be contradictory: an error only if all of them are.
            self._wrong.setdefault(line, error)
            return {**raw, **stated}, {}
        self._sound.add(line)
        return (source, stated) if isinstance(source, int) else (found, {})

    def check(self) -> None:
        """Raise the error of the first line without a valid deployment."""
        for line, error in self._wrong.items():
            if line not in self._sound:
                raise error


def _fields(question: Question) -> dict[str, Any]:
    """Return the fields of the deployment that are known before it is estimated."""
    if isinstance(question.deployment, int):
        return read_deployment({"num_procs": question.deployment}).to_dict() | dict(
            question.changes
        )
    if isinstance(question.deployment, Deployment):
        return question.deployment.to_dict()
    return dict(question.deployment)


def answer(question: Question) -> Answer:
    """Answer one question as the task of a worker.

    Raises:
        CalculonError: When the worker has another version of the package than the sender.
    """
    check_version(question.version)
    deployment, load = question.deployment, question.workload
    try:
        found = serve(
            question.model, deployment, question.system, load, changes=question.changes or None
        )
    except (Infeasible, SpecError) as error:
        # A combination that cannot run is a result: the study continues.
        return Answer(question.number, _fields(question), 0, "", {}, (), _reason(error))
    missed = tuple(one.in_words for one in found.limits if not one.met)
    fields = found.deployment.to_dict()
    return Answer(question.number, fields, found.batch, found.cut, found.stats, missed)


def _reason(error: CalculonError) -> str:
    """Return the reason why a deployment cannot run as a single line."""
    return "; ".join(str(error).split("\n"))


def varied(planned: tuple[PlannedQuestion, ...]) -> Iterator[str]:
    """Yield the names whose values differ between questions."""
    for name in dict.fromkeys(name for one in planned for name in one.values):
        # As text, because lists and objects cannot be members of a set.
        values = {json.dumps(one.values.get(name), default=str) for one in planned}
        if len(values) > 1:
            yield name
