"""Scalar twin of the cost model: edition `sc23` in plain Python, one execution at a time.

It is the readable specification of the model and the oracle of its tests, and it shares no code
with the package.  Tags [O1] to [O25] mark behaviour that looks odd and is required nevertheless,
because the published results contain it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .batch import Batch
from .block import Block, block_layers
from .checks import checked_run
from .errors import DoesNotFit, Rejected
from .outputs import LayerStatistics, Statistics, layer_statistics, statistics

__all__ = ["DoesNotFit", "Rejected", "estimate", "layers"]

File = Mapping[str, Any]


def estimate(model: File, execution: File, system: File) -> Statistics:
    """Evaluate an execution, given the contents of the three input files.

    Returns the 96 statistics in published order.  Raises `Rejected` for a malformed request and
    `DoesNotFit` for a well-formed one that the system cannot run.
    """
    block = Block(checked_run(model, execution, system))
    return statistics(block, Batch(block))


def layers(model: File, execution: File, system: File) -> list[LayerStatistics]:
    """Evaluate the layers of one block, without regard to the capacity of the memories."""
    run = checked_run(model, execution, system)
    return [layer_statistics(layer) for layer in block_layers(run)]
