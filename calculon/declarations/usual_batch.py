"""Batch and sequence length of a training step: stated values, or defaults."""

from calculon.declarations.spellings import global_batch, sequence_length

TOKENS_PER_BATCH = 4 * 2**20
"""Tokens of the default batch on 64 to 4,096 processors: Llama 3 8B and 70B, arXiv:2407.21783, section 3.4.1."""

MAX_PER_PROCESSOR = 2**16
"""Most tokens of the default batch per processor: 512 Ki on 8 processors, as llm.c trains GPT-2 124M on 8 A100
(github.com/karpathy/llm.c, discussion 481), so that a step on few processors takes seconds."""

TOKENS_PER_PROCESSOR = 2**10
"""Fewest tokens of the default batch per processor: 16 Mi on 16,384, as Llama 3.1 405B (arXiv:2407.21783)."""

LONGEST_UNASKED = 8192
"""Largest default sequence length in tokens, even if the model supports longer sequences."""


def usual_batch(procs: int, length: int) -> int:
    """Return the default global batch in sequences, a multiple that replicas on `procs` processors can share.

    >>> [usual_batch(procs, 8192) for procs in (1, 8, 64, 1024, 16384)]
    [8, 64, 512, 512, 2048]
    """
    few = min(TOKENS_PER_BATCH, MAX_PER_PROCESSOR * procs)
    wanted = max(few, TOKENS_PER_PROCESSOR * procs) / length
    unit = _divisible(procs, wanted)
    return max(1, round(wanted / unit)) * unit


def requested_length(seq: int | str | None, longest: int) -> int:
    """Return the sequence length in tokens: as stated, else the length of the model up to :data:`LONGEST_UNASKED`.

    >>> requested_length(None, 131072), requested_length("4k", 131072)
    (8192, 4096)
    """
    return min(longest, LONGEST_UNASKED) if seq is None else sequence_length(str(seq))


def requested_batch(batch: int | str | None, procs: int, length: int) -> int:
    """Return the batch in sequences: as stated in sequences or tokens, or the default.

    >>> requested_batch("4M", 64, 8192), requested_batch(None, 1024, 8192)
    (512, 512)
    """
    return (
        usual_batch(procs, length) if batch is None else global_batch(str(batch), length).sequences
    )


def odd_part(count: int) -> int:
    """Return a count without its factors of two.

    >>> odd_part(15_360), odd_part(1024)
    (15, 1)
    """
    return count // (count & -count)


def _divisible(procs: int, sequences: float) -> int:
    """Return a number that a batch of about `sequences` should be a multiple of, so that replicas can share it.

    It is the odd part of the processor count, doubled while it is at most an eighth of the batch.

    >>> _divisible(1024, 512), _divisible(96, 512), _divisible(1000, 512)
    (64, 48, 125)
    """
    unit = odd_part(procs)
    if unit > sequences:
        return 1  # no batch of this size serves all replicas equally
    while 16 * unit <= sequences:
        unit *= 2
    return unit


def sequences_in_words(count: int) -> str:
    """Format a number of sequences.

    >>> sequences_in_words(1), sequences_in_words(1024)
    ('1 sequence', '1,024 sequences')
    """
    return f"{count:,} sequence{'' if count == 1 else 's'}"
