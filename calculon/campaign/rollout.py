"""What a step of reinforcement learning generates before it trains: the record of it."""

import json
from collections.abc import Mapping
from typing import ClassVar

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.campaign.goals import Length, TimeSpan
from calculon.campaign.stated_document import StatedDocument
from calculon.declarations.fields import declare, shown


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
