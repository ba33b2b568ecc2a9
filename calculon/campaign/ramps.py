"""Ramps of batches and of sequences over the tokens of a run."""

from collections.abc import Mapping
from typing import Any, ClassVar

from calculon.campaign.goals import BatchGoal, Length, TokenGoal
from calculon.errors import Problem
from calculon.frozen import dataclass
from calculon.spec.decode import decode_part
from calculon.spec.fields import declare, shown
from calculon.spec.schema import part_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRung:
    """The batch from some tokens on."""

    start: TokenGoal = declare("tokens of the run before it", key="from")
    batch: BatchGoal = declare("global batch in sequences, or tokens (4M)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRung:
    """The length of sequences from some tokens on."""

    start: TokenGoal = declare("tokens of the run before it", key="from")
    seq_size: Length = declare("tokens of a sequence", unit="tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRamp:
    """A batch that grows by equal steps up to that of the execution, as by Megatron-LM's ``--rampup-batch-size``."""

    start: int = declare("batch at the start", unit="sequences", at_least=1)
    step: int = declare("by how much it grows at a time", unit="sequences", at_least=1)
    tokens: TokenGoal = declare("tokens after which it has grown")


@dataclass(frozen=True, slots=True)
class BatchRamp:
    """Smaller batches at the start of a run.

    Attributes
    ----------
    rungs : tuple of BatchRung
        Batches from some tokens on; empty of a linear ramp.
    linear : LinearRamp or None
        Equal steps up to the batch of the execution.
    """

    WANTED: ClassVar = "a list of {from, batch}, or an object with start, step and tokens"

    rungs: tuple[BatchRung, ...] = ()
    linear: LinearRamp | None = None

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "BatchRamp":
        """Decode a list of rungs, or an object with start, step and tokens."""
        if isinstance(raw, Mapping):
            return cls(linear=decode_part(LinearRamp, raw, path, problems))
        if not isinstance(raw, list) or not raw:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
            return cls()
        rungs = [decode_part(BatchRung, one, f"{path}[{i}]", problems) for i, one in enumerate(raw)]
        return cls(tuple(one for one in rungs if one is not None))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of both forms."""
        rungs = {"type": "array", "minItems": 1, "items": part_schema(BatchRung)}
        return {"anyOf": [rungs, part_schema(LinearRamp)]}

    def starts(self, final: int, seq_size: int, path: str) -> list[tuple[float, int]]:
        """Return tokens and the batch in sequences from there on.

        Parameters
        ----------
        final : int
            Batch of the execution, in sequences.
        seq_size : int
            Tokens of a sequence.
        path : str
            Field of the file, for messages.
        """
        if self.linear is None:
            return [(one.start.tokens, one.batch.sequences(seq_size, path)) for one in self.rungs]
        ramp = self.linear
        batches = [*range(ramp.start, final, ramp.step)]
        each = ramp.tokens.tokens / max(1, len(batches))
        return [*((i * each, one) for i, one in enumerate(batches)), (ramp.tokens.tokens, final)]
