"""Packing fields of an execution, from the lengths of the documents that fill its sequences."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from calculon.base.display import Displayed
from calculon.base.errors import Problem, SpecError
from calculon.base.units import Array


class Packing(dict[str, int], Displayed):
    """Packing fields of an execution, by name."""

    __slots__ = ()


def packing(
    lengths: Sequence[int] | Array, seq_length: int, *, sequences: int = 1, ranks: int = 0
) -> Packing:
    """Return ``packed_percent`` and ``pack_imbalance_percent`` of documents packed into sequences.

    Documents are concatenated in order and cut at sequence ends; no token attends to another document, and tokens
    beyond the last full group of sequences are dropped. Source: Llama Team, *The Llama 3 Herd of Models*, arXiv
    2407.21783, section 3.2; Megatron-LM, ``GPTDataset`` with ``--reset-attention-mask``.

    Args:
        lengths (shape (documents,)): Tokens of the documents, at least 1 each.
        seq_length: Tokens of a sequence.
        sequences: Sequences that a rank processes between synchronizations with other ranks: the sequences of a
            microbatch in a pipeline, or if ranks communicate in every block; all sequences of a step if only gradients
            are exchanged.
        ranks: Number of groups of `sequences` that wait for each other: replicas, or microbatches in a pipeline; 0:
            all groups. The imbalance is the mean over these sets.

    Returns:
        A mapping with the two fields, in whole percents; ``packed_percent`` is at least 1.

    Raises:
        SpecError: For lengths that do not fill enough sequences, and for sizes below 1.

    Examples:
        >>> import calculon
        >>> calculon.packing([4096, 2048, 2048], seq_length=4096)
        {'packed_percent': 75, 'pack_imbalance_percent': 133}
    """
    counts = _whole_numbers(lengths, seq_length, sequences, ranks)
    work = _squares(counts, seq_length)
    groups = len(work) // sequences
    at_a_time = ranks or max(1, groups)
    times = groups // at_a_time
    if times == 0:
        wanted = f"at least {sequences * (ranks or 1) * seq_length} tokens, to fill all sequences that wait"
        raise SpecError("packing", Problem("lengths", wanted, f"{int(counts.sum())} tokens"))
    work = work[: times * at_a_time * sequences].reshape(times, at_a_time, sequences).sum(axis=-1)
    mean = work.mean()
    percent = max(1, round(100 * mean / (sequences * seq_length**2)))
    slowest = round(100 * work.max(axis=1).mean() / mean)
    return Packing(
        packed_percent=percent,
        pack_imbalance_percent=max(100, min(slowest, 100 * 100 // percent)),
    )


def packed_percent_of(document_mean: float, seq_length: int) -> int:
    """Return ``packed_percent`` from the mean document length, assuming exponentially distributed lengths.

    The ends of concatenated documents form a Poisson process, so two tokens at distance u in a sequence of s tokens
    belong to the same document with probability ``e^(-u/D)``. The sum of squared lengths of the pieces of a sequence
    has the mean ``2 ∫ (s - u) e^(-u/D) du`` from 0 to s, which is ``2 s D - 2 D² (1 - e^(-s/D))``. For documents much
    shorter than a sequence, ``2 D / s`` remains: D keys per token on average instead of s/2.

    Args:
        document_mean: Mean tokens of a document, D.
        seq_length: Tokens of a sequence, s.

    Examples:
        >>> packed_percent_of(1024, 131072), packed_percent_of(1e9, 8192)
        (2, 100)
    """
    share = document_mean / seq_length
    if share > _ONE_DOCUMENT:
        return 100
    percent = round(200 * share * (1 + share * math.expm1(-1 / share)))
    return max(1, percent)


_ONE_DOCUMENT = 1000.0
"""Mean document length in sequences above which packing is ignored: the error, 1/3000, is below the rounding."""


def _squares(counts: Array, seq_length: int) -> Array:
    """Return the sum of squared lengths of the pieces of documents in every full sequence."""
    ends = np.cumsum(counts)
    full = ends[-1] // seq_length
    cuts = np.arange(full + 1) * seq_length
    marks = np.union1d(ends[ends < cuts[-1]], cuts)
    first = np.searchsorted(marks, cuts[:-1])
    # Float squares: the square of a length near 2**31 would be close to the limit of int64, and a sum beyond it.
    result: Array = (
        np.add.reduceat(np.diff(marks).astype(float) ** 2, first) if full else np.zeros(0)
    )
    return result


def _whole_numbers(lengths: Any, seq_length: Any, sequences: Any, ranks: Any) -> Array:
    """Return the lengths as an array if they and the sizes are whole numbers in range; raise SpecError otherwise."""
    for name, value, least in (
        ("seq_length", seq_length, 1),
        ("sequences", sequences, 1),
        ("ranks", ranks, 0),
    ):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            wanted = f"a whole number of at least {least}"
            raise SpecError("packing", Problem(name, wanted, repr(value)))
    counts = np.asarray(lengths)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or not counts.size or counts.min() < 1:
        wanted = "a list of whole numbers of at least 1: the tokens of each document"
        raise SpecError("packing", Problem("lengths", wanted, _shown(counts)))
    return counts.astype(np.int64)


def _shown(counts: Array) -> str:
    if counts.ndim != 1:
        return f"an array of {counts.ndim} dimensions"
    if not counts.size:
        return "an empty list"
    if counts.dtype.kind not in "iu":
        return f"a list of {counts.dtype}"
    return f"a length of {counts.min()}"
