"""What one layer needs: FLOP, bytes and stored tensors, and which collective; no hardware.

Each constructor reads as a table of its physics (sections 2.2 to 2.4 of the model: element and FLOP counts, bytes
moved in tier-1 memory, space). Sizes are arrays with *execution* as the only axis, or numbers.
"""

from calculon.layers.activation import activation
from calculon.layers.attention import flash_attention
from calculon.layers.cast import cast
from calculon.layers.collective import collect, gather, reduce, total
from calculon.layers.dropout import dropout
from calculon.layers.elementwise import added_bias, elementwise
from calculon.layers.fork import fork
from calculon.layers.layer import Collective, Flags, Layer, When
from calculon.layers.matmul import batched_matmul, linear
from calculon.layers.norm import norm
from calculon.layers.overlapped import overlapped_linear
from calculon.layers.rotary import rotary
from calculon.layers.softmax import softmax
from calculon.layers.vocabulary import cross_entropy, lookup, positions

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
