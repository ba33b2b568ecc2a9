"""The sequences whose keys and values fit into the memory of a rank, beside all else."""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Bytes, Count
from calculon.serving.caches.prefixes import NO_TIER
from calculon.serving.caches.rank_memory import RankMemory, cached_bytes, logit_bytes
from calculon.serving.passes.replica import Replica
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.load import Workload

LONGEST_CONTEXT = 2.0**40
"""Tokens up to which the longest sequence is looked for: more than any memory holds."""


def admitted_tokens(deployment: Deployment, workload: Workload, drafted: int = 0) -> float:
    """Return the tokens of a request that must find room in the cache before it starts.

    Tokens that prefixes share are cached once, and not counted with each request. Of outputs of different lengths those
    at hand are longer than the average, but where all of a batch start together. Drafted tokens are cached until they
    are verified (vLLM, ``num_lookahead_tokens``).
    """
    together = deployment.batching == "static"
    output = workload.output if together else workload.output_at_hand
    shares = {"reserve": output, "mean": output / 2}
    fetched = deployment.cache_offload != NO_TIER
    return workload.alone(fetched=fetched) + shares[deployment.admission] + drafted


@dataclass(frozen=True)
class SequenceRoom:
    """The room of a rank for sequences of a workload; columns of shape ``(deployments,)``.

    Attributes:
        replica, memory: The replicas, and the memory of a rank of each.
    """

    replica: Replica
    memory: RankMemory

    @property
    def fitting(self) -> Count:
        """The most sequences of a replica whose caches fit: 0 where not even one does."""
        d = self.replica.deployments
        drafted = self.replica.draft.speculation.tokens
        admitted = admitted_tokens(d.record, self.replica.workload, drafted)
        each = cached_bytes(self.replica, admitted) + self._logits
        return np.floor(np.maximum(0.0, self.memory.room - self.shared) / each) * d.attn_data_par

    @property
    def shared(self) -> Bytes | float:
        """Bytes that a rank caches once for all requests at hand."""
        shared = self.replica.workload.shared(fetched=self._fetched)
        return cached_bytes(self.replica, shared) if shared else 0.0

    @property
    def held(self) -> Bytes:
        """Bytes that it caches for a sequence at hand beside these, in the middle of its output."""
        w = self.replica.workload
        return cached_bytes(self.replica, w.alone(fetched=self._fetched) + w.output_at_hand / 2)

    @property
    def _fetched(self) -> bool:
        return self.replica.deployments.record.cache_offload != NO_TIER

    @property
    def logits(self) -> Bytes:
        """Bytes of the logits of a sequence."""
        d = self.replica.deployments
        return self.replica.rows * logit_bytes(self.replica.model, d.attention_par)

    @property
    def _logits(self) -> Bytes:
        """What they take of the room for caches: they are beside it."""
        return self.replica.deployments.record.memory_fraction * self.logits

    def of_prefixes(self, at_hand: Count) -> Bytes:
        """Return the bytes that so many sequences of a group of ranks leave for other cached prefixes."""
        taken = at_hand * (self.held + self._logits)
        return np.maximum(0.0, self.memory.room - self.shared - taken)

    @property
    def longest(self) -> Count:
        """Tokens of the longest sequence that fits alone, by bisection: windows stop to grow."""
        low = np.zeros_like(self.memory.room)
        high = np.full_like(self.memory.room, LONGEST_CONTEXT)
        for _ in range(42):
            middle = np.floor((low + high) / 2)
            fits = cached_bytes(self.replica, middle) + self._logits <= self.memory.room
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low
