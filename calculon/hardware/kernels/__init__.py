"""Kernel times: matrix products, fused attention, memory-bound operators, and launches.

:data:`~calculon.hardware.system.KERNELS` has one entry for each kind of kernel. A system file states the
rate of a kind in a type under ``ext.kernels``, as a law with constants, a curve or a measured table; otherwise the
efficiency curve of the engine applies.
"""
