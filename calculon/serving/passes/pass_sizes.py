"""Sizes of passes, as columns: one pass and a hundred million are timed by the same formulas."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count

SPREAD = ("decoded", "prompts", "logits")
"""Columns that groups of ranks, or parts of a batch, have shares of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSizes:
    """Passes of a replica; all of shape ``(passes,)``, the last axis *deployment and batch*.

    Each has a token at least, and a row of logits.

    Attributes:
        tensor_par: Ranks of a stage.
        expert_par, copies: Groups of these ranks that have different experts, and experts that are there once more.
        attn_data_par: Groups of these ranks that have different sequences; all else is of all of them together.
        context_par: Ranks of such a group that have parts of the tokens of the same cache.
        decoded: Sequences of which the pass makes a token.
        verified: Rows of each of these: its last token, and of speculation the tokens that were drafted after it.
        context: Cached tokens that the first of these rows sees, itself included; every further one sees one more.
        prompts: Prompts of which the pass takes a chunk.
        chunk, cached: Tokens of such a chunk, and those of its prompt before it.
        logits: Rows of which logits are computed.
    """

    tensor_par: Count
    expert_par: Count
    copies: Count
    attn_data_par: Count
    context_par: Count
    decoded: Count
    verified: Count
    context: Count
    prompts: Count
    chunk: Count
    cached: Count
    logits: Count

    @classmethod
    def of(
        cls,
        *,
        tensor_par: Any,
        expert_par: Any = 1,
        copies: Any = 0,
        attn_data_par: Any = 1,
        context_par: Any = 1,
        decoded: Any = 0,
        verified: Any = 1,
        context: Any = 0,
        prompts: Any = 0,
        chunk: Any = 0,
        cached: Any = 0,
        logits: Any = None,
    ) -> "PassSizes":
        """Make columns of numbers and arrays that broadcast.

        Logits are by default of every row of a sequence, and of one of a prompt.
        """
        rows = np.asarray(decoded) * np.asarray(verified)
        last = rows + np.asarray(prompts) if logits is None else logits
        split = (tensor_par, expert_par, copies, attn_data_par, context_par)
        given = (*split, decoded, verified, context, prompts, chunk, cached, last)
        made = (np.atleast_1d(np.asarray(one, float)) for one in given)
        columns = np.broadcast_arrays(*made)
        names = cls.__dataclass_fields__
        return cls(**dict(zip(names, columns, strict=True)))

    @property
    def columns(self) -> tuple[Count, ...]:
        """The columns, in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def key(self) -> bytes:
        """What tells them from all others."""
        return b" ".join(column.tobytes() for column in self.columns)

    def take(self, places: Array) -> "PassSizes":
        """Return some of the passes."""
        taken = (one[places] for one in self.columns)
        return PassSizes(**dict(zip(self.__dataclass_fields__, taken, strict=True)))

    @property
    def tokens(self) -> Count:
        """Rows of the pass that go through the products."""
        return self.decoded * self.verified + self.prompts * self.chunk

    @property
    def of_group(self) -> "PassSizes":
        """The passes of one of the groups of ranks that have different sequences: the one with the most.

        Sequences are spread evenly, and one that is there is whole in its group.
        """
        if not np.any(self.attn_data_par > 1):
            return self
        groups = self.attn_data_par
        split = {"tensor_par": self.tensor_par / groups, "attn_data_par": np.ones_like(groups)}
        own = {name: spread(getattr(self, name), groups) for name in SPREAD}
        return replace(self, **split, **own)

    @property
    def filled(self) -> Array:
        """Rows of all groups over those if each had as many as the one with the most: below 1 where some have none."""
        all_full = self.attn_data_par * self.of_group.tokens
        return np.divide(self.tokens, all_full, out=np.ones_like(all_full), where=all_full > 0)

    def parts(self, count: Count | float) -> "PassSizes":
        """Return passes of equal parts of the sequences, so many of each pass."""
        if np.all(count == 1):
            return self
        return replace(self, **{name: getattr(self, name) / count for name in SPREAD})

    @property
    def count(self) -> int:
        """How many passes these are."""
        return self.tokens.shape[0]


def spread(sequences: Count, groups: Count) -> Count:
    """Return the sequences of the group with the most: an even share, or one that is there."""
    return np.maximum(sequences / groups, np.minimum(sequences, 1.0))


def seen_keys(cached: Count, chunk: Count, window: int, *, chunked: bool = False) -> Array:
    """Return the keys that the tokens of a chunk attend to, summed over them, after `cached` tokens.

    Token `j` of a chunk attends to the ``cached + j`` tokens up to itself, of a window `w` (0: none) to the last `w` of
    them, of chunks that restart every `w` tokens to those of its own. Source: sums of
    :func:`~calculon.architecture.attention.mean_keys` over a part of a sequence.

    >>> seen_keys(np.array([0.0, 2.0]), np.array([4.0, 2.0]), 3).tolist()
    [9.0, 6.0]
    """
    if not window:
        return chunk * cached + chunk * (chunk + 1) / 2
    if chunked:
        return _of_chunks(cached + chunk, window) - _of_chunks(cached, window)
    rising = np.clip(window - cached, 0, chunk)
    return rising * cached + rising * (rising + 1) / 2 + (chunk - rising) * window


def _of_chunks(length: Count, window: int) -> Array:
    """Return the keys that a sequence attends to whose attention restarts every `window` tokens."""
    rest = np.mod(length, window)
    return (length - rest) / window * (window * (window + 1) / 2) + rest * (rest + 1) / 2
