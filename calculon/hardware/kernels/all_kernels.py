"""The kinds of kernels: the rate, engine and element size that give their times."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import get_args

from calculon.hardware.kernels.fused_attention import FusedAttention
from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, KernelKind, Types, VectorKind
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.system import System
from calculon.spec.execution import DATATYPE_BYTES, MATMUL_BYTES


def product(system: System, types: Types) -> Kernel:
    """Return the kernel of matrix products with weights.

    Source of the rate by FLOP: Isaev et al., SC'23, doi:10.1145/3581784.3607102, section 3.2.
    """
    return _on_matrix_engine(system, types.product, "product")


def batched_product(system: System, types: Types) -> Kernel:
    """Return the kernel of products of two activations (attention that is not fused), at the rate of other products."""
    return _on_matrix_engine(system, types.attention, "batched_product", "product")


def attention(system: System, types: Types) -> Kernel:
    """Return the kernel of fused attention (*flash attention*), the named one of several.

    Source: its efficiency grows with the sequence: Dao, *FlashAttention-2*, arXiv 2307.08691, figures 4 to 6.
    """
    found = _on_matrix_engine(system, types.attention, "attention")
    if isinstance(found.rate, FusedAttention) and types.attention_kernel != "auto":
        return found._replace(rate=found.rate.running(types.attention_kernel))
    return found


def _on_matrix_engine(system: System, datatype: str, *kinds: str) -> Kernel:
    """Return a kernel at the rate that the system states for the first of some kinds, else at that of the engine."""
    stated = (system.rate(kind, datatype) for kind in kinds)
    rate = next((one for one in stated if one is not None), ENGINE_RATE)
    return Kernel(rate, system.product_engine(datatype), MATMUL_BYTES[datatype])


def vector(kind: VectorKind, system: System, types: Types) -> Kernel:
    """Return the kernel of an elementwise operator or reduction, mostly bound by memory.

    Its rate is that of its kind, of all traffic in tier-1 memory, or of the engine: the first that the system states.
    """
    datatype = types.vector
    rate = system.rate(kind, datatype) or system.ext.traffic or ENGINE_RATE
    return Kernel(rate, system.vector[datatype], DATATYPE_BYTES[datatype])


def mul_sum_fused(system: System, types: Types) -> Kernel:
    """Return the kernel of products on the vector engine, multiplied and summed in one.

    Without a rate of its own it has the law by shape of products on the matrix engine, at the peak of its engine: tiles
    and waves are the same, and begin and end of a tile take as long.
    """
    found, datatype = vector("mul_sum_fused", system, types), types.vector
    law = system.rate("product", datatype)
    if system.rate("mul_sum_fused", datatype) is not None or not isinstance(law, Gemm):
        return found
    beside = found.engine.peak / system.product_engine(datatype).peak
    return found._replace(rate=replace(law, half_depth=law.half_depth * beside))


KERNELS: Mapping[KernelKind, Callable[[System, Types], Kernel]] = {
    "product": product,
    "batched_product": batched_product,
    "attention": attention,
    **{kind: partial(vector, kind) for kind in get_args(VectorKind)},
    "mul_sum_fused": mul_sum_fused,
}
"""By kind: from a system and the types of arithmetic, the kernel that times layers of some shapes.

A new kind of kernel is a name in :mod:`calculon.hardware.kernels.kernel`, and one here if it is not of the vector
engine.
"""
