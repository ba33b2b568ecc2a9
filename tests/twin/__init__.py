"""Scalar twin of the cost model: its editions in plain Python, one execution at a time.

It is the readable specification of the model and the oracle of its tests, and it shares no code
with the package.  Tags [O1] to [O25] mark behavior that looks odd and is required nevertheless,
because the published results contain it; `rules` names the correction of each.
"""

from collections.abc import Mapping
from typing import Any

from .batch import Batch
from .block import block_of_model
from .checks import FORMS, checked_run
from .errors import DoesNotFit, Rejected
from .expert_overlap import half_of
from .fields import EXTENSIONS, LINK_KINDS, OPTIONS, known, known_of_models
from .outputs import LayerStatistics, Statistics, layer_statistics, of_both_halves, statistics
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
    block = block_of_model(checked_run(model, execution, system, rules))
    return statistics(block, Batch(block))


def layers(
    model: File, execution: File, system: File, rules: Rules | None = None
) -> list[LayerStatistics]:
    """Evaluate the layers of one block of each kind, without regard to the capacity of the memories."""
    run = checked_run(model, execution, system, rules)
    kinds = [run.of_kind(kind) for kind in dict.fromkeys(run.model.kinds())]
    if run.execution.ep_overlap != "two_batch":
        return [layer_statistics(layer) for kind in kinds for layer in block_layers(kind)]
    halves = [block_layers(half_of(kind)) for kind in kinds]
    return [of_both_halves(layer_statistics(layer)) for layers in halves for layer in layers]
