"""Hardware: engines, memories, networks and kernels as frozen records in SI units.

Every formula here takes arrays of any shape and returns arrays of that shape; nothing knows of transformers.
"""
