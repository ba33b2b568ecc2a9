"""Parse user spellings: catalog names, counts, tokens, batches, times and number types.

Each function has a single answer, or refuses an ambiguous text with a list of its possible meanings.
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
from calculon.declarations.spellings.precisions import (
    PRECISIONS,
    number_type,
    precision,
    precision_word,
    with_number_types,
)
from calculon.declarations.spellings.processor_counts import is_counts, processor_counts

__all__ = [
    "PRECISIONS",
    "GlobalBatch",
    "dollars",
    "duration",
    "global_batch",
    "is_counts",
    "number_type",
    "precision",
    "precision_word",
    "probability",
    "processor_counts",
    "sequence_length",
    "tokens",
    "with_number_types",
]
