"""Sizes of passes as columns, so that one pass and a hundred million are timed by the same formulas."""

from dataclasses import replace
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count

SPREAD = ("decoded", "prompts", "logits")
"""Columns that are divided among groups of ranks, or among parts of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSizes:
    """Passes of a replica; all of shape ``(passes,)``, the last axis *deployment and batch*.

    Each pass has at least one token and one row of logits.

    Attributes:
        tensor_par: Ranks of a stage.
        expert_par, copies: Groups of these ranks with different experts, and redundant copies of experts.
        attn_data_par: Groups of these ranks with different sequences; all other sizes cover all groups together.
        context_par: Ranks of such a group that split the tokens of the same KV cache.
        decoded: Sequences for which the pass generates tokens.
        verified: Rows per such sequence: its last token, and with speculative decoding the tokens drafted after it.
        context: Cached tokens that the first of these rows attends to, including itself; each further row has one more.
        prompts: Prompts of which the pass takes a chunk.
        chunk, cached: Tokens of such a chunk, and tokens of its prompt before the chunk.
        logits: Rows for which logits are computed.
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
        """Return columns from numbers and arrays that broadcast.

        By default, logits are computed for every row of a sequence and for one row of a prompt.
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
        """The columns, in order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    @property
    def key(self) -> bytes:
        """Bytes that identify these passes."""
        return b" ".join(column.tobytes() for column in self.columns)

    def take(self, places: Array) -> "PassSizes":
        """Return some of the passes."""
        taken = (one[places] for one in self.columns)
        return PassSizes(**dict(zip(self.__dataclass_fields__, taken, strict=True)))

    @property
    def tokens(self) -> Count:
        """Rows of the pass that go through the matrix products."""
        return self.decoded * self.verified + self.prompts * self.chunk

    @property
    def of_group(self) -> "PassSizes":
        """Passes of the busiest of the groups of ranks with different sequences.

        Sequences are spread evenly, and a sequence is never split between groups.
        """
        if not np.any(self.attn_data_par > 1):
            return self
        groups = self.attn_data_par
        split = {"tensor_par": self.tensor_par / groups, "attn_data_par": np.ones_like(groups)}
        shares = {name: spread(getattr(self, name), groups) for name in SPREAD}
        return replace(self, **split, **shares)

    @property
    def filled(self) -> Array:
        """Rows of all groups over the rows if all were as busy as the busiest: below 1 if some groups are idle."""
        # the busiest group has at least one sequence, so fewer sequences than groups leave some groups idle
        all_full = self.attn_data_par * self.of_group.tokens
        return np.divide(self.tokens, all_full, out=np.ones_like(all_full), where=all_full > 0)

    def parts(self, count: Count | float) -> "PassSizes":
        """Return passes that each have an equal part of the sequences, `count` parts per pass."""
        if np.all(count == 1):
            return self
        return replace(self, **{name: getattr(self, name) / count for name in SPREAD})

    @property
    def count(self) -> int:
        """Number of passes."""
        return self.tokens.shape[0]


def spread(sequences: Count, groups: Count) -> Count:
    """Return the sequences of the busiest group: an even share, but at least one if there is any."""
    return np.maximum(sequences / groups, np.minimum(sequences, 1.0))


def seen_keys(cached: Count, chunk: Count, window: int, *, chunked: bool = False) -> Array:
    """Return the sum over the tokens of a chunk of the keys that each attends to, after `cached` tokens.

    Token `j` of a chunk attends to the ``cached + j`` tokens up to itself; with a sliding window `w` (0: none) to the
    last `w` of them; with chunks that restart every `w` tokens to the tokens of its own chunk. Source: sums of
    :func:`~calculon.architecture.attention.mean_keys` over a part of a sequence.

    >>> seen_keys(np.array([0.0, 2.0]), np.array([4.0, 2.0]), 3).tolist()
    [9.0, 6.0]
    """
    if not window:
        return chunk * cached + chunk * (chunk + 1) / 2
    if chunked:
        return _of_chunks(cached + chunk, window) - _of_chunks(cached, window)
    # tokens whose window still reaches the start see one key more each; all later ones see a full window
    rising = np.clip(window - cached, 0, chunk)
    return rising * cached + rising * (rising + 1) / 2 + (chunk - rising) * window


def _of_chunks(length: Count, window: int) -> Array:
    """Return the keys that a whole sequence attends to if attention restarts every `window` tokens."""
    rest = np.mod(length, window)
    return (length - rest) / window * (window * (window + 1) / 2) + rest * (rest + 1) / 2
