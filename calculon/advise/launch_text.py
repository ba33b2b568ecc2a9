"""Export of executions as launch files; settings without a name in a launcher are written out explicitly."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from calculon.declarations.execution import Execution
from calculon.declarations.lists_of_counts import ListsOfCounts
from calculon.declarations.model import Model
from calculon.declarations.presets import Preset
from calculon.launch.dialect import Dialect, write
from calculon.plan.plan import Plan, all_fields
from calculon.plan.stage_kinds import chunks_of_layout
from calculon.plan.stage_layout import StageLayout


def launch_text(
    dialect: Dialect,
    execution: Execution,
    model: Model | None = None,
    campaign: Mapping[str, Any] | None = None,
    preset: Preset | None = None,
) -> str:
    """Return the launch file of an execution; arguments and errors as for :func:`calculon.launch.dialect.write`.

    Balanced pipeline stages are listed by their blocks, if the model is known and the launcher takes lists. Fusions of
    experts, which earlier releases lack, have no effect on other models. The head names a `preset` with a date.
    """
    if model is not None and not model.mixes:
        execution = replace(execution, moe_router_fusion=True, moe_permute_fusion=True)
    if model is not None and "stage_blocks" in dialect.fields:
        execution = with_listed_stages(execution, model)
    dated = preset.name if preset is not None and preset.month else ""
    return write(dialect, all_fields(execution), model, campaign, dated)


def with_listed_stages(execution: Execution, model: Model) -> Execution:
    """Return an execution whose balanced stages are listed by their blocks; others unchanged.

    >>> from calculon import inputs
    >>> plan = {"base": "megatron-lm", "num_procs": 4, "pipeline_par": 4, "tensor_par": 1, "batch_size": 16}
    >>> one = inputs.execution(plan | {"pp_layout": "balanced"})
    >>> with_listed_stages(one, inputs.model("llama3-8B")).stage_blocks
    '8-9-9-6'
    """
    if execution.pp_layout != "balanced" or execution.pipeline_par == 1:
        return execution
    plan = Plan.of(execution)
    full = plan.is_choice("activation_recompute", "full")
    layout = StageLayout.of(plan, plan.pipeline_par, full, model)
    kinds = zip(np.ravel(layout.blocks), np.ravel(layout.count), strict=True)
    stages = [int(blocks) for blocks, count in kinds for _ in range(int(count))]
    chunks = execution.pipeline_interleaving
    # Launchers list chunks in pipeline order: all first chunks, then all second chunks.
    last = int(layout.ending.item())
    counts = chunks_of_layout(stages, chunks, "", last).T.ravel()
    listed = ListsOfCounts().plain([int(count) for count in counts])
    return replace(execution, pp_layout="uniform", stage_blocks=listed)
