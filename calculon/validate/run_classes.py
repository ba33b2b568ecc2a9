"""Classes of measured training steps: errors within a class are similar, and classes are never mixed."""

from collections.abc import Callable

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA
from calculon.declarations.named_values import SPLIT_WEIGHTS
from calculon.declarations.presets import COMMON, PUBLISHED_FORMS
from calculon.estimate.run_table import SMALL_MODEL, Run

NO_FRAMEWORK = (PUBLISHED_FORMS, COMMON)
"""Presets that do not belong to a framework."""

HOPPER_AND_AMPERE = ("NVIDIA Hopper", "NVIDIA Ampere")
"""Processor generations of most published steps of frameworks."""


@dataclass(frozen=True, slots=True)
class RunClass:
    """Class of measured training steps.

    Attributes:
        name: Short name.
        about: Sentence that describes its steps.
        holds: Condition for steps that do not belong to an earlier class of :data:`CLASSES`.
    """

    name: str
    about: str
    holds: Callable[[Run], bool]


CLASSES = (
    RunClass(
        "Functional tests",
        "Tests of a framework in deterministic mode, dense and MoE, which were not tuned for speed.",
        lambda run: bool(run.functional),
    ),
    RunClass("MoE", "Models with mixture of experts.", lambda run: run.experts > 0),
    RunClass(
        "Dense, below 1 B",
        f"Dense models with fewer than {SMALL_MODEL / GIGA:g} billion parameters, whose speed the host limits.",
        lambda run: run.parameters < SMALL_MODEL,
    ),
    RunClass(
        "Dense, FSDP and ZeRO-3",
        "Dense models whose weights are sharded over data-parallel ranks.",
        lambda run: run.zero_stage in SPLIT_WEIGHTS,
    ),
    RunClass(
        "Dense, Hopper, Ampere",
        "Other dense models on NVIDIA Hopper and Ampere with the preset of a framework.",
        lambda run: run.family in HOPPER_AND_AMPERE and run.preset not in NO_FRAMEWORK,
    ),
    RunClass(
        "Dense, other",
        "Other dense models: other processor generations, and settings without a framework's preset.",
        lambda _: True,
    ),
)
"""Classes in the order of their conditions: a step belongs to the first class whose condition it meets."""


def class_of(run: Run) -> RunClass:
    """Return the class of a measured step."""
    return next(one for one in CLASSES if one.holds(run))
