"""Ring attention (context parallelism): balance of the work between ranks, and its steps."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction
from calculon.declarations.model import Model


class Ring(NamedTuple):
    """Steps of a rank's attention: to its own keys, then to the keys of one other rank after the other.

    Attributes:
        steps: Number of steps; 1 if a rank has whole sequences.
        first: Fraction of the work in the first step; all other steps have equal work.
        halves: True if a later step has half of the keys or half of the queries, and waits for the slower of both.
        masked: True if later steps are under a causal mask, as is the first one.
    """

    steps: Count
    first: Fraction
    halves: bool
    masked: bool

    @property
    def later(self) -> Fraction:
        """Fraction of the work in each later step."""
        several = self.steps > 1  # may be fractional, as a mean over blocks
        others = np.where(several, self.steps - 1, 1.0)
        return np.where(several, (1 - self.first) / others, 1.0)


MeanKeys = Callable[[Model, Array], Count]
"""Mean keys per query in sequences of given lengths."""


def imbalance(
    model: Model, length: Count, ranks: Count, balance: str, mean_keys: MeanKeys
) -> Fraction:
    """Return the attention work of the busiest rank over the mean.

    Without a causal mask the work is even. With one it is also even for a part from the front and its mirror image
    (*zigzag*), and up to less than `ranks` keys per query for stripes of one token (*striped*). With a sliding window
    the first queries see fewer keys, so ranks in the middle have the most work. For *contiguous* parts the last rank
    has ``(2 c - 1) / c`` times the mean.

    Source: Brandon et al., *Striped Attention*, arXiv 2311.09431, section 3; Transformer Engine,
    ``pytorch/attention/dot_product_attention/context_parallel.py``: two parts for each rank. For contiguous parts it
    follows from the sum of the keys of the last part.

    >>> from calculon.architecture.attention import mean_keys
    >>> model = Model(hidden=8, feedforward=8, seq_size=64, attn_heads=1, attn_size=8, num_blocks=2)
    >>> found = imbalance(model, np.array([65536.0]), np.array([8.0]), "contiguous", mean_keys)
    >>> float(found.round(3)[0]) == (2 * 8 - 1) / 8
    True
    """
    even = np.ones(np.broadcast(length, ranks).shape)
    slides = bool(model.sliding_window) and not model.chunked_window
    if not model.causal or balance == "striped" or (balance == "zigzag" and not slides):
        return even

    def seen(queries: Count) -> Count:
        """Return the number of keys that the first queries of a sequence see, in total."""
        return queries * mean_keys(model, np.where(queries > 0, queries, 1.0))

    part = length / ranks
    end = length if balance == "contiguous" else (length + part) / 2
    busiest = (seen(end) - seen(end - part)) / part
    return np.where(ranks > 1, np.maximum(busiest / mean_keys(model, length), 1.0), even)


def parts_sent(model: Model, length: Count, ranks: Count, balance: str, *, skips: bool) -> Count:
    """Return the number of parts that a rank receives in a ring: all, or only parts that its queries attend to.

    A window of `w` tokens reaches back into ``ceil((w - 1) / p)`` pieces of `p` tokens; a window that restarts every
    `w` tokens reaches into ``w / p - 1`` if one divides the other. Contiguous parts are pieces; zigzag parts are two
    pieces of half the size, each with its own reach. All striped parts are needed, and so are all parts in blocks with
    full attention; the result is a mean over blocks.
    """
    others = ranks - 1
    window = model.sliding_window
    if not skips or not window or balance == "striped":
        return others
    piece = length / ranks / (2 if balance == "zigzag" else 1)
    reach = np.ceil((window - 1) / piece) if model.causal else 2 * np.ceil(window / 2 / piece)
    if model.chunked_window:
        aligned = (np.mod(window, piece) == 0) | (np.mod(piece, window) == 0)
        reach = np.where(aligned, np.maximum(window / piece - 1, 0.0), reach)
    every = model.full_attention_every
    full = (model.num_blocks // every if every else 0) / model.num_blocks
    needed = full * others + (1 - full) * np.minimum(others, reach)
    return np.where(window < length, needed, others)


def ring_of(
    model: Model,
    length: Count,
    ranks: Count,
    balance: str,
    mean_keys: MeanKeys,
    *,
    skips: bool,
) -> Ring:
    """Return the steps of the busiest rank of a ring.

    The first step is for its own keys, under the mask. The rank processes half of the keys of each other rank: with
    *zigzag* the front half of the keys for all queries, or all keys for the back half of the queries, without a mask;
    with *striped* all of both, under the mask. With contiguous parts, the last rank processes all, without a mask.

    Source: Transformer Engine, ``context_parallel.py``, ``AttnFuncWithCPAndKVP2P``; Brandon et al., *Striped
    Attention*, arXiv 2311.09431, section 3.
    """
    steps = 1 + parts_sent(model, length, ranks, balance, skips=skips)
    even = not model.causal or balance == "striped"
    first = 1 / steps
    if not even:
        mean = mean_keys(model, length) * imbalance(model, length, ranks, balance, mean_keys)
        own = mean_keys(model, length / ranks)
        first = np.where(steps > 1, np.minimum(own / mean, 1.0), 1.0)
    return Ring(
        steps=steps,
        first=first,
        halves=model.causal and balance == "zigzag",
        masked=model.causal and balance == "striped",
    )
