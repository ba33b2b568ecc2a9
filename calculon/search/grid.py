"""Memory grid of some nodes: feasible executions, and the reasons why others are infeasible.

Every input has its own axis, and intermediate results carry only the axes that they depend on: memory does not depend
on networks, nor a block on offloading. So a tile of a hundred thousand executions costs a few small arrays.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from calculon.architecture.shape import sequence_lengths
from calculon.base.arrays import cached_property, is_cached
from calculon.base.record_arrays import gather
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
"""Loops over switches that have an axis each."""

GRID_AXES = ("optimizer_sharding", *OF_CELLS, "node")
"""Axes of a memory grid: loops, and the nodes."""

WITHIN = tuple(range(1, len(GRID_AXES) - 1))
"""Positions of the axes of switches."""

MAX_SMALL = 255
"""Largest count per node that fits one byte; NumPy adds bytes several times faster than wider integers."""

NETWORKS = tuple(reversed(PUBLISHED_NETWORKS))
"""Axes of the combinations of networks."""


FEW = 0.75
"""Share of nodes below which a copy of these nodes pays off."""


def along(values: Any, name: str, axes: tuple[str, ...] = GRID_AXES) -> Array:
    """Lay values along the named axis of a grid."""
    shape = [1] * len(axes)
    shape[axes.index(name)] = -1
    return np.asarray(values).reshape(shape)


G = TypeVar("G", bound="Grid")


class Grid:
    """Nodes with equal batch strategies, with all values that are tried with them."""

    sharding: Values
    overlap: Values
    networks: tuple[Values, ...]

    def __init__(self, nodes: Nodes, like: "Grid | None" = None):
        """Create the grid; with `like`, take the candidates of another grid of the same kind, without checks."""
        self.nodes, self.choice = nodes, nodes.choice
        self.space, self.tables = nodes.space, nodes.tables
        if like is not None:
            self.sharding, self.overlap, self.networks = like.sharding, like.overlap, like.networks
            return
        unit = nodes.units[0]
        parts = int(nodes.shared("context_par")[0])
        # With equal weights; all counts above 1 have the same candidates
        ranks = unit.data_par * parts
        self.sharding, held = self._sharding(ranks)
        some = np.broadcast_to(held.any(axis=(0, *WITHIN)), len(nodes))
        if not some.all():  # drop nodes without any execution
            self.nodes, held = nodes.take(some), held[..., some]
        self.enumerated = held
        self.overlap = self.space.replicated("data_par_overlap", ranks)
        degrees = {axis.network: getattr(unit, axis.degree) for axis in PUBLISHED_AXES}
        self.networks = tuple(self.space.networks(name, degrees[name]) for name in NETWORKS)

    @property
    def kind(self) -> tuple[object, ...]:
        """Key of grids that can be joined: strategies, and the candidates of loops over cells."""
        stated = () if self.choice.meshed else FURTHER_SIZES
        further = tuple(self.nodes.shared(name).item() for name in stated)
        return self.choice, self.sharding, self.overlap, self.networks, further

    @staticmethod
    def joined(parts: Sequence[tuple[G, Array]]) -> G:
        """Join some nodes of grids of one kind, and keep their feasibility and lower bounds if all have them."""
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
        """Return the candidates of ``optimizer_sharding`` that the data-parallel strategy allows, and a mask.

        A ZeRO stage implies its sharding, so half of the grid would be empty otherwise. The mask marks the executions
        of the space for these candidates.
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
        """Switches of offloading and overlap, each on its own axis."""
        return {name: along(self.space.switches[name], name) for name in OF_CELLS}

    @cached_property
    def columns(self) -> Columns:
        """Executions of the memory grid, each loop on its own axis; networks have one placeholder value."""
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
        """Statistics of the memory grid; times are for the first tensor network."""
        steps = np.expand_dims(self.step_rows, WITHIN)
        return self.batch(self.columns, self.nodes.block_rows[0], steps)

    def batch(self, columns: Columns, blocks: Array, steps: Array) -> Batch:
        """Return the statistics of executions on any axes, from rows of the block and optimizer tables."""
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
        """Reason why a combination of networks does not fit, or ''; axes (unit, data, pipeline, tensor).

        Groups of a mesh always fit, because their networks follow from the ranks that they span.
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
        """Mask of combinations of networks that fit: axes (unit, data, pipeline, tensor)."""
        return np.asarray(self.network_reasons == "")

    @cached_property
    def _multiplicity(self) -> Array:
        """Number of combinations of networks and overlap that fit, for each node."""
        fitting = self.allowed_networks.reshape(len(self.nodes.units), -1).sum(axis=1)
        return np.asarray(fitting[self.nodes.unit] * len(self.overlap))

    @cached_property
    def enumerated(self) -> Array:
        """Mask of the combinations that belong to the space, on axes that broadcast to the grid."""
        return enumerated(self.space, self.columns)

    @cached_property
    def violations(self) -> list[tuple[str, Array]]:
        """Counted rules except network rules, in the order of checking: the reason, and the mask of failing cells."""
        violations: list[tuple[str, Array]] = []
        for rule in self.space.rules.counted:
            failed = self._fails(rule)
            if failed.any():
                violations.append((rule.reason, failed))
            if failed.all():  # no cell is left to explain, and memory need not be computed
                return violations
        self.needed = self._needed([failed for _, failed in violations])
        usable_of = self.space.system.usable
        for reason, tier, usable in zip(MEMORY_REASONS, self.needed, usable_of, strict=True):
            failed = np.asarray(tier > usable)
            if failed.any():
                violations.append((reason, failed))
        return violations

    def _needed(self, failed: Sequence[Array]) -> tuple[Bytes, Bytes]:
        """Return the bytes that cells need of both tiers; 0 for nodes without a valid cell, if there are many."""
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
        """Return the cells that a rule rejects; check once per unit if the rule reads only fields of units."""
        columns, of_units = self.columns.columns, self.nodes.unit_columns
        own = (name for name in self.space.rules.read(rule) if name not in of_units)
        if any(np.shape(columns[name])[-1:] == (len(self.nodes),) for name in own):
            return np.asarray(~rule.holds(self._requests(columns)))
        failed = np.atleast_1d(~rule.holds(self._requests({**columns, **of_units})))
        return failed if failed.shape[-1] == 1 else failed[..., self.nodes.unit]

    @cached_property
    def fits(self) -> Array:
        """Mask of enumerated cells of the memory grid that can run, ignoring networks."""
        good = np.broadcast_to(self.enumerated, self.shape).copy()
        for _, failed in self.violations:
            good &= ~failed
        return good

    @property
    def feasible(self) -> bool:
        """True if any execution of the tile can run."""
        return bool((self.fits & (self._multiplicity > 0)).any())

    def reached(self, *, mbs_break: bool) -> Array:
        """Return the cells that the search visits; with `mbs_break`, none after the first failing microbatch size."""
        visited = np.broadcast_to(self.enumerated, self.shape)
        if not mbs_break:
            return visited
        failed = visited & ~(self.fits & (self._multiplicity > 0))
        # A node is visited if no node of its run of microbatch sizes failed before it.
        before: Array = np.cumsum(failed, axis=-1) - failed
        return np.asarray(visited & (before == before[..., self.nodes.starts]))

    def count(self, *, mbs_break: bool = False, splits: Splits | None = None) -> Counts:
        """Count executions and infeasibility reasons, and drop cells that the search does not visit.

        The executions of each split of the processors are added to `splits` if given.
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
        if mbs_break:  # cells after the first failure are not visited, although they may fit
            self.fits &= visited
        left = visited.copy() if self.violations else visited
        # An execution counts for the first rule that it breaks.
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
        """Add numbers of executions, given by unit, to the splits of the units."""
        of_units = np.bincount(units, numbers, len(self.nodes.units)).astype(np.int64).tolist()
        for unit, number in zip(self.nodes.units, of_units, strict=True):
            if number:
                split = unit.tensor_par, unit.pipeline_par
                splits.setdefault(split, Counter())[reason] += number

    def _nearest_miss(self, reason: str, cells: Array) -> float:
        """Return the smallest number of bytes by which a cell exceeds a tier."""
        place = MEMORY_REASONS.index(reason)
        # faster than a minimum under a mask
        least = np.where(cells, self.needed[place], np.inf).min()
        return float(least - self.space.system.usable[place])


def _by_node(cells: Array) -> Array:
    """Return the number of true cells of each node."""
    flat = cells.reshape(-1, cells.shape[-1])
    small = np.uint8 if len(flat) <= MAX_SMALL else np.int64  # SIMD adds many bytes at once
    return np.add.reduce(flat, axis=0, dtype=small).astype(np.int64)


def enumerated(space: Space, columns: Columns) -> Array:
    """Return a mask of the executions of a grid that belong to the space.

    The published enumeration has no offloading of activations with full recomputation, unless it is added. It tries
    microbatch sizes whose tokens divide over tensor parallelism; with several sequence lengths these are not the sizes
    of a unit. The caller already knows that the units have these variants
    (:meth:`~calculon.search.space.Space.fitting`).
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
