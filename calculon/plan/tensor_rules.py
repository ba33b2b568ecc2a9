"""Which forms of tensor parallelism a model or an execution contradicts: as rules, and as a filter for a search."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from calculon.errors import Problem
from calculon.plan.rule import One, Question, Rule
from calculon.spec.model import Model
from calculon.units import Array

_ALL = np.array(True)


def splits(model: Model, tensor_par: int) -> bool:
    """Whether the widths that a search checks at once divide over so many ranks; the MLP's has a rule of its own."""
    if model.hidden % tensor_par:
        return False
    heads, groups = model.attn_heads, model.key_value_heads
    return not model.attends or (
        heads % tensor_par == 0 and (groups % tensor_par == 0 or tensor_par % groups == 0)
    )


def possible(model: Model, values: Mapping[str, Any]) -> bool:
    """Whether the fields of a block structure fit together and to the model."""
    plain = values["tensor_par_comm_type"] == "ar" and values["tensor_par_overlap"] == "none"
    return plain or model.part != "linear"


def _linear_is_plain(q: Question) -> Array:
    if q.model.part != "linear":
        return _ALL
    mask: Array = q.plan.is_choice("tensor_par_comm_type", "ar") & q.plan.is_choice(
        "tensor_par_overlap", "none"
    )
    return mask


def _explain_linear(one: One) -> Problem:
    e = one.execution
    split = e.tensor_par_comm_type != "ar"
    name, wanted = ("tensor_par_comm_type", "ar") if split else ("tensor_par_overlap", "none")
    why = "since a linear layer alone has no row-split product"
    return Problem(name, f"{wanted}, {why} (part: linear)", getattr(e, name))


TENSOR_RULES = (Rule("linear_comm", _linear_is_plain, _explain_linear),)
"""Requirements on the form of tensor parallelism, in the order of checking."""
