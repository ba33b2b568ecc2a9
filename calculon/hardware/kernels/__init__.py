"""How fast kernels run: matrix products, fused attention, what memory binds, and launches.

Each kind of kernel has one entry in :data:`~calculon.hardware.kernels.all_kernels.KERNELS`. The rate of a kind in a
type is what the system file states under ``ext.kernels``, a law with constants, a curve or a measured table, and
otherwise the efficiency curve of the engine that runs the kernel.
"""
