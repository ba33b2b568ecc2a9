"""Parts of result files as declared records: the question, and the deployments that a search found."""

from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.decode import decode
from calculon.declarations.fields import Declaration, declare

QUESTION = "question"
"""Member of a result that says what it answers."""

DEPLOYMENT, REPLICAS = "deployment", "replicas"
"""Members of a deployment that serves: its fields, and among them the number of replicas, which is no field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedSpec:
    """A model or system in a question."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("its name", default="")
    source: str = declare("its file, if that has another name", default="")
    set: dict[str, Any] = declare("changed values by path", default=None)
    sha256: str = declare("hash of its content", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AskedExecution:
    """The execution in a question."""

    unknown_keys: ClassVar[str] = "ignored"

    fields: dict[str, Any] = declare("its fields", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A question, to check the members that are read of it; each of them may be missing."""

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
        SpecError: With everything wrong in it.
    """
    known = raw.get(QUESTION)
    if known is None:
        return {}
    decode(_Question, known, file, place=f"{place}.{QUESTION}".lstrip("."))
    return dict(known)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExecution:
    """One of the best executions of a search."""

    unknown_keys: ClassVar[str] = "ignored"

    execution: dict[str, Any] = declare("its fields")
    stats: dict[str, Any] = declare("its statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Numbers of deployments of a search."""

    unknown_keys: ClassVar[str] = "ignored"

    total: int = declare("deployments of the space", at_least=0, unbounded=True)
    solved: int = declare("deployments whose batch was solved", at_least=0, unbounded=True)
    feasible: int = declare("deployments that keep all limits", at_least=0, unbounded=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDeployment:
    """One of the best deployments of a search."""

    unknown_keys: ClassVar[str] = "ignored"

    deployment: dict[str, Any] = declare("its fields")
    replicas: int = declare("its replicas", at_least=1, default=1)
    batch: int = declare("sequences that a replica decodes at a time", at_least=0, default=0)
    figures: dict[str, Any] = declare("its figures", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDeployments:
    """The result of a search for deployments."""

    unknown_keys: ClassVar[str] = "ignored"

    model: str = declare("name of the model")
    system: str = declare("name of the machine")
    workload: dict[str, Any] = declare("the workload")
    counts: _Counts | None = declare("numbers of deployments", default=None)
    winners: tuple[FoundDeployment, ...] = declare("the best deployments", default=())


def without_replicas(fields: Any, file: str, place: str) -> Any:
    """Return the fields of a deployment, and of its pool that prefills, without the numbers of replicas.

    Raises:
        SpecError: When a number of replicas is wrong.
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
