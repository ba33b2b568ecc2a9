"""A study of deployments: each of its models, systems, deployments and workloads, as a question of its own."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Self

from calculon.base.errors import CalculonError, Infeasible, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.search.task import check_version, program
from calculon.serving.caches.cache import check_served
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload
from calculon.serving.records.read_records import read_deployment, read_workload
from calculon.serving.serve import serve
from calculon.study.points import Scope, Specs, check_number, points
from calculon.study.study_fields import Point, inside
from calculon.study.study_file import Study


@dataclass(frozen=True, slots=True)
class Question:
    """A deployment under a workload: a few kilobytes that cross processes and machines.

    Attributes:
        number: Position in its study.
        deployment: A record; processors on which there is a plain deployment; or fields that contradict each other.
        changes: Fields of a plain deployment that are stated.
        version: The program that asks (:func:`program`); a worker with another one refuses.
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
    """What a deployment gives; without figures, why it cannot run.

    Attributes:
        search: Number of the question.
        deployment: Fields of the deployment as a file states them.
        batch, cut: Sequences of a replica, and what bounds them.
        figures: Figures by name.
        missed: Limits that it misses, in words.
        reason: Why it cannot run.
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
        """Whether it runs and keeps all limits."""
        return not (self.missed or self.reason)

    def to_record(self) -> dict[str, Any]:
        """Return it as a line of a journal has it."""
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
        """Return that of a record; KeyError, TypeError or ValueError for one that is damaged."""
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
    """One question of a study, and the values that the study has names for in it."""

    search: Question
    values: Point


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions of a study, and a fingerprint of everything that their answers depend on."""

    searches: tuple[PlannedQuestion, ...]
    fingerprint: str


def plan_questions(study: Study) -> Questions:
    """Return every question of a study of deployments, the last of its lists varying fastest.

    Raises:
        SpecError: For unknown names and files, for models that none can serve, and for everything wrong with a record.
            What some combinations of a line have that contradicts itself or does not fit a model is answered with the
            reason.
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
        deployment, changes = lines.deployment(specs, point, places)
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
    """Return the value of a path that a line does not state and others do: what its record has; None for any other."""
    kind, _, path = name.partition(".")
    value: Any = records.get(kind)
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


class _Lines:
    """Deployments of the lines of a study: one of whose combinations none is a deployment is an error."""

    def __init__(self) -> None:
        self._sound: set[tuple[Any, ...]] = set()
        self._wrong: dict[tuple[Any, ...], SpecError] = {}

    def deployment(
        self, specs: Specs, point: Point, places: Mapping[str, str]
    ) -> tuple[Deployment | int | dict[str, Any], dict[str, Any]]:
        """Return the deployment of a point, or processors with the fields that it states."""
        stated, source = inside("deployment", point), point.get("deployment")
        line = (source, *stated)
        plain = isinstance(source, int)
        raw = {"num_procs": source} if plain else specs.document("deployment", point, places)[1]
        try:
            with specs.placed("deployment", point, places):
                found = read_deployment(raw, stated)
        except SpecError as error:
            self._wrong.setdefault(line, error)
            return {**raw, **stated}, {}
        self._sound.add(line)
        return (source, stated) if isinstance(source, int) else (found, {})

    def check(self) -> None:
        """Raise the error of the first line that has no deployment."""
        for line, error in self._wrong.items():
            if line not in self._sound:
                raise error


def _fields(asked: Question) -> dict[str, Any]:
    """Return the fields of the deployment that are known before it is estimated."""
    if isinstance(asked.deployment, int):
        return read_deployment({"num_procs": asked.deployment}).to_dict() | dict(asked.changes)
    if isinstance(asked.deployment, Deployment):
        return asked.deployment.to_dict()
    return dict(asked.deployment)


def answer(asked: Question) -> Answer:
    """Answer one question: the task of a worker.

    Raises:
        CalculonError: When the worker has another version of the package.
    """
    check_version(asked.version)
    deployment, load = asked.deployment, asked.workload
    try:
        found = serve(asked.model, deployment, asked.system, load, changes=asked.changes or None)
    except (Infeasible, SpecError) as error:
        return Answer(asked.number, _fields(asked), 0, "", {}, (), _reason(error))
    missed = tuple(one.in_words for one in found.limits if not one.met)
    fields = found.deployment.to_dict()
    return Answer(asked.number, fields, found.batch, found.cut, found.stats, missed)


def _reason(error: CalculonError) -> str:
    """Return why a deployment cannot run, in a line."""
    return "; ".join(str(error).split("\n"))


def varied(planned: tuple[PlannedQuestion, ...]) -> Iterator[str]:
    """Yield the names whose values differ between questions."""
    for name in dict.fromkeys(name for one in planned for name in one.values):
        values = {json.dumps(one.values.get(name), default=str) for one in planned}
        if len(values) > 1:
            yield name
