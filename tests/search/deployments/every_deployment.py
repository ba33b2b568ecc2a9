"""Every deployment of a small question, enumerated by plain loops and served one by one."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from calculon import inputs
from calculon.base.errors import Infeasible
from calculon.serving.records.deployment import Deployment
from calculon.serving.serve import Served, serve


@dataclass
class One:
    """A deployment, in the order of a search."""

    model: Any
    fields: dict
    system: Any
    load: dict

    @cached_property
    def served(self) -> Served | None:
        """What it gives; nothing where it has no room."""
        try:
            return serve(self.model, self.fields, self.system, self.load)
        except Infeasible:
            return None

    @property
    def feasible(self) -> bool:
        """Whether it has room, and keeps all limits."""
        return self.served is not None and all(limit.met for limit in self.served.limits)


def every(
    model,
    counts,
    system,
    load,
    *,
    types=("bfloat16",),
    stages=(1, 2),
    budgets=(0, 512, 2048),
    caps=(0,),
):
    """Return all deployments with these values of their fields."""
    shape, node = inputs.model(model), inputs.system(system).networks[0].size
    experts = shape.num_experts if shape.mixes else 1
    most = max(node, *counts) if shape.mixes else node
    groups = range(1, most + 1) if shape.mixes else (1,)
    found = []
    for weights, mixed in product(types, (False, True)):
        for count, split, stage, parts, group in product(
            counts, range(1, most + 1), stages, groups, groups
        ):
            if count % (split * stage) or split % parts or split % group or experts % group:
                continue
            if shape.attn_heads % (split // parts):
                continue
            if split > node and (split % node or node % (split // parts)):
                continue
            for budget, cap in product(budgets, caps):
                if (budget > 0) != mixed or (budget and cap > budget):
                    continue
                fields = {
                    "num_procs": count,
                    "tensor_par": split,
                    "pipeline_par": stage,
                    "attn_data_par": parts,
                    "expert_par": group,
                    "weights_dtype": weights,
                    "token_budget": budget,
                    "max_batch": cap,
                }
                found.append(One(model, fields, system, load))
    return found


def every_apart(model, count, system, load, *, stages=(1, 2)):
    """Return all deployments of so many processors with a pool that prefills, in the order of a search."""
    found = []
    node = inputs.system(system).networks[0].size
    heads = inputs.model(model).attn_heads
    splits = [(t, p) for t in range(1, node + 1) if heads % t == 0 for p in stages]
    for split, stage in splits:
        for replicas in range(1, count):
            prefill = replicas * split * stage
            for own, own_stage in splits:
                rest = count - prefill
                if rest < 1 or rest % (own * own_stage):
                    continue
                pool = {"num_procs": prefill, "tensor_par": split, "pipeline_par": stage}
                fields = {"num_procs": count, "tensor_par": own, "pipeline_par": own_stage}
                fields["prefill"] = pool
                found.append(One(model, fields, system, load))
    return found


def fields_of(deployment: Deployment) -> dict:
    """Return the fields of a deployment that :func:`every` states."""
    names = "num_procs tensor_par pipeline_par attn_data_par expert_par weights_dtype token_budget max_batch"
    return {name: getattr(deployment, name) for name in names.split()}
