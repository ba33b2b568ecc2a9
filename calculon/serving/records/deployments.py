"""Deployments as columns: one and a million are solved by the same formulas."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.plan.choices import distinct
from calculon.serving.passes.pass_sizes import spread
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.pool import Pool

SIZES = tuple(one.name for one in fields(Deployment) if one.type is int)
"""Fields that are columns: whole numbers that each deployment has. All others are choices, the same for all rows."""

COUNT = "num_procs"
"""That of how many replicas there are."""

POOL_SIZES = tuple(one.name for one in fields(Pool))
"""Those of a pool that prefills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployments:
    """Deployments with the same choices; columns of shape ``(deployments,)``.

    Attributes:
        record: The choices: types of numbers, scheduler, price. Its sizes do not count.
        num_procs, tensor_par, pipeline_par, attn_data_par, context_par: The fields of these names.
        expert_par, redundant_experts, max_batch, token_budget, kv_block: Likewise.
        prefilling: The pools that only prefill, where there are any: row by row.
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
    prefilling: "Deployments | None" = None

    @classmethod
    def of(
        cls, record: Deployment, prefill: Mapping[str, Any] | None = None, **sizes: Any
    ) -> "Deployments":
        """Make columns of a record and of sizes that count instead of its own, which broadcast.

        Args:
            record: Its choices, and sizes where no others are stated.
            prefill: Sizes of its pool that prefills.
            **sizes: Of its own.

        Raises:
            ValueError: Where some have a budget of tokens and others have none: these are different schedulers.
        """
        given = {name: sizes.pop(name, getattr(record, name)) for name in SIZES}
        assert not sizes, f"no sizes of deployments: {sorted(sizes)}"
        arrays = (np.atleast_1d(np.asarray(one, float)) for one in given.values())
        columns: dict[str, Any] = dict(zip(SIZES, np.broadcast_arrays(*arrays), strict=True))
        budgets = columns["token_budget"]
        together = record.batching == "continuous" and record.prefill is None
        if together and np.any((budgets > 0) != (budgets[:1] > 0)):
            raise ValueError("deployments with and without a budget of tokens in one table")
        if len(budgets):
            record = replace(record, token_budget=int(budgets[0]), max_batch=0)
        pool = record.prefilling
        if pool is not None:
            shape = {"kv_block": columns["kv_block"]}
            columns["prefilling"] = cls.of(pool, **shape, **(prefill or {}))
        return cls(record=record, **columns)

    @classmethod
    def of_records(cls, records: Sequence[Deployment]) -> "Deployments":
        """Make columns of records with the same choices."""
        sizes = {name: [getattr(one, name) for one in records] for name in SIZES}
        pools = [one.prefill for one in records if one.prefill is not None]
        prefill = {name: [getattr(one, name) for one in pools] for name in POOL_SIZES}
        return cls.of(records[0], prefill if pools else None, **sizes)

    def take(self, places: Any) -> "Deployments":
        """Return the deployments at some places, in that order."""
        columns: dict[str, Any] = {name: getattr(self, name)[places] for name in SIZES}
        if self.prefilling is not None:
            columns["prefilling"] = self.prefilling.take(places)
        return Deployments(record=self.record, **columns)

    def alike(self, *, counted: bool = False) -> tuple[Array, Array]:
        """Return the places of the first of each kind of replica, and the kind of each deployment.

        Replicas differ in all sizes but how many there are, unless these are `counted`, and the most sequences that
        each may have. Pools that prefill make no difference to those that decode.
        """
        beside = ("max_batch",) if counted else (COUNT, "max_batch")
        own = [getattr(self, name) for name in SIZES if name not in beside]
        _, kinds, firsts = distinct(own)
        return firsts, kinds

    def without_draft(self) -> "Deployments":
        """Return the same without speculation."""
        pool = None if self.prefilling is None else self.prefilling.without_draft()
        return replace(self, record=self.record.without_draft(), prefilling=pool)

    def one(self, place: int) -> Deployment:
        """Return the record of a row."""
        sizes: dict[str, Any] = {name: int(getattr(self, name)[place]) for name in SIZES}
        if (pool := self.prefilling) is not None:
            own = {name: int(getattr(pool, name)[place]) for name in POOL_SIZES}
            sizes["prefill"] = Pool(**own)
        return replace(self.record, **sizes)

    @property
    def count(self) -> int:
        """How many these are."""
        return self.num_procs.shape[0]

    @property
    def attention_par(self) -> Count:
        """Ranks that share attention, and everything but routed experts."""
        return self.tensor_par / self.attn_data_par

    def of_group(self, sequences: Count) -> Count:
        """Return the most sequences of a group of ranks that has sequences of its own, of those of a replica."""
        return spread(sequences, self.attn_data_par)

    @property
    def replica_procs(self) -> Count:
        """Processors of a replica."""
        return self.tensor_par * self.pipeline_par

    @property
    def replicas(self) -> Count:
        """Independent engines of each, that decode."""
        others = 0.0 if self.prefilling is None else self.prefilling.num_procs
        return (self.num_procs - others) / self.replica_procs

    @property
    def mixes(self) -> bool:
        """Whether passes decode and take chunks of prompts at once."""
        return self.record.mixes

    @property
    def staged(self) -> bool:
        """Whether some have several stages."""
        return bool(np.any(self.pipeline_par > 1))


def grouped(records: Iterable[Deployment]) -> list[tuple[Deployments, list[int]]]:
    """Return deployments in groups of equal choices, each with the places of its members."""
    groups: dict[Deployment, list[int]] = {}
    known = list(records)
    for place, one in enumerate(known):
        plain: dict[str, Any] = dict.fromkeys(SIZES, 1)
        plain |= {"redundant_experts": 0, "max_batch": 0, "token_budget": int(one.mixes)}
        if one.prefill is not None:
            plain |= {"num_procs": 2, "prefill": Pool(num_procs=1)}
        groups.setdefault(replace(one, **plain), []).append(place)
    return [
        (Deployments.of_records([known[place] for place in places]), places)
        for places in groups.values()
    ]
