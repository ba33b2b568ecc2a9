"""What makes the type of matrix arithmetic valid."""

import numpy as np

from calculon.errors import Problem
from calculon.plan.columns import FIELDS
from calculon.plan.rules.rule import Request, Rule
from calculon.spec.execution import DATATYPE_BYTES, MATMUL_BYTES

_TYPES = next(field.declaration.choices for field in FIELDS if field.name == "matmul_dtype")
_WIDTHS = np.array([MATMUL_BYTES.get(name, 0) for name in _TYPES])  # same: fits every datatype
_STORED = np.array(list(DATATYPE_BYTES.values()))


def _explain_wider(one: Request) -> Problem:
    stored = DATATYPE_BYTES[one.execution.datatype]
    return Problem(
        "matmul_dtype",
        f"a type of at most {stored} bytes, as datatype={one.execution.datatype}",
        repr(one.execution.matmul_dtype),
        "widen datatype: weights and the residual stream are stored in it",
    )


def _explain_known(one: Request) -> Problem:
    wanted = f"a type that {one.system.name} multiplies: {', '.join(one.system.matmul_types)}"
    return Problem("matmul_dtype", wanted, repr(one.execution.matmul_dtype))


PRECISION_RULES: tuple[Rule, ...] = (
    Rule(
        "matmul_wider",
        lambda r: _WIDTHS[r.plan.matmul_dtype] <= _STORED[r.plan.datatype],
        _explain_wider,
        ("matmul_dtype",),
    ),
    Rule(
        "matmul_engine",
        lambda r: np.array([name in ("same", *r.system.matmul_types) for name in _TYPES])[
            r.plan.matmul_dtype
        ],
        _explain_known,
        ("matmul_dtype",),
    ),
)
