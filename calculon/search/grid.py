"""The memory grid of some nodes: what is feasible, and why the rest is not.

Every input has its own axis, and intermediate results carry only the axes that they depend on: memory does not know of
networks, a block not of offloading. So a tile of a hundred thousand executions costs a few small arrays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.arrays import cached_property, is_cached
from calculon.base.records import gather
from calculon.base.units import Array, Bytes
from calculon.cost.batch import Batch
from calculon.declarations.axes import FURTHER_SIZES, PUBLISHED_AXES, PUBLISHED_NETWORKS
from calculon.declarations.statistics import OFFLOADS
from calculon.estimate.memory_limit import fits
from calculon.plan.columns import Columns
from calculon.plan.rules.all_rules import MEMORY_REASONS
from calculon.plan.rules.rule import Requests, Rule
from calculon.plan.schedule import Schedule
from calculon.search.candidates import OVERLAPS
from calculon.search.nodes import Nodes
from calculon.search.search_counts import FEASIBLE, Counts, Splits
from calculon.search.space import Space, Values

OF_CELLS = (*OFFLOADS, *OVERLAPS)
"""Loops over switches that each have an axis."""

GRID_AXES = ("optimizer_sharding", *OF_CELLS, "node")
"""Axes of a memory grid: loops, and the nodes."""

WITHIN = tuple(range(1, len(GRID_AXES) - 1))
"""Numbers of the axes of switches."""

MOST_SMALL = 255
"""Cells of a node that a count of one byte holds; sums of bytes are several times as fast as those of integers."""

NETWORKS = tuple(reversed(PUBLISHED_NETWORKS))
"""Axes of the combinations of networks."""


FEW = 0.75
"""Share of the nodes below which it is worth the copy to look at them alone."""


def along(values: Any, name: str, axes: tuple[str, ...] = GRID_AXES) -> Array:
    """Lay values along the named axis of a grid."""
    shape = [1] * len(axes)
    shape[axes.index(name)] = -1
    return np.asarray(values).reshape(shape)


G = TypeVar("G", bound="Grid")


class Grid:
    """Nodes that share the strategies of a batch, with all that is tried with them."""

    sharding: Values
    overlap: Values
    networks: tuple[Values, ...]

    def __init__(self, nodes: Nodes, like: "Grid | None" = None):
        """Lay the nodes out, of which each has an execution if they are `like` those of a grid of their kind."""
        self.nodes, self.choice = nodes, nodes.choice
        self.space, self.tables = nodes.space, nodes.tables
        if like is not None:
            self.sharding, self.overlap, self.networks = like.sharding, like.overlap, like.networks
            return
        unit = nodes.units[0]
        parts = int(nodes.shared("context_par")[0])
        ranks = unit.data_par * parts  # with the same weights; of several numbers above 1, one
        self.sharding, held = self._sharding(ranks)
        some = np.broadcast_to(held.any(axis=(0, *WITHIN)), len(nodes))
        if not some.all():  # nodes without an execution
            self.nodes, held = nodes.take(some), held[..., some]
        self.enumerated = held
        self.overlap = self.space.replicated("data_par_overlap", ranks)
        degrees = {axis.network: getattr(unit, axis.degree) for axis in PUBLISHED_AXES}
        self.networks = tuple(self.space.networks(name, degrees[name]) for name in NETWORKS)

    @property
    def kind(self) -> tuple[object, ...]:
        """What grids share that can be joined: strategies, and the candidates of loops over cells."""
        stated = () if self.choice.meshed else FURTHER_SIZES
        further = tuple(self.nodes.shared(name).item() for name in stated)
        return self.choice, self.sharding, self.overlap, self.networks, further

    @staticmethod
    def joined(parts: Sequence[tuple[G, Array]]) -> G:
        """Return some nodes of grids of one kind as one grid, with what is known of what fits and of the least time."""
        first = parts[0][0]
        nodes = Nodes.joined([one.nodes.take(some) for one, some in parts])
        grid = type(first)(nodes, like=first)
        for name in ("fits", "time_lower_bound"):
            if all(is_cached(one, name) for one, _ in parts):
                values = [getattr(one, name)[..., some] for one, some in parts]
                setattr(grid, name, np.concatenate(values, axis=-1))
        return grid

    # -- columns ----------------------------------------------------------------------------------

    def _sharding(self, ranks: int) -> tuple[Values, Array]:
        """Return the candidates of ``optimizer_sharding`` that go with the strategy of data parallelism.

        A stage of ZeRO decides it: half of the grid would hold nothing. With them goes what the space holds there.
        """
        candidates = self.space.replicated("optimizer_sharding", ranks)
        columns = {**self.nodes.columns, **self._switches}
        columns["optimizer_sharding"] = along(candidates, "optimizer_sharding")
        held = enumerated(self.space, Columns(columns))
        of_nodes = np.broadcast_shapes(columns["optimizer_sharding"].shape, (len(self.nodes),))
        held = np.broadcast_to(held, np.broadcast_shapes(held.shape, of_nodes))
        some = np.flatnonzero(held.any(axis=(*WITHIN, -1))).tolist()
        return tuple(candidates[place] for place in some), held[some]

    @property
    def _switches(self) -> dict[str, Array]:
        """What may be offloaded and overlapped, each on its own axis."""
        return {name: along(self.space.switches[name], name) for name in OF_CELLS}

    @cached_property
    def columns(self) -> Columns:
        """The executions of the memory grid, each loop on its own axis; networks are not known to it."""
        return Columns(
            {
                **self.nodes.columns,
                "optimizer_sharding": along(self.sharding, "optimizer_sharding"),
                **self._switches,
                "data_par_overlap": np.array(False),
                **dict.fromkeys(NETWORKS, np.array(0)),
            }
        )

    @cached_property
    def step_rows(self) -> Array:
        """Rows of the optimizer table: shape (sharding, nodes)."""
        return self.nodes.step_rows(np.array(self.sharding))

    @cached_property
    def memory(self) -> Batch:
        """The memory grid; its times are those of the first tensor network."""
        steps = np.expand_dims(self.step_rows, WITHIN)
        return self.batch(self.columns, self.nodes.block_rows[0], steps)

    def batch(self, columns: Columns, blocks: Array, steps: Array) -> Batch:
        """Return the statistics of executions on any axes, by rows of the block and the optimizer table."""
        space, tables = self.space, self.tables
        return Batch(
            space.model,
            gather(tables.block, blocks),
            gather(tables.optimizer, steps),
            Schedule(columns, self.choice, space.model, space.system),
            space.system,
            tables.edition,
            tables.embedding_head(blocks, steps),
            tables.kinds(blocks, steps),
            fits,
        )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the memory grid."""
        switches = (len(self.space.switches[name]) for name in OF_CELLS)
        return (len(self.sharding), *switches, len(self.nodes))

    # -- feasibility and counts -------------------------------------------------------------------

    @cached_property
    def network_reasons(self) -> Array:
        """Why a combination of networks does not fit: '' or a reason; axes (unit, data, pipeline, tensor).

        Groups of a mesh fit the networks that they span.
        """
        units, axes = self.nodes.units, ("unit", *NETWORKS)
        reasons = np.full((len(units), *map(len, self.networks)), "", dtype="U32")
        if self.choice.meshed:
            return reasons
        columns = {
            axis.degree: along([getattr(unit, axis.degree) for unit in units], "unit", axes)
            for axis in PUBLISHED_AXES
        }
        columns |= {n: along(v, n, axes) for n, v in zip(NETWORKS, self.networks, strict=True)}
        columns |= {name: self.nodes.shared(name) for name in FURTHER_SIZES}
        columns["mesh_order"] = self.nodes.shared("mesh_order")
        columns["edition"] = self.space.rules.constants["edition"]
        requests = self._requests(columns)
        for rule in self.space.rules.of_networks:
            reasons[(reasons == "") & ~rule.holds(requests)] = rule.reason
        return reasons

    def _requests(self, columns: Mapping[str, Array]) -> Requests:
        return Requests(self.space.model, self.space.system, Columns(columns))

    @cached_property
    def allowed_networks(self) -> Array:
        """Which combinations of networks fit: axes (unit, data, pipeline, tensor)."""
        return np.asarray(self.network_reasons == "")

    @cached_property
    def _multiplicity(self) -> Array:
        """Combinations of networks and overlap that fit, for each node."""
        fitting = self.allowed_networks.reshape(len(self.nodes.units), -1).sum(axis=1)
        return np.asarray(fitting[self.nodes.unit] * len(self.overlap))

    @cached_property
    def enumerated(self) -> Array:
        """Which combinations the space holds, on axes that broadcast to those of the grid."""
        return enumerated(self.space, self.columns)

    @cached_property
    def violations(self) -> list[tuple[str, Array]]:
        """Counted rules besides those on networks, in the order of checking: the reason, and which cells fail."""
        violations: list[tuple[str, Array]] = []
        for rule in self.space.rules.counted:
            failed = self._fails(rule)
            if failed.any():
                violations.append((rule.reason, failed))
            if failed.all():
                return violations
        self.needed = self._needed([failed for _, failed in violations])
        usable_of = self.space.system.usable
        for reason, tier, usable in zip(MEMORY_REASONS, self.needed, usable_of, strict=True):
            failed = np.asarray(tier > usable)
            if failed.any():
                violations.append((reason, failed))
        return violations

    def _needed(self, failed: Sequence[Array]) -> tuple[Bytes, Bytes]:
        """Return bytes that cells need of the two tiers; nothing of nodes of which all have failed, where many have."""
        left = np.ones(len(self.nodes), bool)
        for cells in failed:
            left &= ~np.atleast_1d(cells).all(axis=tuple(range(np.ndim(cells) - 1)))
        some = np.flatnonzero(left)
        few = 0 < len(some) < FEW * len(self.nodes)
        memory = (self.joined([(self, some)]) if few else self).memory.capacity
        tiers = memory.proc_mem_tier1_cap_req, memory.proc_mem_tier2_cap_req
        if not few:
            return tiers
        found = []
        for tier in tiers:
            every = np.zeros((*tier.shape[:-1], len(self.nodes)))
            every[..., some] = tier
            found.append(every)
        return found[0], found[1]

    def _fails(self, rule: Rule) -> Array:
        """Return which cells a rule rejects; one that reads nothing of a node but its unit is asked once a unit."""
        columns, of_units = self.columns.columns, self.nodes.unit_columns
        own = (name for name in self.space.rules.read(rule) if name not in of_units)
        if any(np.shape(columns[name])[-1:] == (len(self.nodes),) for name in own):
            return np.asarray(~rule.holds(self._requests(columns)))
        failed = np.atleast_1d(~rule.holds(self._requests({**columns, **of_units})))
        return failed if failed.shape[-1] == 1 else failed[..., self.nodes.unit]

    @cached_property
    def fits(self) -> Array:
        """Which enumerated cells of the memory grid can run, networks apart."""
        good = np.broadcast_to(self.enumerated, self.shape).copy()
        for _, failed in self.violations:
            good &= ~failed
        return good

    @property
    def feasible(self) -> bool:
        """Whether any execution of the tile can run."""
        return bool((self.fits & (self._multiplicity > 0)).any())

    def reached(self, *, mbs_break: bool) -> Array:
        """Which cells the search visits: with `mbs_break` none after the first microbatch size that fails."""
        visited = np.broadcast_to(self.enumerated, self.shape)
        if not mbs_break:
            return visited
        failed = visited & ~(self.fits & (self._multiplicity > 0))
        before: Array = np.cumsum(failed, axis=-1) - failed  # failures before each node
        return np.asarray(visited & (before == before[..., self.nodes.starts]))

    def count(self, *, mbs_break: bool = False, splits: Splits | None = None) -> Counts:
        """Count executions and the reasons of the infeasible ones, and drop what is not reached.

        Where `splits` are given, the executions of each are added to them.
        """
        visited = self.reached(mbs_break=mbs_break)
        cells = np.bincount(self.nodes.unit, _by_node(visited), len(self.nodes.units))
        cells = cells.astype(np.int64) * len(self.overlap)
        counts = Counts(total=int(cells.sum()) * self.network_reasons[0].size)
        unfit = self.network_reasons[~self.allowed_networks]
        if len(unfit):
            times = np.broadcast_to(cells[:, None, None, None], self.network_reasons.shape)
            places = np.nonzero(~self.allowed_networks)[0]
            lost = times[~self.allowed_networks]
            for reason, several in zip(unfit, lost, strict=True):
                if several:
                    counts.reasons[str(reason)] += int(several)
            if splits is not None:
                for reason in {*unfit.tolist()}:
                    self._share_out(splits, reason, places, lost * (unfit == reason))
        if mbs_break:
            self.fits &= visited
        left = visited.copy() if self.violations else visited
        for reason, failed in self.violations:
            here = left & failed
            each = _by_node(here) * self._multiplicity
            if number := int(each.sum()):
                counts.reasons[reason] += number
                if splits is not None:
                    self._share_out(splits, reason, self.nodes.unit, each)
                if reason in MEMORY_REASONS:
                    here &= self._multiplicity > 0
                    counts.nearest_miss[reason] = self._nearest_miss(reason, here)
            left &= ~failed
        each = _by_node(self.fits) * self._multiplicity
        counts.good = int(each.sum())
        if splits is not None:
            self._share_out(splits, FEASIBLE, self.nodes.unit, each)
        return counts

    def _share_out(self, splits: Splits, reason: str, units: Array, numbers: Array) -> None:
        """Add numbers of executions, each of a unit, to those of their splits."""
        of_units = np.bincount(units, numbers, len(self.nodes.units)).astype(np.int64).tolist()
        for unit, number in zip(self.nodes.units, of_units, strict=True):
            if number:
                split = unit.tensor_par, unit.pipeline_par
                splits.setdefault(split, Counter())[reason] += number

    def _nearest_miss(self, reason: str, cells: Array) -> float:
        """Return the fewest bytes by which cells do not fit a tier."""
        place = MEMORY_REASONS.index(reason)
        least = np.where(
            cells, self.needed[place], np.inf
        ).min()  # faster than a minimum under a mask
        return float(least - self.space.system.usable[place])


def _by_node(cells: Array) -> Array:
    """Count cells of each node."""
    flat = cells.reshape(-1, cells.shape[-1])
    small = np.uint8 if len(flat) <= MOST_SMALL else np.int64  # sums of bytes are many at once
    return np.add.reduce(flat, axis=0, dtype=small).astype(np.int64)


def enumerated(space: Space, columns: Columns) -> Array:
    """Return which executions of a grid the space holds.

    Published counting has no loop over offloaded activations with full recomputation, unless it is added. It tries the
    microbatch sizes whose tokens divide over tensor parallelism, which with several lengths are not those of a unit.
    That units have the variants of the executions is known (:meth:`~calculon.search.space.Space.fitting`).
    """
    held = np.array(True)
    if len(space.lengths) > 1:
        tokens = columns.microbatch_size * sequence_lengths(space.model, columns.seq_length)
        held = tokens % columns.tensor_par == 0
    if True not in space.add.get("activations_offload", ()):
        full = columns.is_choice("activation_recompute", "full")
        held = held & ~(columns.activations_offload & full)
    requests = Requests(space.model, space.system, columns)
    for rule in space.rules.of_nodes:
        held = held & rule.holds(requests)
        if not held.any():
            break
    return np.asarray(held)
