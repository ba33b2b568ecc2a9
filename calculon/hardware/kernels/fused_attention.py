"""Fused attention (*flash attention*)."""

from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, Types
from calculon.hardware.system import System
from calculon.spec.execution import MATMUL_BYTES


def attention(system: System, types: Types) -> Kernel:
    """Return the kernel of fused attention, on the matrix engine.

    Source: its efficiency grows with the sequence: Dao, *FlashAttention-2*, arXiv 2307.08691, figures 4 to 6.
    """
    datatype = types.attention
    rate = system.rate("attention", datatype) or ENGINE_RATE
    return Kernel(rate, system.product_engine(datatype), MATMUL_BYTES[datatype])
