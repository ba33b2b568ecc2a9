"""The nodes of a grid, a block structure with a microbatch size each, and the schedule of a unit with some of them."""

from types import SimpleNamespace

import numpy as np

from calculon.plan.mesh import data_stride, networks_of
from calculon.plan.replicas import Replicas
from calculon.plan.rules.rule import DEGREES
from calculon.plan.schedule import Schedule, blocks_of, chunk_blocks_of
from calculon.plan.stage_layout import Stages
from calculon.search.cost_tables import SearchTables
from calculon.search.space import Unit
from calculon.units import MIB, Array


def node_columns(tables: SearchTables, unit: Unit, structures: Array) -> dict[str, Array]:
    """Return what nodes fix: microbatches per pipeline and their size, and choices of the batch level."""
    micro = np.array(unit.microbatches, float)
    local = unit.batch_size // unit.data_par
    choices = [tables.structures[s] for s in structures]
    fixed = {name: values[structures] for name, values in tables.columns.items()}
    fixed |= {
        "recompute_all": np.array([c.recompute_all for c in choices]),
        "accumulates": np.array([c.grad_dtype != "auto" for c in choices]),
        "multiquery": np.array([c.multiquery for c in choices]),
    }
    return {
        "microbatches": np.tile(np.floor(local / micro), len(choices)),
        "microbatch_size": np.tile(micro, len(choices)),
        **{name: np.repeat(values, len(micro)) for name, values in fixed.items()},
    }


def unit_schedule(
    tables: SearchTables,
    unit: Unit,
    chunks: Array,
    shards: Array,
    offloads: tuple[Array, ...],
    nodes: dict[str, Array],
    overlap: Array | bool = False,
    networks: tuple[Array, ...] | None = None,
) -> Schedule:
    """Make the schedule of executions of a unit on any axes.

    `offloads` are those of weights, activations and optimizer, `networks` those of data, pipeline and tensor
    parallelism; `nodes` is what :func:`node_columns` returns, for some nodes.
    """
    data, pipeline, tensor = networks or (np.array(0),) * 3
    stride, algorithm, reserved = np.array(0.0), np.array(0), np.array(0.0)
    replicas = stages = None
    model, pipeline_par = tables.space.model, np.array(float(unit.pipeline_par))
    if not tables.plain:
        degrees = {name: np.array(float(getattr(unit, name))) for name in DEGREES}
        stated = {f"{name}_net": np.array(0) for name in DEGREES}
        columns = SimpleNamespace(**degrees, **stated, **nodes)
        replicas = Replicas.of(columns, columns.data_par)
        stages = Stages.of(columns, pipeline_par, nodes["recompute_all"], model)
        stride, algorithm = data_stride(columns), columns.coll_algo
        reserved = columns.mem_reserved_mib * MIB
        if tables.space.meshed:
            tensor, pipeline, data = networks_of(columns, tables.space.system)
    blocks = blocks_of(stages, np.array(float(unit.blocks)))
    return Schedule(
        batch_size=np.array(float(unit.batch_size)),
        tensor_par=np.array(float(unit.tensor_par)),
        microbatch_size=nodes["microbatch_size"],
        microbatches=nodes["microbatches"],
        pipeline_par=pipeline_par,
        data_par=np.array(float(unit.data_par)),
        interleaving=chunks,
        blocks=blocks,
        missing_blocks=blocks * pipeline_par - model.num_blocks,
        chunk_blocks=chunk_blocks_of(stages, blocks, chunks),
        shards=shards,
        tensor_par_net=tensor,
        pipeline_par_net=pipeline,
        data_par_net=data,
        data_stride=stride,
        algorithm=algorithm,
        replicas=replicas,
        reserved=reserved,
        training=np.array(True),
        recompute_all=nodes["recompute_all"],
        data_par_overlap=np.asarray(overlap),
        latency_per_step=nodes["latency_per_step"],
        stages=stages,
        accumulates=nodes["accumulates"],
        multiquery=nodes["multiquery"],
        weight_offload=offloads[0],
        activations_offload=offloads[1],
        optimizer_offload=offloads[2],
    )
