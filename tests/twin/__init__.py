"""Scalar twin of the cost model: its editions in plain Python, one execution at a time.

It is the readable specification of the model and the oracle of its tests, and it shares no code
with the package.  Tags [O1] to [O25] mark behaviour that looks odd and is required nevertheless,
because the published results contain it; `rules` names the correction of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .batch import Batch
from .block import Block
from .checks import FORMS, checked_run
from .errors import DoesNotFit, Rejected
from .fields import EXTENSIONS, LINK_KINDS, OPTIONS, known, known_of_models
from .outputs import LayerStatistics, Statistics, layer_statistics, statistics
from .rules import CORRECTED, PUBLISHED, Rules
from .transformer import block_layers

__all__ = [
    "CORRECTED",
    "EXTENSIONS",
    "FORMS",
    "LINK_KINDS",
    "OPTIONS",
    "PUBLISHED",
    "DoesNotFit",
    "Rejected",
    "Rules",
    "estimate",
    "known",
    "known_of_models",
    "layers",
]

File = Mapping[str, Any]


def estimate(model: File, execution: File, system: File, rules: Rules | None = None) -> Statistics:
    """Evaluate an execution, given the contents of the three input files.

    Returns the 96 statistics in published order, then those of the corrected edition.  Raises
    `Rejected` for a malformed request and `DoesNotFit` for a well-formed one that the system cannot
    run.  Without `rules` those of the edition that the execution names apply.
    """
    block = Block(checked_run(model, execution, system, rules))
    return statistics(block, Batch(block))


def layers(
    model: File, execution: File, system: File, rules: Rules | None = None
) -> list[LayerStatistics]:
    """Evaluate the layers of one block, without regard to the capacity of the memories."""
    run = checked_run(model, execution, system, rules)
    return [layer_statistics(layer) for layer in block_layers(run)]
