"""Attention of ranks that have parts of the same sequences: how evenly they share it, and its steps in a ring."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from calculon.base.units import Array, Count, Fraction
from calculon.declarations.model import Model


class Ring(NamedTuple):
    """Attention of a rank in steps: to its own keys, then to those of one other rank after the other.

    Attributes:
        steps: Steps; 1 where a rank has whole sequences.
        first: Share of the work that the first step has; all others have the same.
        halves: A later step has either half of the keys, or half of the queries, and waits for the slower of both.
        masked: Later steps are under a causal mask, as the first one is.
    """

    steps: Count
    first: Fraction
    halves: bool
    masked: bool

    @property
    def later(self) -> Fraction:
        """Share of the work of each later step."""
        several = self.steps > 1  # not always whole: a mean over blocks
        others = np.where(several, self.steps - 1, 1.0)
        return np.where(several, (1 - self.first) / others, 1.0)


MeanKeys = Callable[[Model, Array], Count]
"""Mean keys that a query of sequences of some lengths attends to."""


def imbalance(
    model: Model, length: Count, ranks: Count, balance: str, mean_keys: MeanKeys
) -> Fraction:
    """Return the work of attention of the busiest of some ranks over that of the mean.

    Without a causal mask all have the same. So they have under it with a part from the front and its mirror image
    (*zigzag*), and but for less than `ranks` keys of a query with stripes of one token (*striped*). With a sliding
    window the first queries see fewer keys, and the ranks with the middle have most. Of *contiguous* parts the last
    one has ``(2 c - 1) / c`` times the mean.

    Source: Brandon et al., *Striped Attention*, arXiv 2311.09431, section 3; Transformer Engine,
    ``pytorch/attention/dot_product_attention/context_parallel.py``: two parts for each rank. For
    contiguous parts it follows from the sum of the keys of the last part.

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
        """Keys that the first queries of a sequence see, added up."""
        return queries * mean_keys(model, np.where(queries > 0, queries, 1.0))

    part = length / ranks
    end = length if balance == "contiguous" else (length + part) / 2
    busiest = (seen(end) - seen(end - part)) / part
    return np.where(ranks > 1, np.maximum(busiest / mean_keys(model, length), 1.0), even)


def parts_sent(model: Model, length: Count, ranks: Count, balance: str, *, skips: bool) -> Count:
    """Return how many parts of other ranks come to a rank in a ring: all, or those that some query of it attends to.

    A window of `w` tokens reaches back into ``ceil((w - 1) / p)`` pieces of `p` tokens, one that starts anew every `w`
    tokens into ``w / p - 1`` where one divides the other. Contiguous parts are pieces, zigzag ones two of half the
    size, each of which needs so many. Of striped parts all are needed, and in blocks with full attention of any; the
    mean is over blocks.
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

    First are its own keys, under the mask. Of those of each other rank it has half: with *zigzag* the front half of the
    keys for all queries, or all keys for the back half of the queries, without a mask; with *striped* all of both,
    under the mask. Of contiguous parts the last rank has all, without a mask.

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
