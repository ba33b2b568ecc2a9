"""Which optimizer steps contradict themselves."""

import numpy as np

from calculon.base.errors import Problem
from calculon.plan.columns import code, field_of
from calculon.plan.rules.rule import Request, Rule

_MOMENTS = tuple(field_of("optimizer_state_dtype").declaration.needs["optimizer"])
_SMALL = tuple(field_of("main_grad").declaration.needs["grad_dtype"])
_MOMENT_CODES = [code("optimizer", name) for name in _MOMENTS]
_SMALL_CODES = [code("grad_dtype", name) for name in _SMALL]


def _explain_state(one: Request) -> Problem:
    e = one.execution
    why = {
        "adam_8bit": "whose moments have 8 bits",
        "adafactor": "which keeps 4-byte sums of rows and columns",
    }.get(e.optimizer, "which keeps no moments")
    wanted = f"float32 with optimizer: {e.optimizer}, {why}"
    hint = f"a type can be chosen for {', '.join(_MOMENTS)}"
    return Problem("optimizer_state_dtype", wanted, e.optimizer_state_dtype, hint)


def _explain_copy(one: Request) -> Problem:
    e = one.execution
    why = "gradients have 4 bytes" if e.grad_dtype == "float32" else "no smaller type is stated"
    wanted = f"false with grad_dtype: {e.grad_dtype}, since {why}"
    hint = f"a 4-byte copy is made of grad_dtype: {' or '.join(_SMALL)}"
    return Problem("main_grad", wanted, "true", hint)


def _explain_sums(one: Request) -> Problem:
    e = one.execution
    with_ = "main_grad: true" if e.main_grad else f"grad_dtype: {e.grad_dtype}"
    hint = f"4-byte sums are beside grad_dtype: {' or '.join(_SMALL)}, and are what the step reads"
    return Problem("grad_sums", f"false with {with_}", "true", hint)


OPTIMIZER_RULES = (
    Rule(
        "state_dtype_needs_moments",
        lambda r: (
            r.plan.is_choice("optimizer_state_dtype", "float32")
            | np.isin(r.plan.optimizer, _MOMENT_CODES)
        ),
        _explain_state,
        ("optimizer_state_dtype",),
    ),
    Rule(
        "main_grad_needs_small_gradients",
        lambda r: ~r.plan.main_grad | np.isin(r.plan.grad_dtype, _SMALL_CODES),
        _explain_copy,
        ("main_grad",),
    ),
    Rule(
        "grad_sums_need_small_gradients",
        lambda r: ~r.plan.grad_sums | np.isin(r.plan.grad_dtype, _SMALL_CODES) & ~r.plan.main_grad,
        _explain_sums,
        ("grad_sums",),
    ),
)
"""Requirements on the optimizer step, in the order of checking."""
