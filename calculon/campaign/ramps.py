"""Ramps of the batch size and of the sequence length over the tokens of a run."""

from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.campaign.goals import BatchGoal, Length, TokenGoal
from calculon.declarations.decode import decode_part
from calculon.declarations.fields import declare, shown
from calculon.declarations.schema import part_schema

MAX_BATCHES = 1000
"""Maximum number of batches in a linear ramp; published ramps have fewer than a hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """The batch from a number of tokens on."""

    start: TokenGoal = declare("tokens of the run before this batch", key="from")
    batch: BatchGoal = declare("global batch in sequences, or tokens (4M)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthStep:
    """The sequence length from a number of tokens on."""

    start: TokenGoal = declare("tokens of the run before this length", key="from")
    seq_size: Length = declare("sequence length", unit="tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRamp:
    """A batch that grows in equal steps to the batch of the execution, like Megatron-LM's ``--rampup-batch-size``."""

    start: int = declare("batch at the start", unit="sequences", at_least=1)
    step: int = declare("increment of the batch", unit="sequences", at_least=1)
    tokens: TokenGoal = declare("tokens after which the batch is complete")


@dataclass(frozen=True, slots=True)
class BatchRamp:
    """Smaller batches at the start of a run.

    Attributes:
        steps: Batches from a number of tokens on; empty for a linear ramp.
        linear: Equal steps up to the batch of the execution.
    """

    WANTED: ClassVar = "a list of {from, batch}, or an object with start, step and tokens"

    steps: tuple[BatchStep, ...] = ()
    linear: LinearRamp | None = None

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "BatchRamp":
        """Decode a list of batches, or an object with start, step and tokens."""
        if isinstance(raw, Mapping):
            return cls(linear=decode_part(LinearRamp, raw, path, problems))
        if not isinstance(raw, list) or not raw:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
            return cls()
        steps = [decode_part(BatchStep, one, f"{path}[{i}]", problems) for i, one in enumerate(raw)]
        return cls(tuple(one for one in steps if one is not None))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of both forms."""
        steps = {"type": "array", "minItems": 1, "items": part_schema(BatchStep)}
        return {"anyOf": [steps, part_schema(LinearRamp)]}

    def starts(
        self, final: int, parameters: float, path: str
    ) -> list[tuple[float, BatchGoal | int]]:
        """Return pairs of tokens and the batch from there on, as stated or in sequences.

        Args:
            final: Batch of the execution, in sequences.
            parameters: Parameters of the model, for tokens stated as a multiple of them.
            path: Field of the file, for messages.

        Raises:
            SpecError: For a linear ramp that begins above the batch of the execution, or has too many steps.
        """
        if self.linear is None:
            return [(one.start.of(parameters), one.batch) for one in self.steps]
        ramp = self.linear
        if ramp.start > final:
            wanted = f"at most {final:,}, the batch of the execution"
            raise SpecError("campaign", Problem(f"{path}.start", wanted, f"{ramp.start:,}"))
        batches = range(ramp.start, final, ramp.step)
        if len(batches) > MAX_BATCHES:
            least = -(-(final - ramp.start) // MAX_BATCHES)
            wanted = f"at least {least:,}, for {MAX_BATCHES:,} batches at most"
            raise SpecError("campaign", Problem(f"{path}.step", wanted, f"{ramp.step:,}"))
        # a ramp that begins at the final batch has no steps
        tokens = ramp.tokens.of(parameters) if batches else 0.0
        each = tokens / max(1, len(batches))
        return [*((float(round(i * each)), one) for i, one in enumerate(batches)), (tokens, final)]
