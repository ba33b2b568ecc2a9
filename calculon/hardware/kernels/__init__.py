"""Times of kernels: matrix products, fused attention, memory-bound operators, and launches.

Each kind of kernel has one entry in :data:`~calculon.hardware.system.KERNELS`. The rate of a kind in a
type is stated by the system file under ``ext.kernels``, as a law with constants, a curve or a measured table, and
otherwise the efficiency curve of the engine that runs the kernel.
"""
