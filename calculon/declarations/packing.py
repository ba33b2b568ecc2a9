"""Fields of an execution from the lengths of the documents that fill its sequences."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from calculon.base.display import Displayed
from calculon.base.errors import Problem, SpecError
from calculon.base.units import Array


class Packing(dict[str, int], Displayed):
    """The fields of an execution that say how its sequences are packed, by name."""

    __slots__ = ()


def packing(
    lengths: Sequence[int] | Array, seq_length: int, *, sequences: int = 1, ranks: int = 0
) -> Packing:
    """Return ``packed_percent`` and ``pack_imbalance_percent`` of documents that are laid into sequences.

    Documents are laid end to end in their order, and cut where a sequence ends; no token sees another document, and
    tokens beyond the last full group of sequences are left out. Source: Llama Team, *The Llama 3 Herd of Models*, arXiv
    2407.21783, section 3.2; Megatron-LM, ``GPTDataset`` with ``--reset-attention-mask``.

    Args:
        lengths (shape (documents,)): Tokens of the documents, 1 at least.
        seq_length: Tokens of a sequence.
        sequences: Sequences that a rank passes before it waits for others: those of a microbatch in a pipeline, or
            beside ranks that exchange something in every block; all of a step of a replica whose gradients alone are
            exchanged.
        ranks: Groups of so many sequences that wait for each other at a time: replicas, or microbatches in a pipeline;
            0: all that there are. The imbalance is the mean over times.

    Returns:
        A mapping with the two fields, in whole percents, of which the first is 1 at least.

    Raises:
        SpecError: For lengths that do not fill as many sequences, and for sizes below 1.

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
        wanted = f"at least {sequences * (ranks or 1) * seq_length} tokens, which fill all sequences that wait"
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
    """Return ``packed_percent`` of documents of which only the mean is known, with exponential lengths.

    Laid end to end, they end at the points of a Poisson process, so that two tokens u apart in a sequence of s tokens
    are of the same document with probability ``e^(-u/D)``. The squares of the pieces that a sequence is cut into
    have the mean ``2 ∫ (s - u) e^(-u/D) du`` from 0 to s, which is ``2 s D - 2 D² (1 - e^(-s/D))``. Documents much
    shorter than a sequence have ``2 D / s``: D keys for a token on average instead of s/2.

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
"""Mean documents, in sequences, of which a sequence has one: the rest is 1/3000, and less than rounding leaves."""


def _squares(counts: Array, seq_length: int) -> Array:
    """Return the sum of squared lengths of documents, as they are cut, in every full sequence."""
    ends = np.cumsum(counts)
    full = ends[-1] // seq_length
    cuts = np.arange(full + 1) * seq_length
    marks = np.union1d(ends[ends < cuts[-1]], cuts)
    first = np.searchsorted(marks, cuts[:-1])
    found: Array = (
        np.add.reduceat(np.diff(marks).astype(float) ** 2, first) if full else np.zeros(0)
    )
    return found


def _whole_numbers(lengths: Any, seq_length: Any, sequences: Any, ranks: Any) -> Array:
    """Return lengths as an array, when they and the sizes are whole numbers of the right size."""
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
