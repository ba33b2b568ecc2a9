"""Elementwise operators and reductions: on the vector engine, mostly bound by memory."""

from collections.abc import Callable

from calculon.hardware.kernels.kernel import ENGINE_RATE, Kernel, Types, VectorKind
from calculon.hardware.system import System
from calculon.spec.execution import DATATYPE_BYTES


def vector(kind: VectorKind) -> Callable[[System, Types], Kernel]:
    """Return the function that gives the kernel of a kind of operator."""

    def kernel(system: System, types: Types) -> Kernel:
        datatype = types.vector
        rate = system.rate(kind, datatype) or ENGINE_RATE
        return Kernel(rate, system.vector[datatype], DATATYPE_BYTES[datatype])

    return kernel
