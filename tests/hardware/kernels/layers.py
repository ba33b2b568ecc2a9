"""Layers of one kind, and their times on a system."""

import numpy as np

from calculon.architecture.layer import Layer, Product
from calculon.architecture.layers import Flags
from calculon.hardware.kernels.kernel import Shapes, Types
from calculon.hardware.system import KERNELS


def layer(kernel, flops=(0.0, 0.0, 0.0), accessed=(0.0, 0.0, 0.0), **sizes):
    """Return a layer that is this kernel in every pass."""
    none = dict.fromkeys(
        (
            "inputs",
            "outputs",
            "weights",
            "weight_bytes",
            "output_bytes",
            "activation",
            "activation_grad",
        ),
        0.0,
    )
    return Layer("one", kernel, flops, accessed, flags=Flags(), **none, **sizes)


def product(m, n, k, batch=1, kernel="product"):
    """Return a product ``(m, n) x (n, k)``."""
    flops = 2.0 * batch * m * n * k
    passes = (flops, flops, flops) if kernel == "product" else (flops, 2 * flops, 0.0)
    return layer(kernel, passes, (1e6, 2e6, 3e6), product=Product(batch, m, n, k))


def times(system, one, datatype):
    """Return arithmetic and memory time of the passes of one layer, the second if it has one of its own."""
    shapes = Shapes(
        np.array(one.flops).reshape(3, 1, -1),
        np.array(one.accessed).reshape(3, 1, -1),
        [one],
        np.array([0]),
    )
    kernel = KERNELS[one.kernel](system, Types(datatype, datatype, datatype))
    arithmetic, memory = kernel.times(shapes, system.mem1)
    return arithmetic.squeeze(), None if memory is None else memory.squeeze()


def attention_time(system, flops, keys, datatype):
    """Return the arithmetic time of the forward pass of fused attention, for an array of FLOP."""
    none = np.zeros_like(flops)
    one = layer("attention", (flops, none, none), (none, none, none), keys=keys, head_width=128)
    return times(system, one, datatype)[0][0]
