"""What makes the type of matrix arithmetic, and the kernel of attention, valid."""

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.declarations.named_values import DATATYPE_BYTES, MATMUL_BYTES, multiplied
from calculon.declarations.presets import COMMON
from calculon.plan.columns import FIELDS, PLAIN, code
from calculon.plan.rules.rule import Request, Requests, Rule, expected

_TYPES = next(field.declaration.choices for field in FIELDS if field.name == "matmul_dtype")
_WIDTHS = np.array([MATMUL_BYTES.get(name, 0) for name in _TYPES])  # same: fits every datatype
_KERNELS = next(field.declaration.choices for field in FIELDS if field.name == "attn_kernel")
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


def _has_kernel(r: Requests) -> Array:
    """Hold where the system has constants of the attention kernel, in the type that attention is computed in.

    The kernel that a framework's preset names is run by the default of a system that has no constants of it.
    """
    known = np.zeros((len(DATATYPE_BYTES), len(_TYPES), len(_KERNELS)), dtype=bool)
    for i, stored in enumerate(DATATYPE_BYTES):
        for j, name in enumerate(_TYPES):
            kernels = ("auto", *r.system.attention_kernels(stored, name))
            known[i, j] = [kernel in kernels for kernel in _KERNELS]
    found: Array = known[r.plan.datatype, r.multiplied, r.plan.attn_kernel]
    return found | (r.plan.preset > code("preset", COMMON))


def _explain_kernel(one: Request) -> Problem:
    e = one.execution
    found = repr(e.attn_kernel)
    known = one.system.attention_kernels(e.datatype, multiplied(e.matmul_dtype, e.fp8_recipe))
    if not known:
        hint = "ext.kernels.attention of a system states kernels by name: calculon describe system"
        wanted = f"auto, since {one.system.name} has no kernels of attention by name in this type"
        return Problem("attn_kernel", wanted, found, hint)
    wanted = f"auto, or a kernel that {one.system.name} has: {', '.join(known)}"
    return Problem("attn_kernel", wanted, found, f"auto is {known[0]}")


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
    Rule(
        "kernel_needs_flash",
        lambda r: (
            (r.plan.attn_kernel == PLAIN["attn_kernel"]) | r.plan.is_choice("attn_impl", "flash")
        ),
        expected(
            "attn_kernel", "auto, unless attn_impl is flash", "eager attention has no fused kernel"
        ),
        ("attn_kernel",),
    ),
    Rule("attention_kernel", _has_kernel, _explain_kernel, ("attn_kernel",)),
)
