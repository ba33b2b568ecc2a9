"""Which forms of tensor parallelism and of products contradict others."""

import numpy as np

from calculon.errors import Problem
from calculon.plan.rules.rule import One, Question, Rule
from calculon.units import Array

_ALL = np.array(True)


def _unsplit(q: Question) -> Array:
    """Whether collectives are neither split nor cut into tiles."""
    mask: Array = q.plan.is_choice("tensor_par_comm_type", "ar") & _in_one(q)
    return mask


def _in_one(q: Question) -> Array:
    return q.plan.is_choice("tensor_par_overlap", "none")


def _megatron(q: Question) -> Array:
    return q.plan.is_choice("tp_impl", "megatron")


def _linear(q: Question) -> Array:
    return _unsplit(q) if q.model.part == "linear" else _ALL


def _explain_linear(one: One) -> Problem:
    e = one.execution
    split = e.tensor_par_comm_type != "ar"
    name, wanted = ("tensor_par_comm_type", "ar") if split else ("tensor_par_overlap", "none")
    why = "since a linear layer alone has no row-split product"
    return Problem(name, f"{wanted}, {why} (part: linear)", getattr(e, name))


def _gathers(q: Question) -> Array:
    mask: Array = _megatron(q) | _unsplit(q)
    return mask


def _explain_gathers(one: One) -> Problem:
    wanted = "megatron, unless tensor_par_comm_type is ar and tensor_par_overlap none"
    return Problem("tp_impl", wanted, one.execution.tp_impl)


def _behind(q: Question) -> Array:
    behind = q.plan.training & (q.plan.tensor_par > 1) & _megatron(q) & _in_one(q)
    mask: Array = ~q.plan.tp_async | behind
    return mask


def _explain_behind(one: One) -> Problem:
    e = one.execution
    why = (
        "there is no backward pass in inference"
        if not e.training
        else "tensor_par is 1"
        if e.tensor_par == 1
        else f"tp_impl: {e.tp_impl} has no gradient that only weights wait for"
        if e.tp_impl != "megatron"
        else f"tensor_par_overlap: {e.tensor_par_overlap} hides collectives in its own way"
    )
    return Problem("tp_async", f"false, since {why}", "true")


def _late_bias(q: Question) -> Array:
    mask: Array = ~q.plan.bias_after_reduce | (_megatron(q) & q.model.biased_output)
    return mask


def _explain_late_bias(one: One) -> Problem:
    gathers = one.execution.tp_impl != "megatron"
    why = (
        f"tp_impl: {one.execution.tp_impl} reduces no outputs"
        if gathers
        else f"no row-split product of {one.model.name} has a bias"
    )
    hint = "" if gathers else "mlp_bias and out_bias of the model state them"
    return Problem("bias_after_reduce", f"false, since {why}", "true", hint)


def _multiplies(q: Question) -> Array:
    vector = _in_one(q) & q.plan.is_choice("matmul_dtype", "same")
    mask: Array = q.plan.is_choice("matmul_impl", "gemm") | vector
    return mask


def _explain_multiplies(one: One) -> Problem:
    wanted = "gemm, unless tensor_par_overlap is none and matmul_dtype same"
    why = "the vector engine computes in the datatype, and in no tiles"
    return Problem("matmul_impl", wanted, one.execution.matmul_impl, why)


TENSOR_RULES = (
    Rule("linear_comm", _linear, _explain_linear),
    Rule("tp_impl_comm", _gathers, _explain_gathers, ("tp_impl",)),
    Rule("tp_async_needs_backward", _behind, _explain_behind, ("tp_async",)),
    Rule("bias_needs_reduction", _late_bias, _explain_late_bias, ("bias_after_reduce",)),
    Rule("mul_sum_needs_vector", _multiplies, _explain_multiplies, ("matmul_impl",)),
)
"""Requirements on the form of tensor parallelism and of products, in the order of checking."""
