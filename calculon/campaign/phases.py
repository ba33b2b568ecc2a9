"""Phases of a campaign: what each runs, and what a step of reinforcement learning generates."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.errors import Problem, nearest
from calculon.base.frozen import dataclass
from calculon.campaign.goals import Length, TimeSpan
from calculon.declarations.fields import declare, shown

# A part of a campaign that is a document of its own: a name, a path, or the fields of a record.


@dataclass(frozen=True, slots=True)
class StatedDocument:
    """A document as a file of a campaign has it; kept as text, so that records with it can be compared and hashed.

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
        found: str | dict[str, Any] = json.loads(self.text)
        return found


# What a step of reinforcement learning generates before it trains: the record of it.


@dataclass(frozen=True, slots=True)
class ServedBy(StatedDocument):
    """The deployment that generates, as its file has it.

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
    """Answers that the model generates for each step, on the processors that train it afterwards."""

    unknown_keys: ClassVar[str] = "error"

    prompt: Length = declare("tokens of a prompt", unit="tokens")
    output: Length = declare("generated tokens of an answer, on average", unit="tokens")
    output_cv: float = declare(
        "standard deviation of answers over their mean; the step waits for the longest",
        at_least=0,
        default=0.0,
    )
    samples: int | None = declare(
        "answers for each step; if absent as many as its tokens come to", at_least=1, default=None
    )
    deployment: ServedBy | None = declare(
        "how it is served: a deployment of the catalog, a file, or its fields, of the processors of the run; if absent "
        "replicas of a node each",
        default=None,
    )
    switch: TimeSpan = declare(
        "time of a step to change between training and generation: weights are split anew, and states of the "
        "optimizer leave the memory and come back; and what else a step takes, such as rewards",
        unit="s",
        default=TimeSpan(0),
    )

    def answers(self, tokens_per_step: int) -> int:
        """Return the answers of a step that trains so many tokens: one for those of a prompt and an output."""
        if self.samples is not None:
            return self.samples
        return max(1, -(-tokens_per_step // (self.prompt + self.output)))


# What runs a phase of a campaign: an execution, or a search for one.

SEARCH = "search"
"""The word for an execution that is looked for."""

OPTIONS = ("preset", "fix", "add")
"""Options of such a search, as of :func:`calculon.search`."""

OF_PHASES = ("batch_size", "seq_length")
"""Fields of an execution that a phase, or a ramp, states itself."""


@dataclass(frozen=True, slots=True)
class PhaseExecution(StatedDocument):
    """What runs a phase, as its file has it.

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
        """Whether it is looked for."""
        raw = self.raw
        return raw == SEARCH or (isinstance(raw, dict) and SEARCH in raw)

    @property
    def options(self) -> dict[str, Any]:
        """Options of the search; none where nothing is looked for."""
        raw = self.raw
        return dict(raw.get(SEARCH) or {}) if isinstance(raw, dict) else {}


def _option_problems(raw: Mapping[Any, Any], path: str) -> list[Problem]:
    """Return what is wrong with a search and its options."""
    options = raw[SEARCH]
    found = [
        Problem(f"{path}.{key}", f"nothing beside {SEARCH}", shown(key))
        for key in raw
        if key != SEARCH
    ]
    if options is None:
        return found
    if not isinstance(options, Mapping):
        wanted = f"an object with options: {', '.join(OPTIONS)}"
        return [*found, Problem(f"{path}.{SEARCH}", wanted, shown(options))]
    for key, value in options.items():
        place = f"{path}.{SEARCH}.{key}"
        if key not in OPTIONS:
            hint = nearest(str(key), OPTIONS)
            wanted = f"one of the options {', '.join(OPTIONS)}"
            found.append(Problem(place, wanted, shown(str(key)), hint))
        elif key == "preset" and not isinstance(value, str):
            found.append(Problem(place, "the name of a preset, or its file", shown(value)))
        elif key != "preset" and not isinstance(value, Mapping):
            found.append(Problem(place, "an object with fields of executions", shown(value)))
        elif key != "preset":
            hint = "batch and seq_size of a phase state them"
            wanted = f"fields but {' and '.join(OF_PHASES)}"
            own = [one for one in OF_PHASES if one in value]
            found += [Problem(f"{place}.{one}", wanted, one, hint) for one in own]
    return found
