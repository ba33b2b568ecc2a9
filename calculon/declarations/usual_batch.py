"""Batch and sequence of a training step where nobody states them."""

TOKENS_PER_BATCH = 4 * 2**20
"""Tokens of a batch that is not stated: Llama 3 8B and 70B, arXiv:2407.21783, section 3.4.1."""

TOKENS_PER_PROCESSOR = 2**10
"""Fewest tokens of a batch for each processor, where it is not stated: 16 Mi on 16,384, as Llama 3.1 405B (there)."""

LONGEST_UNASKED = 8192
"""Tokens of a sequence that is not stated, where the model could have more."""


def usual_batch(procs: int, length: int) -> int:
    """Return the sequences of a batch that is not stated, which replicas on so many processors can share.

    >>> usual_batch(1024, 8192), usual_batch(16384, 8192)
    (512, 2048)
    """
    wanted = max(TOKENS_PER_BATCH, TOKENS_PER_PROCESSOR * procs) / length
    unit = _divisible(procs, wanted)
    return max(1, round(wanted / unit)) * unit


def odd_part(count: int) -> int:
    """Return a count without its factors of two.

    >>> odd_part(15_360), odd_part(1024)
    (15, 1)
    """
    return count // (count & -count)


def _divisible(procs: int, sequences: float) -> int:
    """Return what a batch of about so many sequences should be a multiple of, for replicas to share it.

    It is the odd part of the processor count, doubled while that is at most an eighth of the batch.

    >>> _divisible(1024, 512), _divisible(96, 512), _divisible(1000, 512)
    (64, 48, 125)
    """
    unit = odd_part(procs)
    if unit > sequences:
        return 1
    while 16 * unit <= sequences:
        unit *= 2
    return unit
