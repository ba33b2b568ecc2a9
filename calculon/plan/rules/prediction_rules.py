"""What modules that predict further tokens cannot be combined with."""

from collections.abc import Callable

import numpy as np

from calculon.base.units import Array
from calculon.plan.rules.rule import Requests, Rule, expected


def _with_modules(holds: Callable[[Requests], Array]) -> Callable[[Requests], Array]:
    """Ask only models that have such modules, and only in training: inference leaves them out."""

    def asked(r: Requests) -> Array:
        return ~r.plan.training | holds(r) if r.model.mtp_layers else np.array(True)

    return asked


_WHY = "since mtp_layers={model.mtp_layers}"

PREDICTION_RULES = (
    Rule(
        "mtp_overlap",
        _with_modules(lambda r: r.plan.is_choice("tensor_par_overlap", "none")),
        expected(
            "tensor_par_overlap",
            f"none, {_WHY}: the output of the product of a module is gathered in one piece",
        ),
    ),
    Rule(
        "mtp_tp_impl",
        _with_modules(lambda r: r.plan.is_choice("tp_impl", "megatron")),
        expected(
            "tp_impl",
            f"megatron, {_WHY}: the product of a module reads embeddings that every rank has whole",
        ),
        ("tp_impl",),
    ),
)
"""Requirements of modules that predict further tokens, in the order of checking."""
