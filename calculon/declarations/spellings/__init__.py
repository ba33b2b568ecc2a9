"""What people write, as what is meant: names of the catalog, counts, tokens, batches, times and types of numbers.

Each function has one answer, or refuses with what the text might mean; none of them guesses between two meanings.
"""

from calculon.declarations.spellings.amounts import (
    GlobalBatch,
    dollars,
    duration,
    global_batch,
    probability,
    sequence_length,
    tokens,
)
from calculon.declarations.spellings.precisions import PRECISIONS, precision, precision_word
from calculon.declarations.spellings.processor_counts import is_counts, processor_counts

__all__ = [
    "PRECISIONS",
    "GlobalBatch",
    "dollars",
    "duration",
    "global_batch",
    "is_counts",
    "precision",
    "precision_word",
    "probability",
    "processor_counts",
    "sequence_length",
    "tokens",
]
