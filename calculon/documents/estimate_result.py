"""Conversion of estimates into results of pages: plain data with the labels of files and tables."""

from dataclasses import replace
from typing import TYPE_CHECKING

from calculon.declarations.named_values import PUBLISHED

if TYPE_CHECKING:
    from calculon.documents.result import Result
    from calculon.estimate.estimate import Estimate


def result_of(estimate: "Estimate", *, details: bool = True) -> "Result":
    """Convert an estimate into the plain data of its page.

    Args:
        details: Include stages, process groups, and parts of experts and sequences, which take longer than the rest.
    """
    # Imported on first use: estimates from Python do without pages.
    from calculon.architecture.parameters import active_count, module_count, parameter_count
    from calculon.declarations.axes import AXES
    from calculon.documents.result import ENDS, Inputs, Machine, Result
    from calculon.editions import EDITIONS
    from calculon.plan.mesh import networks_of
    from calculon.plan.plan import Plan, all_fields

    system, execution, belief = estimate.system, estimate.execution, estimate.belief
    length = execution.seq_length or estimate.model.seq_size
    networks = networks_of(Plan.of(execution), execution.mesh_order, system)
    inputs = Inputs(
        name=estimate.model.name,
        parameters=parameter_count(replace(estimate.model, seq_size=length)),
        active=active_count(estimate.model) if estimate.model.has_experts else 0,
        modules=module_count(estimate.model),
        model=estimate.model.to_dict(),
        machine=Machine(
            name=system.name,
            peak=system.product_engine(execution.matmul_type).peak,
            capacities=(system.mem1.capacity, system.mem2.capacity),
            usable=EDITIONS[estimate.edition].machine(system).usable,
            bandwidths=(system.mem1.bandwidth, system.mem2.bandwidth),
            networks=tuple(one.bandwidth * one.efficiency for one in system.networks),
        ),
        networks={axis.degree: int(networks[axis.name][0]) for axis in AXES},
    )
    return Result(
        stats=estimate.stats,
        edition=estimate.edition,
        execution=all_fields(execution),
        inputs=inputs,
        layers=estimate.layers,
        stages=estimate.stages if details and execution.pipeline_par > 1 else None,
        interval=None if belief is None else {name: getattr(belief, name) for name in ENDS},
        belief=None if belief is None else belief.to_dict(),
        residuals=None if estimate.interval is None else estimate.interval.to_dict(),
        expert_parts=(estimate.expert_parts or None) if details else None,
        context_exchange=(estimate.context_exchange or None) if details else None,
        imbalance_headroom=estimate.imbalance_headroom if details else None,
        graph_step=estimate.graph_step,
        wider_step=estimate.wider_step,
        groups=[group.to_dict() for group in estimate.groups] if details else (),
        domains=[domain.to_dict() for domain in estimate.domains] if details else (),
        question=None if estimate.edition == PUBLISHED else estimate.question,
    )
