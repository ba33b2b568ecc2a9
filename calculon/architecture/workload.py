"""The workload of one pass over a microbatch: sequences, and of each its queries and keys.

Training passes over whole sequences, whose tokens are queries and keys alike. Of context-parallel ranks each has the
queries of a part of every sequence, and attends to the keys of all of it. Source: Liu et al., *Ring Attention*, arXiv
2310.01889, section 3; Jacobs et al., *DeepSpeed Ulysses*, arXiv 2309.14509, section 3.
"""

import numpy as np

from calculon.architecture.layer_sizes import Sizes
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.declarations.model import Model


def sequence_lengths(model: Model, seq_length: Array) -> Count:
    """Return tokens per sequence for a column of the execution field ``seq_length``, where 0 is the model's own."""
    return np.where(seq_length > 0, seq_length, float(model.seq_size))


def document_lengths(seq_length: Count, packed_percent: Array | int) -> Count:
    """Return tokens of the document that a token is in, on average over the tokens; one at least.

    Documents of ``l`` tokens that fill sequences of ``s`` have ``packed_percent = 100 sum(l^2) / (sum(l) s)``.
    Source: attention of packed sequences is work of ``sum(l^2)``: Megatron-LM, ``training.py``,
    ``num_floating_point_operations`` with lengths of sequences.
    """
    return np.maximum(1.0, seq_length * packed_percent / 100)


@dataclass(frozen=True, slots=True)
class Workload:
    """One pass over a microbatch; all of shape ``(blocks,)``.

    Attributes:
        sequences: Sequences of the microbatch.
        queries: Tokens of each that pass through the layers of a rank: its part, where context parallelism splits
            sequences.
        keys: Tokens of each that can be attended to.
    """

    sequences: Count
    queries: Count
    keys: Count

    @classmethod
    def of_whole_sequences(cls, model: Model, sizes: Sizes) -> "Workload":
        """Make the workload of passes over whole sequences."""
        length = sequence_lengths(model, sizes.seq_length)
        queries = length / sizes.context_par
        return cls(sequences=sizes.microbatch_size, queries=queries, keys=length)

    @property
    def tokens(self) -> Count:
        """Tokens of the microbatch that pass through the layers."""
        return self.sequences * self.queries
