"""Phases of a campaign: the execution of each phase, and the rollouts of reinforcement learning."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.errors import Problem, nearest
from calculon.base.frozen import dataclass
from calculon.campaign.goals import Length, TimeSpan
from calculon.declarations.fields import declare, shown

# Documents inside a campaign file: a name, a path, or the fields of a record.


@dataclass(frozen=True, slots=True)
class StatedDocument:
    """A document inside a campaign file, kept as text so that records that contain it can be compared and hashed.

    Attributes:
        text: The document in JSON.
    """

    text: str

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of all forms."""
        return {"type": ["string", "object"]}

    @property
    def raw(self) -> str | dict[str, Any]:
        """The document."""
        result: str | dict[str, Any] = json.loads(self.text)
        return result


# Rollouts: the responses that a step of reinforcement learning generates before it trains on them.


@dataclass(frozen=True, slots=True)
class ServedBy(StatedDocument):
    """The deployment that generates rollouts, as stated in the file.

    Attributes:
        text: The document in JSON: a name or a path, or the fields of a deployment.
    """

    WANTED: ClassVar = "a deployment of the catalog, a file, or its fields"

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "ServedBy | None":
        """Decode a name, or an object with the fields of a deployment."""
        if isinstance(raw, str) and raw.strip():
            return cls(json.dumps(raw))
        if isinstance(raw, Mapping):
            return cls(json.dumps(dict(raw), default=str))
        problems.append(Problem(path, cls.WANTED, shown(raw)))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Responses that the model generates for each step, on the processors that train it afterwards."""

    unknown_keys: ClassVar[str] = "error"

    prompt: Length = declare("tokens of a prompt", unit="tokens")
    output: Length = declare("mean tokens generated per response", unit="tokens")
    output_cv: float = declare(
        "standard deviation of response lengths over their mean; the step waits for the longest",
        at_least=0,
        default=0.0,
    )
    samples: int | None = declare(
        "responses per step; if absent as many as the tokens of a step allow",
        at_least=1,
        default=None,
    )
    deployment: ServedBy | None = declare(
        "deployment that generates: a name of the catalog, a file, or its fields, on the processors of the run; if "
        "absent replicas of a node each",
        default=None,
    )
    switch: TimeSpan = declare(
        "time per step to switch between training and generation (resharding weights, offloading and reloading "
        "optimizer state), and for anything else, such as rewards",
        unit="s",
        default=TimeSpan(0),
    )

    def answers(self, tokens_per_step: int) -> int:
        """Return the responses generated per training step: one per `prompt` + `output` trained tokens, rounded up."""
        if self.samples is not None:
            return self.samples
        return max(1, -(-tokens_per_step // (self.prompt + self.output)))


# The execution of a phase, or a search for one.

SEARCH = "search"
"""The word that asks for a search in place of an execution."""

OPTIONS = ("preset", "fix", "add")
"""Options of such a search, as in :func:`calculon.search`."""

OF_PHASES = ("batch_size", "seq_length")
"""Execution fields that a phase, or a ramp, states itself."""


@dataclass(frozen=True, slots=True)
class PhaseExecution(StatedDocument):
    """The execution of a phase, as stated in the file.

    Attributes:
        text: The document in JSON: a name or a path, the fields of an execution, ``search``, or ``{search: {...}}``
            with :data:`OPTIONS`.
    """

    WANTED: ClassVar = f"an execution of the catalog, a file, its fields, or {SEARCH}"

    @classmethod
    def decode(
        cls, raw: object, path: str, problems: list[Problem], scale: float
    ) -> "PhaseExecution":
        """Decode a name, an object with the fields of an execution, or a search with its options."""
        if isinstance(raw, str) and raw.strip():
            return cls(json.dumps(raw))
        if not isinstance(raw, Mapping) or not raw:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
            return cls(json.dumps(SEARCH))
        if SEARCH in raw:
            problems += _option_problems(raw, path)
        return cls(json.dumps(dict(raw), default=str))

    @property
    def searched(self) -> bool:
        """True if a search finds the execution."""
        raw = self.raw
        return raw == SEARCH or (isinstance(raw, dict) and SEARCH in raw)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the search; empty without a search."""
        raw = self.raw
        return dict(raw.get(SEARCH) or {}) if isinstance(raw, dict) else {}


def _option_problems(raw: Mapping[Any, Any], path: str) -> list[Problem]:
    """Return the problems of a search and its options."""
    options = raw[SEARCH]
    result = [
        Problem(f"{path}.{key}", f"no other fields next to {SEARCH}", shown(key))
        for key in raw
        if key != SEARCH
    ]
    if options is None:
        return result
    if not isinstance(options, Mapping):
        wanted = f"an object with options: {', '.join(OPTIONS)}"
        return [*result, Problem(f"{path}.{SEARCH}", wanted, shown(options))]
    for key, value in options.items():
        place = f"{path}.{SEARCH}.{key}"
        if key not in OPTIONS:
            hint = nearest(str(key), OPTIONS)
            wanted = f"one of the options {', '.join(OPTIONS)}"
            result.append(Problem(place, wanted, shown(str(key)), hint))
        elif key == "preset" and not isinstance(value, str):
            result.append(Problem(place, "the name of a preset, or its file", shown(value)))
        elif key != "preset" and not isinstance(value, Mapping):
            result.append(Problem(place, "an object with fields of executions", shown(value)))
        elif key != "preset":
            hint = "batch and seq_size of a phase state them"
            wanted = f"fields other than {' and '.join(OF_PHASES)}"
            stated = [one for one in OF_PHASES if one in value]
            result += [Problem(f"{place}.{one}", wanted, one, hint) for one in stated]
    return result
