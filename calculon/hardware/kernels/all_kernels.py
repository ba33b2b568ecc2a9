"""The kinds of kernels: the rate, engine and element size that give their times."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import get_args

from calculon.declarations.named_values import DATATYPE_BYTES, ENGINE_BYTES
from calculon.hardware.kernels.fused_attention import FusedAttention
from calculon.hardware.kernels.grouped import ExpertCalls
from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, KernelKind, Types, VectorKind
from calculon.hardware.kernels.share_of_peak import ShareOfPeak
from calculon.hardware.kernels.tiles import Gemm
from calculon.hardware.system import System


def product(system: System, types: Types) -> Kernel:
    """Return the kernel of matrix products with weights.

    Where a recipe scales parts of sums, forward products add these up in 32 bits as those of gradients do, at their
    rate. Source: DeepSeek-V3, arXiv 2412.19437, section 3.3.2; 8-bit products scaled by blocks of 128 have 0.86 of the
    rate of others on H100 (systems/measured/gemm.csv, ``fp8_block`` beside ``fp8``). Source of the rate by FLOP: Isaev
    et al., SC'23, doi:10.1145/3581784.3607102, section 3.2.
    """
    found = _on_matrix_engine(system, types.product, "product")
    if types.promoted and isinstance(found.rate, Gemm):
        return found._replace(rate=found.rate.promoted)
    return found


def grouped_product(system: System, types: Types) -> Kernel:
    """Return the kernel of products of experts: at a rate of their own, or as a batch of products with their rows.

    A kernel for all experts has tiles of the rows of one, and fills the multiprocessors with those of the next (Gale et
    al., *MegaBlocks*, arXiv 2211.15841, section 5). By the law ``tiles``, without a constant for it, come out: grouped
    products of SimuMax on A100 (Transformer Engine, 12 in all passes) 2 to 3 % beside measured ones in the median;
    DeepGEMM on H800 in 8 bits, 256 to 8,192 rows (5), 5 %; forward layers of aiconfigurator in bfloat16 with balanced
    experts of 16 rows and more, above 0.1 ms: H100 7 % of 16, H200 11 % of 7, B200 13 % of 9; in 8 bits of small
    experts 23 to 34 % too fast.
    """
    stated = system.rate("grouped_product", types.product)
    if stated is not None and not isinstance(stated, ExpertCalls):
        return _on_matrix_engine(system, types.product, "grouped_product")
    found = product(system, types)
    if stated is None:
        return found
    return found._replace(rate=replace(stated, products=found.rate))


def router(system: System, types: Types) -> Kernel:
    """Return the kernel of the product of the router: in 4 bytes, where the matrix engine has a type of them.

    Source: Megatron-LM, ``moe/router.py``, ``--moe-router-dtype fp32``.
    """
    known = system.matmul_types
    wide = next((name for name in ("tfloat32", "float32") if name in known), types.product)
    return _on_matrix_engine(system, wide, "router", "product")


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


def linear_attention(system: System, types: Types) -> Kernel:
    """Return the kernel of the state of linear attention: as stated, else at a share of the peak, in attention's type.

    Its products are as small as a chunk and a head, and it hands states on between them. The default share is assumed:
    no measured kernel is known to the model.
    """
    datatype = types.attention
    assumed = ShareOfPeak(share=system.ext.linear_efficiency)
    rate = system.rate("linear_attention", datatype) or assumed
    return Kernel(rate, system.product_engine(datatype), ENGINE_BYTES[datatype])


def _on_matrix_engine(system: System, datatype: str, *kinds: str) -> Kernel:
    """Return a kernel at the rate that the system states for the first of some kinds, else at that of the engine."""
    stated = (system.rate(kind, datatype) for kind in kinds)
    rate = next((one for one in stated if one is not None), ENGINE_RATE)
    return Kernel(rate, system.product_engine(datatype), ENGINE_BYTES[datatype])


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
    "grouped_product": grouped_product,
    "router": router,
    "batched_product": batched_product,
    "attention": attention,
    "linear_attention": linear_attention,
    **{kind: partial(vector, kind) for kind in get_args(VectorKind)},
    "mul_sum_fused": mul_sum_fused,
}
"""By kind: from a system and the types of arithmetic, the kernel that times layers of some shapes.

A new kind of kernel is a name in :mod:`calculon.hardware.kernels.kernel`, and one here if it is not of the vector
engine.
"""
