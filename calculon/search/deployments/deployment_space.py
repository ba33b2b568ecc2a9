"""The deployments of a question, numbered: counts of processors, splits, types of numbers, schedulers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.search.deployments.deployment_words import (
    BUDGETS,
    CAPS,
    CHOICES,
    FIELDS,
    SIZES,
    STATIC,
    Values,
    stated_default,
)
from calculon.serving.asked import read_deployment
from calculon.serving.deployment import Deployment
from calculon.serving.load import SATURATED, Workload
from calculon.spec.model import Model
from calculon.units import Array, Count

SPLIT = SIZES[:4]
"""Fields of the count of processors and its split."""

ROWS = 2**17
"""Deployments that are looked at together: bounds the memory of a search."""


@dataclass(frozen=True)
class Group:
    """Deployments that have the same choices.

    Attributes
    ----------
    number : int
        Number of its first deployment.
    choices : mapping
        Values of the fields of :data:`~calculon.search.deployments.deployment_words.CHOICES`, as files state them.
    splits : int array, shape (fields of SPLIT, splits)
        Processors of all replicas, and how each replica is split.
    scheduling : int array, shape (2, pairs)
        Token budgets with the batches that they allow.
    """

    number: int
    choices: Mapping[str, Any]
    splits: Array
    scheduling: Array

    def __len__(self) -> int:
        return self.splits.shape[1] * self.scheduling.shape[1]

    def columns(self, rows: Array) -> dict[str, Count]:
        """Return the sizes of deployments, given by their places in the group; of each a column of `rows`."""
        split, pair = np.divmod(rows, self.scheduling.shape[1])
        values = (*self.splits[:, split], *self.scheduling[:, pair])
        return dict(zip(SIZES, values, strict=True))

    def deployment(self, row: int) -> Deployment:
        """Return a deployment as a record."""
        sizes = {name: int(one[0]) for name, one in self.columns(np.array([row])).items()}
        fields = {**self.choices, **sizes}
        return read_deployment({name: fields[name] for name in FIELDS if name in fields})

    def parts(self, order: Array, least: int = ROWS, most: int = ROWS) -> Iterator[Array]:
        """Yield the places of the deployments with splits in some order: `least` of them at first, then ever more."""
        pairs = self.scheduling.shape[1]
        first, size = 0, least
        while first < len(order):
            last = first + max(1, size // max(1, pairs))
            yield (order[first:last, None] * pairs + np.arange(pairs)).ravel()
            first, size = last, min(most, 2 * size)


@dataclass(frozen=True)
class DeploymentSpace:
    """All deployments of a model on some counts of processors.

    A deployment has a number: its place in loops over choices, counts, ``tensor_par``, ``pipeline_par``,
    ``expert_par``, ``token_budget`` and ``max_batch``, the last one fastest.

    Attributes
    ----------
    model, system, workload
        What is served, on what, and what is asked of it.
    counts : tuple of int
        Processors.
    fix, add : mapping
        Values by field: those alone that are tried, and those that are tried as well.
    front : bool
        Whether batches are tried that the load does not ask for: a load that is neither a rate nor users.
    """

    model: Model
    system: System
    workload: Workload
    counts: tuple[int, ...]
    fix: Mapping[str, Values]
    add: Mapping[str, Values]
    front: bool = False

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The deployments by their choices."""
        found, number = [], 0
        for values in product(*(self._values(name, (FIELDS[name].default,)) for name in CHOICES)):
            stated = zip(CHOICES, values, strict=True)
            choices = {name: value for name, value in stated if value != stated_default(name)}
            group = Group(number, choices, self._splits, self._scheduling(choices))
            found.append(group)
            number += len(group)
        return tuple(found)

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def place(self, number: int) -> tuple[Group, int]:
        """Return the group of a number, and the place of the deployment in it."""
        group = next(one for one in reversed(self.groups) if one.number <= number)
        return group, number - group.number

    def deployment(self, number: int) -> Deployment:
        """Return the deployment of a number."""
        group, row = self.place(number)
        return group.deployment(row)

    def _values(self, name: str, usual: Sequence[Any]) -> Values:
        """Return the values of a field that are tried, in order."""
        return self.fix.get(name) or tuple(
            dict.fromkeys((*_stated(name, usual), *self.add.get(name, ())))
        )

    def _sizes(self, name: str, usual: Sequence[int]) -> list[int]:
        return sorted(self._values(name, usual))

    @cached_property
    def _splits(self) -> Array:
        """The splits of all counts: whole replicas, heads and blocks that can be divided, experts in whole groups."""
        engines = self._engines
        counts = np.array(self.counts, np.int64)
        count, engine = np.nonzero(counts[:, None] % (engines[0] * engines[1]) == 0)
        return np.stack([counts[count], *engines[:, engine]])

    @property
    def _engines(self) -> Array:
        """The splits of a replica."""
        model, networks = self.model, self.system.networks
        all_groups = range(1, model.num_experts + 1) if model.mixes else (1,)
        names = ("tensor_par", "pipeline_par", "expert_par")
        usual = (range(1, networks[0].size + 1), range(1, model.num_blocks + 1), all_groups)
        sizes = map(self._sizes, names, usual)
        tensor, stages, groups = (one.ravel() for one in np.meshgrid(*sizes, indexing="ij"))
        experts = model.num_experts if model.mixes else 1
        fits = (model.attn_heads % tensor == 0) & (stages <= model.num_blocks)
        fits &= (tensor % groups == 0) & (experts % groups == 0)
        fits &= tensor * stages <= max(network.size for network in networks)
        return np.stack([tensor, stages, groups])[:, fits].astype(np.int64)

    def _scheduling(self, choices: Mapping[str, Any]) -> Array:
        """Return token budgets, and batches that each has room for."""
        budgets = self._sizes("token_budget", BUDGETS)
        if choices.get("batching") == STATIC:  # which has no mixed passes
            budgets = budgets[:1]
        free = self.front and self.workload.kind == SATURATED
        caps = self._sizes("max_batch", CAPS if free else CAPS[:1])
        pairs = [(budget, cap) for budget in budgets for cap in caps if not budget or cap <= budget]
        return np.array(pairs, np.int64).reshape(-1, 2).T


def _stated(name: str, usual: Sequence[Any]) -> Sequence[Any]:
    return (stated_default(name),) if name in CHOICES else usual
