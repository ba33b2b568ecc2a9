"""What one layer needs: FLOP, bytes and stored tensors, and which collective; no hardware.

Each constructor reads as a table of its physics (sections 2.2 to 2.4 of the model: element and FLOP counts, bytes
moved in tier-1 memory, space). Sizes are arrays with *execution* as the only axis, or numbers.
"""

from calculon.architecture.layer import Collective, Flags, Layer
from calculon.architecture.layers.activation import activation
from calculon.architecture.layers.cast import cast
from calculon.architecture.layers.communication import communication
from calculon.architecture.layers.dropout import dropout
from calculon.architecture.layers.elementwise import added_bias, elementwise
from calculon.architecture.layers.flash_attention import flash_attention
from calculon.architecture.layers.fork import fork
from calculon.architecture.layers.matmul import batched_matmul, linear
from calculon.architecture.layers.norm import norm
from calculon.architecture.layers.overlapped import overlapped_linear
from calculon.architecture.layers.rotary import rotary
from calculon.architecture.layers.softmax import softmax
from calculon.architecture.layers.tensor_collective import collect, gather, reduce, total
from calculon.architecture.layers.vocabulary import cross_entropy, lookup, positions
from calculon.editions.edition import When

__all__ = [
    "Collective",
    "Flags",
    "Layer",
    "When",
    "activation",
    "added_bias",
    "batched_matmul",
    "cast",
    "collect",
    "communication",
    "cross_entropy",
    "dropout",
    "elementwise",
    "flash_attention",
    "fork",
    "gather",
    "linear",
    "lookup",
    "norm",
    "overlapped_linear",
    "positions",
    "reduce",
    "rotary",
    "softmax",
    "total",
]
