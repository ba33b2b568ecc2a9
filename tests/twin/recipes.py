"""Recipes of products in fewer than 16 bits, by what they do to a tensor."""

from collections.abc import Mapping
from typing import Any

from calculon.base.frozen import dataclass

from .fields import BYTES_PER_ELEMENT, Execution


@dataclass(frozen=True)
class Recipe:
    """Bytes of an element with its share of a scale, and how a tensor becomes an operand."""

    arithmetic: str
    size: float  # of activations and gradients
    weight: float
    both: bool  # layouts are made of the same 16 bits, each with scales of its own ...
    turned: bool = False  # ... but squares of weights, of which one is the other transposed
    looks: bool = False  # for the largest value, before
    rotates: bool = False  # the second layout, by a kernel of its own
    promotes: bool = False  # sums of forward products, too
    joined: tuple[str, ...] = ()  # policies of fusion under which norms write operands
    copies: int = 2  # of operands, and of weights ...
    weight_copies: int = 2
    each_microbatch: bool = False  # ... which are made anew

    def into_weights(self, stored: float) -> float:
        """Bytes that move when an element of the weights is converted."""
        reads = stored + stored if self.looks else stored
        return reads + self.weight_copies * self.weight

    def gathered(self, stored: float) -> tuple[float, float]:
        """Return bytes of an element that is gathered for products, and what moves then."""
        if self.both and not self.turned:
            return stored, self.into_weights(stored)
        turned = self.weight + self.weight if self.weight_copies == 2 else 0  # read, written
        return self.weight, turned


CHAINS = ("compile", "max")
NAMED: Mapping[str, Mapping[str, Any]] = {
    "delayed": {"arithmetic": "float8", "size": 1, "weight": 1, "both": False, "joined": CHAINS},
    "tensorwise": {"arithmetic": "float8", "size": 1, "weight": 1, "both": False, "looks": True},
    "blockwise": {
        "arithmetic": "float8",
        "size": (128 + 4) / 128,  # a scale of 4 bytes
        "weight": (128 * 128 + 4) / (128 * 128),
        "both": True,
        "turned": True,
        "promotes": True,
        "joined": ("max",),
    },
    "mxfp8": {
        "arithmetic": "float8",
        "size": (32 + 1) / 32,
        "weight": (32 + 1) / 32,
        "both": True,
        "joined": ("max",),
    },
    "nvfp4": {
        "arithmetic": "float4",
        "size": (16 / 2 + 1) / 16,
        "weight": (16 / 2 + 1) / 16,
        "both": True,
        "turned": True,
        "looks": True,
        "rotates": True,
    },
    "nvfp4_plain": {
        "arithmetic": "float4",
        "size": (16 / 2 + 1) / 16,
        "weight": (16 / 2 + 1) / 16,
        "both": True,
        "looks": True,
    },
}


def recipe_of(ex: Execution, transposes: Mapping[str, bool]) -> Recipe | None:
    """Return the recipe of an execution on a machine that needs transposed copies under some."""
    if ex.fp8_recipe != "none":
        found = dict(NAMED[ex.fp8_recipe])
        if not found["both"] and not transposes.get(ex.fp8_recipe, True):
            found |= {"copies": 1, "weight_copies": 1}
        return Recipe(**found)
    if ex.matmul_dtype != "float8" or BYTES_PER_ELEMENT[ex.datatype] == 1:
        return None
    named = {"delayed": "delayed", "current": "tensorwise"}[ex.float8_scaling]
    return Recipe(**NAMED[named], weight_copies=1, each_microbatch=True)
