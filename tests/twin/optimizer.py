"""The optimizer step per parameter: bytes kept and moved, FLOP.  Weights that are matrices are
not told apart, so Adafactor and Muon are not known here."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .run import Execution

WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}

ADAM = ("m g > m", "v > v", "v g > v", "v > x", "x > x", "x > x", "w m x > w")
OPERATIONS = {
    "adam": ADAM,
    "adam_8bit": ("q > m", "r > v", *ADAM, "m > q", "v > r"),
    "lion": ("m g > u", "u > u", "w u > w", "m g > m"),
    "sgd_momentum": ("m > m", "m g > m", "w m > w"),
    "sgd": ("w g > w",),
}
"""What elementwise operations read > write: gradient, moments m and v, 8-bit moments q and r,
weight, and what is in between."""

STATES = {"adam": "mv", "adam_8bit": "qr", "lion": "m", "sgd_momentum": "m", "sgd": ""}
FLOPS = {"adam": 11, "adam_8bit": 20, "lion": 5, "sgd_momentum": 4, "sgd": 2}


def adam(ex: Execution) -> Execution:
    """The same execution without a word about its optimizer."""
    return replace(
        ex,
        optimizer="adam",
        optimizer_impl="fused",
        optimizer_state_dtype="float32",
        grad_dtype="auto",
        main_grad=False,
        grad_clip=False,
    )


class Step:
    """Sizes are bytes of one parameter."""

    def __init__(self, ex: Execution, size: int, whole: bool) -> None:
        self.stated = ex.grad_dtype != "auto"
        waiting = 4 if whole else size
        self.gradient = WIDTHS[ex.grad_dtype] if self.stated else waiting
        self.computed = self.gradient if self.stated else 4  # of the block that is computed
        self.flops = FLOPS[ex.optimizer]

        moment = WIDTHS[ex.optimizer_state_dtype]
        if ex.optimizer == "adam_8bit":
            moment = 4
        widths = {"m": moment, "v": moment, "q": 1 + 4 / 256, "r": 1 + 4 / 256}
        kept = sum(widths[name] for name in STATES[ex.optimizer])
        copies = size < 4  # the weights that are computed with are copies of 4-byte ones
        kept += 4 if copies else 0
        self.state = kept + (4 if ex.main_grad else 0)

        stepped = 4 if ex.main_grad else self.gradient  # gradient that the step begins with
        fused = 2 * kept + stepped + (size if copies else 2 * size)
        fused += self.gradient + 4 if ex.main_grad else 0
        fused += stepped if ex.grad_clip else 0
        apart: float = 0
        for operation in OPERATIONS[ex.optimizer]:
            apart += sum(widths.get(name, 4) for name in operation.split() if name != ">")
        apart += 4 + size if copies else 0
        apart += self.gradient + 4 if self.gradient < 4 else 0
        apart += 3 * stepped if ex.grad_clip else 0
        self.moved = fused if ex.optimizer_impl == "fused" else max(fused, apart)

        self.beside: float = 0  # of it, what passes of their own move
        if ex.grad_clip or ex.main_grad:
            without = replace(ex, grad_clip=False, main_grad=False)
            self.beside = self.moved - Step(without, size, whole).moved
