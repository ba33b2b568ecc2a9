"""The optimizer step: Adam with mixed precision."""

from calculon.units import Bytes, Count, Elements, Flops

FLOPS_PER_PARAMETER = 11
MOMENT_BYTES = 8
MASTER_BYTES = 4


def adam_flops(weights: Elements, shards: Count) -> Flops:
    """Arithmetic of one Adam step: 11 FLOP per parameter.

    Source: Kingma and Ba, *Adam*, arXiv 1412.6980, algorithm 1.
    """
    flops: Flops = weights / shards * FLOPS_PER_PARAMETER
    return flops


def adam_bytes(weights: Elements, dtype_bytes: int, shards: Count) -> Bytes:
    """Bytes of Adam's state: two 4-byte moments, and a 4-byte master copy of weights that are smaller.

    Source: Rajbhandari et al., *ZeRO*, arXiv 1910.02054, section 3.1.
    """
    master = MASTER_BYTES if dtype_bytes < MASTER_BYTES else 0
    state: Bytes = (MOMENT_BYTES * weights + master * weights) / shards
    return state
