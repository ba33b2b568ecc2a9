"""Layers: FLOP, memory traffic, activation memory and collective of each, without hardware.

Each constructor reads like a table: elements and FLOP, bytes moved in tier-1 memory, bytes saved. Sizes are arrays with
*execution* as the only axis, or numbers. Counts without a stated source come from the published model (Isaev et al.,
*Calculon*, SC'23, doi:10.1145/3581784.3607102), sections 2.2 to 2.4.
"""

from calculon.architecture.layer import RECOMPUTED, Collective, Flags, Layer
from calculon.architecture.layers.communication import communication, tensor_collective
from calculon.architecture.layers.elementwise import (
    Converted,
    activation,
    added_bias,
    cast,
    cast_to_recipe,
    dropout,
    fork,
    gate,
    norm,
    residual_sum,
    rotary,
    softmax,
)
from calculon.architecture.layers.matmul import (
    batched_matmul,
    flash_attention,
    linear,
    overlapped_linear,
)
from calculon.architecture.layers.vocabulary import cross_entropy, lookup, positions
from calculon.editions.edition import When

__all__ = [
    "RECOMPUTED",
    "Collective",
    "Converted",
    "Flags",
    "Layer",
    "When",
    "activation",
    "added_bias",
    "batched_matmul",
    "cast",
    "cast_to_recipe",
    "communication",
    "cross_entropy",
    "dropout",
    "flash_attention",
    "fork",
    "gate",
    "linear",
    "lookup",
    "norm",
    "overlapped_linear",
    "positions",
    "residual_sum",
    "rotary",
    "softmax",
    "tensor_collective",
]
