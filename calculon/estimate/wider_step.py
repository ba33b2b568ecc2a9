"""Wider operands: the time of a step whose products have more bits, if it is shorter than with a narrow recipe."""

from typing import Any

import numpy as np

from calculon.declarations.execution import Execution
from calculon.declarations.model import Model
from calculon.declarations.recipes import NO_RECIPE, RECIPES
from calculon.declarations.spellings.precisions import PRECISIONS
from calculon.estimate.evaluate import evaluate
from calculon.hardware.system import System
from calculon.plan.plan import Plan, all_fields

MIN_GAIN = 0.02
"""Share of a step that wider operands save at least if they are reported: smaller differences are not certain."""

_NARROW_ALONE = ("fp8_param_gather", "fp8_attention")
"""Switches that need a recipe."""


def wider_step(
    model: Model, system: System, execution: Execution, total_time: float
) -> dict[str, Any] | None:
    """Return the precision and the seconds per step of the fastest wider precision.

    None if the execution has no recipe, or if no wider precision that fits saves :data:`MIN_GAIN` of `total_time`.
    Conversions of operands take longer than a narrow product saves if layers are small.
    """
    own = RECIPES.get(execution.fp8_recipe)
    if own is None or execution.datatype != "bfloat16":
        return None
    wider = {
        word: recipe
        for word, fields in PRECISIONS.items()
        if fields["datatype"] == "bfloat16" and "matmul_dtype" not in fields
        for recipe in [fields.get("fp8_recipe", NO_RECIPE)]
        if recipe == NO_RECIPE or RECIPES[recipe].operand // 1 > own.operand // 1
    }
    off = dict.fromkeys(_NARROW_ALONE, False)
    rows = [
        all_fields(execution) | {"fp8_recipe": recipe} | (off if recipe == NO_RECIPE else {})
        for recipe in wider.values()
    ]
    found = evaluate(model, Plan.from_records(rows), system, edition=execution.edition)
    times = np.nan_to_num(found["total_time"], nan=np.inf)
    best = int(times.argmin())
    if times[best] > (1 - MIN_GAIN) * total_time:
        return None
    return {"dtype": [*wider][best], "total_time": float(times[best])}
