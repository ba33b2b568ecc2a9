"""Rules of tensor parallelism, sequence parallelism, and the implementation of matrix products."""

import numpy as np

from calculon.base.errors import Problem
from calculon.base.units import Array
from calculon.plan.rules.rule import Request, Requests, Rule, expected


def _unsplit(r: Requests) -> Array:
    """Return a mask of executions whose collectives are all-reduces that are not cut into tiles."""
    return r.plan.is_choice("tensor_par_comm_type", "ar") & _in_one(r)


def _in_one(r: Requests) -> Array:
    return r.plan.is_choice("tensor_par_overlap", "none")


def _megatron(r: Requests) -> Array:
    return r.plan.is_choice("tp_impl", "megatron")


def _explain_linear(one: Request) -> Problem:
    e = one.execution
    split = e.tensor_par_comm_type != "ar"
    name, wanted = ("tensor_par_comm_type", "ar") if split else ("tensor_par_overlap", "none")
    why = "since a linear layer alone has no row-split product"
    return Problem(name, f"{wanted}, {why} (part: linear)", getattr(e, name))


def _explain_behind(one: Request) -> Problem:
    e = one.execution
    why = (
        "there is no backward pass in inference"
        if not e.training
        else "tensor_par is 1"
        if e.tensor_par == 1
        else f"tp_impl: {e.tp_impl} has no gradient that only weights wait for"
        if e.tp_impl != "megatron"
        else f"tensor_par_overlap: {e.tensor_par_overlap} already hides collectives"
    )
    return Problem("tp_async", f"false, since {why}", "true")


def _explain_late_bias(one: Request) -> Problem:
    gathers = one.execution.tp_impl != "megatron"
    why = (
        f"tp_impl: {one.execution.tp_impl} reduces no outputs"
        if gathers
        else f"no row-split product of {one.model.name} has a bias"
    )
    hint = "" if gathers else "mlp_bias and out_bias of the model state them"
    return Problem("bias_after_reduce", f"false, since {why}", "true", hint)


def _plain_with_experts(name: str, values: tuple[str, ...], why: str) -> Rule:
    """Create the rule that a choice has one of the given values if blocks have experts."""

    def holds(r: Requests) -> Array:
        if not r.model.has_experts:
            return np.array(True)
        mask: Array = np.logical_or.reduce([r.plan.is_choice(name, value) for value in values])
        return mask

    wanted = f"{' or '.join(values)}, since {{model.name}} has experts ({why})"
    about = () if name == "tensor_par_overlap" else (name,)
    return Rule(f"experts_{name}", holds, expected(name, wanted), about)


TENSOR_RULES = (
    Rule(
        "linear_comm",
        lambda r: _unsplit(r) if r.model.part == "linear" else np.array(True),
        _explain_linear,
    ),
    Rule(
        "tp_impl_comm",
        lambda r: _megatron(r) | _unsplit(r),
        expected(
            "tp_impl", "megatron, unless tensor_par_comm_type is ar and tensor_par_overlap none"
        ),
        ("tp_impl",),
    ),
    Rule(
        "tp_async_needs_backward",
        lambda r: (
            ~r.plan.tp_async
            | (r.plan.training & (r.plan.tensor_par > 1) & _megatron(r) & _in_one(r))
        ),
        _explain_behind,
        ("tp_async",),
    ),
    Rule(
        "copies_need_split",
        lambda r: (
            ~r.plan.seq_par_copies
            | (
                r.plan.is_choice("tensor_par_comm_type", "rs_ag")
                & (r.plan.tensor_par > 1)
                & _in_one(r)
                & ~r.plan.tp_async
            )
        ),
        expected(
            "seq_par_copies",
            "false, unless tensor_par is above 1, tensor_par_comm_type rs_ag and nothing overlaps with the collectives",
        ),
        ("seq_par_copies",),
    ),
    Rule(
        "user_buffers_need_ring",
        lambda r: (
            ~r.plan.tp_user_buffers
            | (
                r.plan.is_choice("tensor_par_overlap", "ring")
                & r.plan.is_choice("tensor_par_comm_type", "rs_ag")
            )
        ),
        expected(
            "tp_user_buffers",
            "false, unless tensor_par_overlap is ring and tensor_par_comm_type rs_ag",
        ),
        ("tp_user_buffers",),
    ),
    Rule(
        "hidden_needs_overlap",
        lambda r: (r.plan.tp_hidden_percent == 100) | ~_in_one(r),
        expected("tp_hidden_percent", "100, since tensor_par_overlap is none"),
        ("tp_hidden_percent",),
    ),
    Rule(
        "scaling_needs_float8",
        lambda r: (
            r.plan.is_choice("float8_scaling", "delayed")
            | r.plan.is_choice("matmul_dtype", "float8")
        ),
        expected("float8_scaling", "delayed, unless matmul_dtype is float8"),
        ("float8_scaling",),
    ),
    Rule(
        "bias_needs_reduction",
        lambda r: ~r.plan.bias_after_reduce | (_megatron(r) & r.model.biased_output),
        _explain_late_bias,
        ("bias_after_reduce",),
    ),
    Rule(
        "mul_sum_needs_vector",
        lambda r: (
            r.plan.is_choice("matmul_impl", "gemm")
            | (_in_one(r) & r.plan.is_choice("matmul_dtype", "same"))
        ),
        expected(
            "matmul_impl",
            "gemm, unless tensor_par_overlap is none and matmul_dtype same",
            "the vector engine computes in the datatype, and without tiles",
        ),
        ("matmul_impl",),
    ),
    Rule(
        "scope_needs_compiler",
        lambda r: (
            r.plan.is_choice("compile_scope", "step")
            | r.plan.is_choice("fusion", "compile")
            | r.plan.is_choice("fusion", "max")
        ),
        expected("compile_scope", "step, unless fusion is compile or max", "nothing is compiled"),
        ("compile_scope",),
    ),
    Rule(
        "rotary_needs_kernels",
        lambda r: (
            r.plan.is_choice("rotary_impl", "real") | ~r.plan.is_choice("fusion", "published")
        ),
        expected(
            "rotary_impl",
            "real, unless fusion is none, compile or max",
            "the published kernels are fixed",
        ),
        ("rotary_impl",),
    ),
    _plain_with_experts("tensor_par_overlap", ("none",), "their rows are sorted after the gather"),
    _plain_with_experts("tp_impl", ("megatron",), "their products are split by columns, then rows"),
    _plain_with_experts("matmul_impl", ("gemm",), "their products are grouped"),
)
"""Requirements on the form of tensor parallelism and of products, in the order of checking."""
