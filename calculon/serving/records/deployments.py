"""Deployments as columns, so that one and a million are solved by the same formulas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from calculon.base.distinct_rows import distinct
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.serving.passes.pass_sizes import spread
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.pool import Pool

SIZES = tuple(one.name for one in fields(Deployment) if one.type is int)
"""Fields that are columns: the integers of each deployment. All other fields are choices, equal in all rows."""

COUNT = "num_procs"
"""The size that sets the number of replicas."""

POOL_SIZES = tuple(one.name for one in fields(Pool))
"""Sizes of a pool that only prefills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployments:
    """Deployments with the same choices; columns of shape ``(deployments,)``.

    Attributes:
        record: The choices: data types, scheduler, price. Its sizes are ignored.
        num_procs, tensor_par, pipeline_par, attn_data_par, context_par: Fields of the same names.
        expert_par, redundant_experts, max_batch, token_budget, kv_block: Likewise.
        prefill_deployments: Pools that only prefill, row by row; None without them.
    """

    record: Deployment
    num_procs: Count
    tensor_par: Count
    pipeline_par: Count
    attn_data_par: Count
    expert_par: Count
    redundant_experts: Count
    context_par: Count
    max_batch: Count
    token_budget: Count
    kv_block: Count
    prefill_deployments: "Deployments | None" = None

    @classmethod
    def of(
        cls, record: Deployment, prefill: Mapping[str, Any] | None = None, **sizes: Any
    ) -> "Deployments":
        """Return columns from a record and from sizes that override it and broadcast.

        Args:
            record: Its choices, and sizes that are not overridden.
            prefill: Sizes of its prefill pool.
            **sizes: Sizes of the deployment.

        Raises:
            ValueError: If some deployments have a token budget and others have none: these are different schedulers.
        """
        given = {name: sizes.pop(name, getattr(record, name)) for name in SIZES}
        assert not sizes, f"no sizes of deployments: {sorted(sizes)}"
        arrays = (np.atleast_1d(np.asarray(one, float)) for one in given.values())
        columns: dict[str, Any] = dict(zip(SIZES, np.broadcast_arrays(*arrays), strict=True))
        budgets = columns["token_budget"]
        together = record.batching == "continuous" and record.prefill is None
        if together and np.any((budgets > 0) != (budgets[:1] > 0)):
            raise ValueError("deployments with and without a budget of tokens in one table")
        # neutral sizes, so that equal choices compare equal; the token budget also selects the scheduler (`mixes`)
        if len(budgets):
            record = replace(record, token_budget=int(budgets[0]), max_batch=0)
        pool = record.prefill_deployment
        if pool is not None:
            shape = {"kv_block": columns["kv_block"]}
            columns["prefill_deployments"] = cls.of(pool, **shape, **(prefill or {}))
        return cls(record=record, **columns)

    @classmethod
    def of_records(cls, records: Sequence[Deployment]) -> "Deployments":
        """Return columns from records with the same choices."""
        sizes = {name: [getattr(one, name) for one in records] for name in SIZES}
        pools = [one.prefill for one in records if one.prefill is not None]
        prefill = {name: [getattr(one, name) for one in pools] for name in POOL_SIZES}
        return cls.of(records[0], prefill if pools else None, **sizes)

    def take(self, places: Any) -> "Deployments":
        """Return the deployments at some indices, in that order."""
        columns: dict[str, Any] = {name: getattr(self, name)[places] for name in SIZES}
        if self.prefill_deployments is not None:
            columns["prefill_deployments"] = self.prefill_deployments.take(places)
        return Deployments(record=self.record, **columns)

    def distinct_replicas(self, *, counted: bool = False) -> tuple[Array, Array]:
        """Return the indices of distinct replicas, and for each deployment the number of its replica among them.

        Replicas are equal if all their sizes are equal except `max_batch` and, unless `counted`, the number of
        processors. Prefill pools are ignored, because they do not affect the replicas that decode.
        """
        ignored = ("max_batch",) if counted else (COUNT, "max_batch")
        sizes = [getattr(self, name) for name in SIZES if name not in ignored]
        _, numbers, firsts = distinct(sizes)
        return firsts, numbers

    def without_draft(self) -> "Deployments":
        """Return the deployments without speculative decoding."""
        pool = (
            None if self.prefill_deployments is None else self.prefill_deployments.without_draft()
        )
        return replace(self, record=self.record.without_draft(), prefill_deployments=pool)

    def one(self, place: int) -> Deployment:
        """Return the record of a row."""
        sizes: dict[str, Any] = {name: int(getattr(self, name)[place]) for name in SIZES}
        if (pool := self.prefill_deployments) is not None:
            pool_sizes = {name: int(getattr(pool, name)[place]) for name in POOL_SIZES}
            sizes["prefill"] = Pool(**pool_sizes)
        return replace(self.record, **sizes)

    @property
    def count(self) -> int:
        """Number of deployments."""
        return self.num_procs.shape[0]

    @property
    def attention_par(self) -> Count:
        """Ranks that share attention and everything else except routed experts."""
        return self.tensor_par / self.attn_data_par

    def of_group(self, sequences: Count) -> Count:
        """Return the sequences of the busiest group of ranks, for the sequences of a replica."""
        return spread(sequences, self.attn_data_par)

    @property
    def replica_procs(self) -> Count:
        """Processors of a replica."""
        return self.tensor_par * self.pipeline_par

    @property
    def replicas(self) -> Count:
        """Independent engines of each deployment that decode."""
        others = 0.0 if self.prefill_deployments is None else self.prefill_deployments.num_procs
        return (self.num_procs - others) / self.replica_procs

    @property
    def mixes(self) -> bool:
        """True if passes decode and take chunks of prompts at once (chunked prefill)."""
        return self.record.mixes

    @property
    def staged(self) -> bool:
        """True if some deployments have several pipeline stages."""
        return bool(np.any(self.pipeline_par > 1))


def grouped(records: Iterable[Deployment]) -> list[tuple[Deployments, list[int]]]:
    """Return deployments in groups of equal choices, each with the indices of its members."""
    groups: dict[Deployment, list[int]] = {}
    known = list(records)
    for place, one in enumerate(known):
        # a valid record with neutral sizes is the key of a group; it keeps the scheduler that the budget selects
        plain: dict[str, Any] = dict.fromkeys(SIZES, 1)
        plain |= {"redundant_experts": 0, "max_batch": 0, "token_budget": int(one.mixes)}
        if one.prefill is not None:
            plain |= {"num_procs": 2, "prefill": Pool(num_procs=1)}
        groups.setdefault(replace(one, **plain), []).append(place)
    return [
        (Deployments.of_records([known[place] for place in places]), places)
        for places in groups.values()
    ]
