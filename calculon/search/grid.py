"""The memory grid of a unit with some block structures: what is feasible, and why the rest is not.

Every input has its own axis, and intermediate results carry only the axes that they depend on: memory does not know of
networks, a block not of offloading. So a tile of a hundred thousand executions costs a few small arrays.
"""

from functools import cached_property

import numpy as np

from calculon.cost.batch import Batch
from calculon.plan.plan import Plan
from calculon.plan.replicas import shard_count
from calculon.plan.rules.check import MEMORY_REASONS
from calculon.plan.rules.data_rules import UNIT_RULES, shares_state
from calculon.plan.rules.network_rules import MESH_RULES, NETWORK_RULES
from calculon.plan.rules.pipeline_rules import STAGE_RULES
from calculon.plan.rules.rule import DEGREES, Question
from calculon.records import gather
from calculon.search.cost_tables import BATCH_FIELDS, SearchTables
from calculon.search.nodes import node_columns, unit_schedule
from calculon.search.select import Counts
from calculon.search.space import Space, Unit
from calculon.units import Array

OFFLOADS = ("weight_offload", "activations_offload", "optimizer_offload")


class Grid:
    """A unit with some block structures.

    The memory grid has the axes (interleaving, sharding, weight, activation and optimizer offload, node), where a node
    is a structure with a microbatch size.
    """

    def __init__(self, space: Space, tables: SearchTables, unit: Unit, structures: Array):
        self.space, self.tables, self.unit = space, tables, unit
        self.structures = structures
        data_par = unit.data_par
        self.sharding = space.replicated("optimizer_sharding", data_par)
        self.overlap = space.replicated("data_par_overlap", data_par)
        self.networks = tuple(
            space.networks(name, degree)
            for name, degree in (
                ("data_par_net", data_par),
                ("pipeline_par_net", unit.pipeline_par),
                ("tensor_par_net", unit.tensor_par),
            )
        )

    # -- axes -------------------------------------------------------------------------------------

    @cached_property
    def block_rows(self) -> Array:
        """Rows of the block table: shape (tensor networks, nodes)."""
        return self.tables.block_rows(self.unit, self.structures)

    @cached_property
    def step_rows(self) -> Array:
        """Rows of the optimizer table: shape (sharding, nodes)."""
        return self.tables.step_rows(self.unit, self.structures, self.shards)

    @cached_property
    def shards(self) -> Array:
        """Shards of the optimizer state for each candidate of sharding: shape (sharding, nodes or 1)."""
        on = np.array(self.sharding)[:, None]
        return shard_count(
            on, self.nodes.get("dp_shard", np.array([0])), np.array(self.unit.data_par)
        )

    @cached_property
    def nodes(self) -> dict[str, Array]:
        """What a node fixes."""
        return node_columns(self.tables, self.unit, self.structures)

    def axis(self, values: tuple[bool, ...] | tuple[int, ...], place: int) -> Array:
        """Lay candidates along one of six axes."""
        shape = [1] * 6
        shape[place] = len(values)
        return np.array(values).reshape(shape)

    @cached_property
    def memory(self) -> Batch:
        """The memory grid; its times are those of the first tensor network."""
        switches = self.space.switches
        schedule = unit_schedule(
            self.tables,
            self.unit,
            self.axis(self.unit.interleavings, 0).astype(float),
            self.shards[:, None, None, None, :].astype(float),
            tuple(self.axis(switches[name], 2 + i) for i, name in enumerate(OFFLOADS)),
            self.nodes,
        )
        steps = self.step_rows[:, None, None, None, :]
        return Batch(
            self.space.model,
            gather(self.tables.block, self.block_rows[0]),
            gather(self.tables.optimizer, steps),
            schedule,
            self.space.system,
            self.tables.edition,
            self.tables.ends(self.block_rows[0], steps),
        )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of the memory grid."""
        switches = self.space.switches
        return (
            len(self.unit.interleavings),
            len(self.sharding),
            *(len(switches[name]) for name in OFFLOADS),
            self.block_rows.shape[1],
        )

    # -- feasibility and counts -------------------------------------------------------------------

    @cached_property
    def network_reasons(self) -> Array:
        """Why a combination of networks does not fit: '' or a reason; axes (data, pipeline, tensor)."""
        unit = self.unit
        grids = np.meshgrid(*self.networks, indexing="ij")
        data, pipeline, tensor = (grid.ravel() for grid in grids)
        rows = np.ones(len(data), np.int64)
        plan = Plan(
            {
                "tensor_par": rows * unit.tensor_par,
                "pipeline_par": rows * unit.pipeline_par,
                "data_par": rows * unit.data_par,
                "tensor_par_net": tensor,
                "pipeline_par_net": pipeline,
                "data_par_net": data,
                "mesh_order": rows * int(self.space.meshed),
            }
        )
        question = Question(self.space.model, self.space.system, plan)
        reasons = np.full(len(data), "", dtype="U32")
        for rule in NETWORK_RULES:
            reasons[(reasons == "") & ~rule.holds(question)] = rule.reason
        return reasons.reshape(grids[0].shape)

    @cached_property
    def allowed_networks(self) -> Array:
        """Which combinations of networks fit."""
        return np.asarray(self.network_reasons == "")

    @cached_property
    def enumerated(self) -> Array:
        """Which combinations the space holds: axes (sharding or 1, 1, activation offload, 1, node)."""
        offload = np.array(self.space.switches["activations_offload"])[:, None, None]
        if True in self.space.add.get("activations_offload", ()):
            held = np.ones((len(offload), 1, self.shape[-1]), bool)
        else:
            held = np.asarray(~(offload & self.nodes["recompute_all"]))
        held = held[None, None]
        if not self.tables.plain:
            stages = [self.tables.structures[s].zero_stage for s in self.structures]
            fitting = [[on in shares_state(stage) for stage in stages] for on in self.sharding]
            fits = np.repeat(fitting, len(self.unit.microbatches), axis=1)
            held = held & fits[:, None, None, None, :]
        return np.asarray(held)

    @cached_property
    def verdicts(self) -> list[tuple[str, Array]]:
        """Rules besides networks in the order of checking: the reason, and which cells of the grid fail."""
        switches = self.space.switches
        verdicts = [] if self.tables.plain else self._unit_verdicts()
        if self.unit.blocks < 3:
            axes = [self.axis(switches[name], 2 + i) for i, name in enumerate(OFFLOADS)]
            verdicts.append(("offload_blocks", axes[0] | axes[1] | axes[2]))
        model = self.space.model
        if model.feeds_forward and model.feedforward % self.unit.tensor_par:
            verdicts.append(("feedforward_split", np.ones([1] * 6, bool)))
            return verdicts
        system = self.space.system
        needed = self.memory.capacity
        tiers = (needed.proc_mem_tier1_cap_req, needed.proc_mem_tier2_cap_req)
        for reason, tier, memory in zip(
            MEMORY_REASONS, tiers, (system.mem1, system.mem2), strict=True
        ):
            verdicts.append((reason, tier > memory.capacity))
        return verdicts

    def _unit_verdicts(self) -> list[tuple[str, Array]]:
        """Rules on forms of pipeline and data parallelism that depend on the unit, where they fail."""
        nodes, unit = self.nodes, self.unit
        free = {
            "pipeline_interleaving": self.axis(unit.interleavings, 0),
            "weight_offload": self.axis(self.space.switches["weight_offload"], 2),
            **{name: nodes[name] for name in BATCH_FIELDS},
        }
        shape = np.broadcast_shapes(*(values.shape for values in free.values()))
        columns = {name: np.broadcast_to(v, shape).ravel() for name, v in free.items()}
        rows = np.ones(len(columns["zero_stage"]), np.int64)
        sizes = np.broadcast_to(nodes["microbatch_size"], shape).ravel().astype(np.int64)
        columns |= {name: rows * getattr(unit, name) for name in (*DEGREES, "batch_size")}
        columns |= {"training": rows > 0, "microbatch_size": sizes}
        question = Question(self.space.model, self.space.system, Plan(columns))
        verdicts = []
        for rule in (*STAGE_RULES, *UNIT_RULES, *MESH_RULES):
            if not rule.concerns(question):
                continue
            failed = ~np.broadcast_to(rule.holds(question), rows.shape)
            if failed.any():
                verdicts.append((rule.reason, failed.reshape(shape)))
        return verdicts

    @cached_property
    def fits(self) -> Array:
        """Which enumerated cells of the memory grid can run, networks apart."""
        good = np.broadcast_to(self.enumerated, self.shape).copy()
        for _, failed in self.verdicts:
            good &= ~failed
        return good

    @property
    def feasible(self) -> bool:
        """Whether any execution of the tile can run."""
        return bool(self.allowed_networks.any() and self.fits.any())

    def reached(self, *, mbs_break: bool) -> Array:
        """Which cells the search visits: with `mbs_break` none after the first microbatch size that fails."""
        visited = np.broadcast_to(self.enumerated, self.shape)
        if not mbs_break:
            return visited
        sizes = len(self.unit.microbatches)
        by_size = (*self.shape[:-1], len(self.structures), sizes)
        good = (self.fits & self.allowed_networks.any()).reshape(by_size)
        before = np.ones(by_size, bool)
        before[..., 1:] = np.logical_and.accumulate(good, axis=-1)[..., :-1]
        return np.asarray(visited & before.reshape(self.shape))

    def count(self, *, mbs_break: bool = False) -> Counts:
        """Count executions and the reasons of the infeasible ones, and drop what is not reached."""
        visited = self.reached(mbs_break=mbs_break)
        cells = int(np.count_nonzero(visited)) * len(self.overlap)
        counts = Counts(total=cells * self.network_reasons.size)
        for reason in self.network_reasons[~self.allowed_networks]:
            counts.reasons[str(reason)] += cells
        ways = len(self.overlap) * int(np.count_nonzero(self.allowed_networks))
        if not ways:
            return counts
        if mbs_break:
            self.fits &= visited
        left = visited.copy() if self.verdicts else visited
        for reason, failed in self.verdicts:
            here = left & failed
            if number := int(np.count_nonzero(here)):
                counts.reasons[reason] += number * ways
                if reason in MEMORY_REASONS:
                    counts.nearest_miss[reason] = self._nearest_miss(reason, here)
                left &= ~failed
        counts.good = int(np.count_nonzero(self.fits)) * ways
        return counts

    def _nearest_miss(self, reason: str, cells: Array) -> float:
        """Return the fewest bytes by which cells do not fit a tier."""
        needed, system = self.memory.capacity, self.space.system
        first = reason == MEMORY_REASONS[0]
        tier = needed.proc_mem_tier1_cap_req if first else needed.proc_mem_tier2_cap_req
        capacity = (system.mem1 if first else system.mem2).capacity
        whole = np.broadcast_to(tier, self.shape)
        return float(np.min(whole, where=cells, initial=np.inf) - capacity)
