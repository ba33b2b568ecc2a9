"""Parts of result files as declared records: the question, and the deployments found by a search."""

from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.decode import decode
from calculon.declarations.fields import Declaration, declare

QUESTION = "question"
"""Member of a result with the question that it answers."""

DEPLOYMENT, REPLICAS = "deployment", "replicas"
"""Members of a serving deployment: its fields, and in them the number of replicas, which is not a deployment field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedSpec:
    """Model or system in a question."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("its name", default="")
    source: str = declare("its file, if named differently", default="")
    set: dict[str, Any] = declare("changed values by path", default=None)
    sha256: str = declare("hash of its content", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedExecution:
    """Execution in a question."""

    unknown_keys: ClassVar[str] = "ignored"

    fields: dict[str, Any] = declare("its fields", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Question of a result, used to check the members that are read; each may be missing."""

    unknown_keys: ClassVar[str] = "ignored"

    model: _NamedSpec | None = declare("the model", default=None)
    system: _NamedSpec | None = declare("the system", default=None)
    execution: _AskedExecution | None = declare("the execution", default=None)
    search: dict[str, Any] = declare("options of a search", default=None)
    preset: dict[str, Any] = declare("the preset", default=None)


def question_in(raw: Mapping[str, Any], file: str, place: str = "") -> Mapping[str, Any]:
    """Return the question of a result; empty if the result has none.

    Args:
        raw: The result.
        file, place: Its file, and its path in the file, for messages.

    Raises:
        SpecError: With every problem in the question.
    """
    known = raw.get(QUESTION)
    if known is None:
        return {}
    decode(_Question, known, file, place=f"{place}.{QUESTION}".lstrip("."))
    return dict(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExecution:
    """Execution among the winners of a search."""

    unknown_keys: ClassVar[str] = "ignored"

    execution: dict[str, Any] = declare("its fields")
    stats: dict[str, Any] = declare("its statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Numbers of deployments in a search."""

    unknown_keys: ClassVar[str] = "ignored"

    total: int = declare("deployments of the space", at_least=0, unbounded=True)
    solved: int = declare("deployments whose batch was solved", at_least=0, unbounded=True)
    feasible: int = declare("deployments within all limits", at_least=0, unbounded=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDeployment:
    """Deployment among the winners of a search."""

    unknown_keys: ClassVar[str] = "ignored"

    deployment: dict[str, Any] = declare("its fields")
    replicas: int = declare("its replicas", at_least=1, default=1)
    batch: int = declare("sequences that a replica decodes concurrently", at_least=0, default=0)
    figures: dict[str, Any] = declare("its figures", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDeployments:
    """Result of a search for deployments."""

    unknown_keys: ClassVar[str] = "ignored"

    model: str = declare("name of the model")
    system: str = declare("name of the machine")
    workload: dict[str, Any] = declare("the workload")
    counts: _Counts | None = declare("numbers of deployments", default=None)
    winners: tuple[FoundDeployment, ...] = declare("the best deployments", default=())


def without_replicas(fields: Any, file: str, place: str) -> Any:
    """Return the fields of a deployment, and of its prefill pool, without the numbers of replicas.

    Raises:
        SpecError: For an invalid number of replicas.
    """
    if not isinstance(fields, Mapping):
        return fields
    if REPLICAS in fields and (
        problem := _REPLICAS.problem(int, fields[REPLICAS], f"{place}.{REPLICAS}".lstrip("."))
    ):
        raise SpecError(file, problem)
    return {
        name: without_replicas(one, file, f"{place}.{name}".lstrip("."))
        for name, one in fields.items()
        if name != REPLICAS
    }


_REPLICAS = Declaration("replicas of a pool", at_least=1)
