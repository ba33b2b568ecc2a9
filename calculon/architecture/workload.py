"""The workload of one pass over a microbatch: sequences, and of each its queries and keys.

Training passes over whole sequences, whose tokens are queries and keys alike.
"""

import numpy as np

from calculon.architecture.layer_sizes import Sizes
from calculon.frozen import dataclass
from calculon.spec.model import Model
from calculon.units import Array, Count


def sequence_lengths(model: Model, seq_length: Array) -> Count:
    """Return tokens per sequence for a column of the execution field ``seq_length``, where 0 is the model's own."""
    return np.where(seq_length > 0, seq_length, float(model.seq_size))


@dataclass(frozen=True, slots=True)
class Workload:
    """One pass over a microbatch; all of shape ``(blocks,)``.

    Attributes
    ----------
    sequences : array of float
        Sequences of the microbatch.
    queries : array of float
        Tokens of each that pass through the layers.
    keys : array of float
        Tokens of each that can be attended to.
    """

    sequences: Count
    queries: Count
    keys: Count

    @classmethod
    def of_whole_sequences(cls, model: Model, sizes: Sizes) -> "Workload":
        """Make the workload of passes over whole sequences."""
        length = sequence_lengths(model, sizes.seq_length)
        return cls(sequences=sizes.microbatch_size, queries=length, keys=length)

    @property
    def tokens(self) -> Count:
        """Tokens of the microbatch that pass through the layers."""
        return self.sequences * self.queries
