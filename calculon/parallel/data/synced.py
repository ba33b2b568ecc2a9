"""What data parallelism synchronises: bytes of weights, and of the gradients that are reduced for them."""

from dataclasses import dataclass

import numpy as np

from calculon.records import apply, record
from calculon.units import Array, Bytes


@record
class Synced:
    """Bytes of weights, and of the gradients that are reduced for them."""

    weight: Bytes
    gradient: Bytes

    def where(self, mask: Array) -> "Synced":
        """Return the same where a mask holds, and nothing elsewhere."""
        return apply(lambda size: np.where(mask, size, 0.0), [self])


NOTHING = Synced(weight=np.zeros(1), gradient=np.zeros(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedEnds:
    """What the embedding (first stage), the head (last stage), and both on one stage have to synchronise."""

    first: Synced
    last: Synced
    both: Synced
    tied: bool

    def apart(self, piped: Array) -> tuple[Synced, Synced]:
        """Return embedding and head; a shared table on one stage is synchronised once, with the embedding."""
        if not self.tied:
            return self.first, self.last

        def first_or_both(first: Bytes, both: Bytes) -> Bytes:
            return np.where(piped, first, both)

        return apply(first_or_both, [self.first, self.both]), self.last.where(piped)
