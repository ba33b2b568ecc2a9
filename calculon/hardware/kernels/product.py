"""Matrix products: those with weights, and the batched ones of attention that is not fused."""

from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, Types
from calculon.hardware.system import System
from calculon.spec.execution import MATMUL_BYTES


def product(system: System, types: Types) -> Kernel:
    """Return the kernel of products with weights.

    Source of the rate by FLOP: Isaev et al., SC'23, doi:10.1145/3581784.3607102, section 3.2.
    """
    datatype = types.product
    rate = system.rate("product", datatype) or ENGINE_RATE
    return Kernel(rate, system.product_engine(datatype), MATMUL_BYTES[datatype])


def batched_product(system: System, types: Types) -> Kernel:
    """Return the kernel of products of two activations: in the type of attention, at the rate of other products."""
    datatype = types.attention
    own = system.rate("batched_product", datatype) or system.rate("product", datatype)
    return Kernel(own or ENGINE_RATE, system.product_engine(datatype), MATMUL_BYTES[datatype])
