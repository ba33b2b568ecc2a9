"""The kinds of kernels and what gives their times."""

from collections.abc import Callable, Mapping
from typing import get_args

from calculon.hardware.kernels.fused_attention import attention
from calculon.hardware.kernels.kernel import Kernel, KernelKind, Types, VectorKind
from calculon.hardware.kernels.product import batched_product, product
from calculon.hardware.kernels.vector import vector
from calculon.hardware.system import System

KERNELS: Mapping[KernelKind, Callable[[System, Types], Kernel]] = {
    "product": product,
    "batched_product": batched_product,
    "attention": attention,
    **{kind: vector(kind) for kind in get_args(VectorKind)},
}
"""By kind: from a system and the types of arithmetic, the kernel that times layers of some shapes.

A new kind of kernel is a name in :mod:`calculon.hardware.kernels.kernel`, and one here if it is not of the vector
engine.
"""
