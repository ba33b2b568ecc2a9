"""Space of deployments of a question: processor counts, splits, data types and schedulers, numbered."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, Literal

import numpy as np

from calculon.base.errors import SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count
from calculon.declarations.model import Model
from calculon.hardware.system import System
from calculon.search.deployments.deployment_vocabulary import (
    BUDGETS,
    CAPS,
    CHOICES,
    FIELDS,
    POOL,
    SCHEDULING,
    SPLIT,
    STATIC,
    stated_default,
)
from calculon.search.deployments.pool_pairs import Splits, all_pairs, matched_pairs, pool_rates
from calculon.search.space import Values
from calculon.serving.caches.cache import copies_of_heads
from calculon.serving.default_deployment import default_types
from calculon.serving.passes.drafts import draft_of
from calculon.serving.records.deployment import OF_DRAFTS, Deployment
from calculon.serving.records.deployments import COUNT, Deployments
from calculon.serving.records.engine_presets import facts_of, find_engine
from calculon.serving.records.load import SATURATED, Workload
from calculon.serving.records.read_records import read_deployment
from calculon.serving.records.speculation import NO_DRAFT

Kind = Literal["together", "apart", "matched", "alone"]
"""Enumerated deployments: replicas that prefill and decode; all pairs of prefill and decode pools; pairs with equal
rates, of replicas that fill nodes; a single replica of each split that divides the largest count."""

OF_POOLS = frozenset({"apart", "matched"})
"""Kinds of disaggregated deployments."""

ROWS, ROWS_ALIKE = 2**16, 2**19
"""Deployments that are solved together, and the limit if many of them are equal: bounds the memory of a search."""


@dataclass(frozen=True)
class Group:
    """Deployments with equal choices.

    Attributes:
        number: Number of the first deployment.
        record: The choices.
        every: Splits of the deployments.
        scheduling (shape (fields of SCHEDULING, settings)): Token budgets, and batches that they allow.
    """

    number: int
    record: Deployment
    every: Splits
    scheduling: Array

    def __len__(self) -> int:
        return len(self.engines) * self.settings

    @property
    def splits(self) -> Array:
        """Processors of all replicas, and the split of each."""
        return self.every.own

    @property
    def engines(self) -> Array:
        """Index of the split of a replica in the distinct ones."""
        return self.every.engines

    @property
    def pools(self) -> Array | None:
        """Splits of the prefill pools, if there are any."""
        return self.every.pools

    @property
    def settings(self) -> int:
        """Number of scheduler settings for each split."""
        return self.scheduling.shape[1]

    def columns(self, places: Array) -> dict[str, Count]:
        """Return the sizes of deployments, given by their indices in the group."""
        split, setting = np.divmod(places, self.settings)
        values = (*self.splits[:, split], *self.scheduling[:, setting])
        return dict(zip((*SPLIT, *SCHEDULING), values, strict=True))

    def deployments(self, places: Array) -> Deployments:
        """Return deployments as columns."""
        prefill = None
        if self.pools is not None:
            prefill = dict(zip(SPLIT, self.pools[:, places // self.settings], strict=True))
        return Deployments.of(self.record, prefill, **self.columns(places))

    def parts(self, order: Array, least: int, most: int = ROWS) -> Iterator[Array]:
        """Yield deployments in a given order of splits: `least` of them at first, then parts that double in size."""
        first, size = 0, least
        while first < len(order):
            last = first + max(1, size // self.settings)
            yield (order[first:last, None] * self.settings + np.arange(self.settings)).ravel()
            first, size = last, min(most, 2 * size)

    def parts_alike(self) -> Iterator[Array]:
        """Yield all deployments by split of a replica, in parts with bounded numbers of kinds and deployments."""
        order = np.argsort(self.engines, kind="stable")
        kinds = np.cumsum(np.diff(self.engines[order], prepend=-1) != 0)
        part = np.maximum(
            kinds * self.settings // ROWS, np.arange(len(order)) * self.settings // ROWS_ALIKE
        )
        for splits in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            yield from self.parts(splits, len(splits) * self.settings, ROWS_ALIKE)


@dataclass(frozen=True)
class DeploymentSpace:
    """All deployments of a model on some processor counts.

    The number of a deployment is its position in loops over choices, prefill alone or mixed with decoding (chunked
    prefill), counts, splits, ``token_budget`` and ``max_batch``, the last one fastest.

    Attributes:
        model, system, workload: The served model, its system, and the workload.
        counts: Processor counts; empty for the fewest processors that are sufficient.
        fix, add: Values by field: the only ones to try, and additional ones.
        vary_batch: True to try batches that the load does not determine: a load that states neither a rate nor users.
        kinds: Deployments that are enumerated.
    """

    model: Model
    system: System
    workload: Workload
    counts: tuple[int, ...]
    fix: Mapping[str, Values]
    add: Mapping[str, Values]
    vary_batch: bool = False
    kinds: tuple[Kind, ...] = ("together",)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Deployments grouped by their choices.

        Raises:
            SpecError: If no combination of choices is valid.
        """
        found: list[Group] = []
        number = 0
        for record in self._records():
            for kind in self.kinds:
                of_pools = kind in OF_POOLS
                if of_pools and record.batching == STATIC:  # static batches cannot be disaggregated
                    continue
                own = _with_pool(record) if of_pools else record
                every = self._splits(kind, own)
                splits = every.take(self._drafted(record, every))
                for scheduling in self._scheduling(record, of_pools=of_pools):
                    if scheduling.shape[1] and len(splits.engines):
                        found.append(Group(number, own, splits, scheduling))
                        number += len(found[-1])
        return tuple(found)

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def place(self, number: int) -> tuple[Group, int]:
        """Return the group that contains a number, and the index of the deployment in it."""
        group = next(one for one in reversed(self.groups) if one.number <= number)
        return group, number - group.number

    def deployment(self, number: int) -> Deployment:
        """Return the deployment with a number."""
        group, place = self.place(number)
        return group.deployments(np.array([place])).one(0)

    def _records(self) -> Iterator[Deployment]:
        """Yield the choices as records, without contradictory ones; raise SpecError if no choice is valid."""
        # The engine of a record fills in the choices that nothing else determines.
        known = {*self.fix, *self.add, *default_types(self.model)}
        names = [name for name in CHOICES if name in known]
        values = [self.tried(name) for name in names]
        facts = facts_of(self.model, self.system)
        made: dict[Deployment, None] = {}
        wrong: SpecError | None = None
        for choice in product(*values):
            stated = dict(zip(names, choice, strict=True))
            if stated.get("draft", NO_DRAFT) == NO_DRAFT:
                stated = {name: one for name, one in stated.items() if name not in OF_DRAFTS}
            given = {name: one for name, one in stated.items() if one is not None}
            try:
                made[read_deployment({SPLIT[0]: 1, **given}, facts=facts)] = None
            except SpecError as error:
                wrong = wrong or error
        if not made and wrong is not None:
            raise wrong
        yield from made

    def tried(self, name: str) -> Values:
        """Return the values of a choice to try, in order."""
        return self._values(name, (self.default(name),))

    def default(self, name: str) -> Any:
        """Return the default of a choice; of types, as the model was released."""
        return default_types(self.model).get(name, stated_default(name))

    def _values(self, name: str, usual: Sequence[Any]) -> Values:
        """Return the values of a field to try, in order."""
        return self.fix.get(name) or tuple(dict.fromkeys((*usual, *self.add.get(name, ()))))

    def _sizes(self, name: str, usual: Sequence[int]) -> list[int]:
        return sorted(self._values(name, usual))

    @cached_property
    def asked(self) -> Mapping[str, Values]:
        """Fields with several requested values, except splits, with all values to try."""
        found = {name: self.tried(name) for name in (*self.fix, *self.add) if name not in SPLIT}
        return {name: values for name, values in found.items() if len(values) > 1}

    @cached_property
    def left_out(self) -> Mapping[str, Values]:
        """Requested values that no deployment can have, by field; True for separate prefill pools."""
        found = {name: self._never(name, one) for name, one in {**self.fix, **self.add}.items()}
        asked = not OF_POOLS.isdisjoint(self.kinds)
        if asked and all(group.pools is None for group in self.groups):
            found[POOL] = (True,)
        return {name: values for name, values in found.items() if values}

    def _never(self, name: str, values: Values) -> Values:
        """Return the values of a field that no deployment has; none if there are no deployments at all."""
        had: set[Any] = set()
        for group in self.groups:
            if name in SPLIT:
                every = (group.splits, *(() if group.pools is None else (group.pools,)))
                for splits in every:
                    had.update(np.unique(splits[SPLIT.index(name)]).tolist())
            elif name in SCHEDULING:
                had.update(group.scheduling[SCHEDULING.index(name)].tolist())
            else:
                had.add(group.record.to_dict().get(name, stated_default(name)))
        return tuple(value for value in values if had and value not in had)

    def _splits(self, kind: Kind, record: Deployment) -> Splits:
        """Return the splits of a kind; those of matched pools depend on the choices of a record."""
        engines = self._engines
        if kind == "apart":
            return self._apart
        if kind == "matched":
            procs, node = engines[0] * engines[1], self.system.networks[0].size
            fills = (node % procs == 0) | (procs % node == 0)
            usable = engines[:, fills & (procs < max(self.counts))]
            rates = pool_rates(self.model, self.system, self.workload, record, usable)
            return matched_pairs(usable, self.counts, rates)
        if kind == "alone":
            procs = engines[0] * engines[1]
            (tiles,) = np.nonzero(max(self.counts) % procs == 0)
            return Splits(np.stack([procs[tiles], *engines[:, tiles]]), tiles)
        return self._together

    @cached_property
    def _apart(self) -> Splits:
        """Splits of all counts into two pools of whole replicas."""
        return all_pairs(self._engines, self.counts)

    @cached_property
    def _together(self) -> Splits:
        """Splits of all counts into whole replicas."""
        engines = self._engines
        counts = np.array(self.counts, np.int64)
        count, engine = np.nonzero(counts[:, None] % (engines[0] * engines[1]) == 0)
        return Splits(np.stack([counts[count], *engines[:, engine]]), engine)

    def _drafted(self, record: Deployment, splits: Splits) -> Array:
        """Return a mask of splits that a draft model supports: its own heads and experts must divide, too."""
        sizes = dict(zip(SPLIT, splits.own, strict=True))
        draft = draft_of(self.model, record)
        if draft.model is None or draft.module:
            return np.ones(len(splits.engines), bool)
        ranks, own = sizes["tensor_par"] // sizes["attn_data_par"], draft.model
        experts = own.num_experts if own.mixes else 0
        fits = (own.attn_heads % ranks == 0) & (experts % sizes["expert_par"] == 0)
        return np.asarray(fits)

    @cached_property
    def _engines(self) -> Array:
        """Valid splits of a replica: heads and the width of experts divide over ranks, and experts over groups."""
        model, networks = self.model, self.system.networks
        node = networks[0].size
        usual_ranks = [*range(1, node + 1), *self._nodes]
        ranks = self._sizes("tensor_par", usual_ranks) if model.mixes else [1]
        groups = [one for one in range(1, max(ranks) + 1) if any(t % one == 0 for t in ranks)]
        pipelines = range(1, model.num_blocks + 1)
        usual: tuple[Sequence[int], ...] = usual_ranks, pipelines, groups, groups, (0,), (1,)
        sizes = map(self._sizes, SPLIT[1:], usual)
        columns = (one.ravel() for one in np.meshgrid(*sizes, indexing="ij"))
        tensor, stages, parts, experts, copies, shared = columns
        every = model.num_experts if model.mixes else 1
        fits = (tensor % parts == 0) & (tensor % experts == 0) & (stages <= model.num_blocks)
        fits &= model.attn_heads % np.maximum(tensor // parts, 1) == 0
        fits &= ((every + copies) % experts == 0) & (copies <= np.where(experts > 1, every, 0))
        # the ranks of a group split the width of each of its experts
        fits &= not model.mixes or model.inner_width % np.maximum(tensor // experts, 1) == 0
        fits &= (parts == 1) | model.mixes
        fits &= copies_of_heads(model, np.maximum(tensor // parts, 1)) % shared == 0
        fits &= tensor * stages <= max(network.size for network in networks)
        within = node % np.maximum(tensor // parts, 1) == 0
        # Beyond a node, attention groups stay within a node, unless the caller asks for other degrees.
        stated = (*self.fix.get("tensor_par", ()), *self.add.get("tensor_par", ()))
        fits &= (tensor <= node) | within | np.isin(tensor, stated)
        split = np.stack([tensor, stages, parts, experts, copies, shared])
        return split[:, fits].astype(np.int64)

    @cached_property
    def _nodes(self) -> list[int]:
        """Ranks of several whole nodes, for MoE models whose attention groups each stay within a node."""
        node = self.system.networks[0].size
        most = max(network.size for network in self.system.networks)
        if not self.model.mixes:
            return []
        divisors = {
            ranks
            for count in self.counts
            for ranks in range(2 * node, min(count, most) + 1, node)
            if count % ranks == 0
        }
        return sorted(divisors)

    @property
    def bounds(self) -> str:
        """Bounds of the splits that are tried, in words."""
        node = self.system.networks[0].size
        if "tensor_par" in self.fix:
            return f"tensor parallelism of {', '.join(map(str, sorted(self.fix['tensor_par'])))}"
        more = ", ".join(map(str, sorted(self.add.get("tensor_par", ()))))
        beside = f" or {more}" if more else ""
        if self.model.mixes:
            return (
                f"ranks that share attention within a node of {node:,}{beside}; experts over whole nodes that divide "
                "the processors"
            )
        return f"tensor parallelism within a node of {node:,}{beside}"

    def _scheduling(self, record: Deployment, *, of_pools: bool) -> Iterator[Array]:
        """Yield settings of the scheduler: first with prefill alone, then with mixed passes (chunked prefill).

        A decode pool has no prompts in its passes, so one token budget is enough.
        """
        one = (FIELDS["token_budget"].default,)
        engine = find_engine(record.engine)
        tries = (engine.tried("token_budget") if engine else None) or BUDGETS
        budgets = self._sizes("token_budget", one if of_pools else tries)
        if record.batching == STATIC:  # without mixed passes the budget has no effect
            budgets = budgets[:1]
        free = self.vary_batch and self.workload.kind == SATURATED
        caps = self._sizes("max_batch", CAPS if free else CAPS[:1])
        others = [self._sizes(name, (getattr(record, name),)) for name in SCHEDULING[2:]]
        rows = 1 + (record.draft_tokens or 0)
        settings = [
            (budget, cap, *more)
            for budget, cap, *more in product(budgets, caps, *others)
            # Each sequence takes a row, and one for each draft token
            if not budget or rows * cap <= budget
        ]
        for mixes in (False, True):
            chosen = [one for one in settings if (one[0] > 0) == mixes]
            yield np.array(chosen, np.int64).reshape(-1, len(SCHEDULING)).T


def _with_pool(record: Deployment) -> Deployment:
    """Return the choices of a deployment with a prefill pool; its sizes are placeholders."""
    return read_deployment(record, {COUNT: 2, POOL: {COUNT: 1}})
