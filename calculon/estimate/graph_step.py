"""CUDA graphs: the time of a step without the host's launches of single kernels."""

from collections.abc import Mapping
from typing import Any

from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.named_values import PUBLISHED
from calculon.declarations.presets import find_preset, refused
from calculon.editions import find_edition
from calculon.estimate.evaluate import evaluate_one
from calculon.hardware.system import System
from calculon.plan.plan import Plan, all_fields

MIN_GAIN = 0.05
"""Share of a step that graphs save at least if they are reported."""


def graph_modes(model: Model, execution: Execution) -> tuple[str, ...]:
    """Return the launch modes with CUDA graphs: whole iterations only if the rows of experts are fixed.

    Source: Megatron-LM, ``core/transformer/moe/README.md``: dropless models have graphs of parts.
    """
    fixed = not model.mixes or execution.moe_pad_to_capacity
    return ("graph", "graph_parts") if fixed else ("graph_parts",)


def graph_step(
    model: Model, system: System, execution: Execution, stats: Mapping[str, float]
) -> dict[str, Any] | None:
    """Return launch mode and seconds per step in CUDA graphs, and whether the preset supports them.

    None if graphs save less than :data:`MIN_GAIN` of the seconds per step of the execution, or if the framework
    refuses them for its other fields, such as full recomputation. They save no more than what blocks wait for the
    host and the optimizer step, so that most executions are not evaluated again.

    Args:
        stats: Statistics of the execution.
    """
    mode, *_ = modes = graph_modes(model, execution)
    if execution.edition == PUBLISHED or execution.launch_mode in modes:
        return None
    total_time = stats["total_time"]
    # Embedding and head launch few kernels. Graphs of padded experts have fewer kernels, too, and may save more.
    most = stats["host_wait_time"] + stats["optim_step_time"]
    if most < MIN_GAIN * total_time and not (model.mixes and mode == "graph"):
        return None
    fields = {**all_fields(execution), "launch_mode": mode}
    preset = find_preset(execution.preset)
    if any(refused(preset, lambda name: fields.get(name, getattr(model, name, None)))):
        return None
    plan = Plan.from_records([fields])
    edition = find_edition(execution.edition)
    time = float(evaluate_one(model, system, plan, edition).times.total_time.item())
    if time > (1 - MIN_GAIN) * total_time:
        return None
    supported = preset.problem("launch_mode", mode) is None
    return {"launch_mode": mode, "total_time": time, "supported": supported}
