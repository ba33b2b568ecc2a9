"""A block whose microbatch runs in two halves beside each other: each of its layers does half of the rows, twice."""

from collections.abc import Collection
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

R = TypeVar("R")

OF_WEIGHTS = frozenset(
    {
        "weight",
        "expert_weight",
        "forms",
        "weight_copies",
        "weight_grad",
        "weight_grad_no_sharding",
        "gradient_message",
        "optimizer",
        "optim",
    }
)
"""Members of costs that both halves share."""

RATES = frozenset({"matrix_peak", "tp_bandwidth_needed", "bandwidth_needed", "intensity", "tile"})
"""Members that a half has like the whole."""


def of_both(half: R, same: Collection[str] = OF_WEIGHTS | RATES) -> R:
    """Return the cost of two halves from that of one, member by member but for those that are the `same`.

    Weights are read, and their gradients written, in each half. What is kept of activations is as much as of a whole
    microbatch, and so is what is there at work, since both halves are.
    """
    record: Any = half
    changes = {}
    for field in fields(record):
        if field.name not in same:
            value = getattr(record, field.name)
            changes[field.name] = of_both(value, same) if is_dataclass(value) else 2 * value
    return replace(record, **changes)
