"""Hardware: engines, memories, networks and kernels as frozen records in SI units.

Every formula takes arrays of any shape and returns arrays of that shape. Nothing here knows about transformers.
"""
