"""Classes of measured training steps: steps of one class err alike, and errors of different classes are never mixed."""

from collections.abc import Callable

from calculon.base.frozen import dataclass
from calculon.base.units import GIGA
from calculon.declarations.named_values import SPLIT_WEIGHTS
from calculon.declarations.presets import COMMON, PUBLISHED_FORMS
from calculon.estimate.run_table import SMALL_MODEL, Run

NO_FRAMEWORK = (PUBLISHED_FORMS, COMMON)
"""Presets that are not the preset of a framework."""

HOPPER_AND_AMPERE = ("NVIDIA Hopper", "NVIDIA Ampere")
"""Generations of processors of most published steps of frameworks."""


@dataclass(frozen=True, slots=True)
class RunClass:
    """A class of measured training steps.

    Attributes:
        name: A few words.
        about: One sentence that says which steps it has.
        holds: Condition of a step that no earlier class of :data:`CLASSES` has.
    """

    name: str
    about: str
    holds: Callable[[Run], bool]


CLASSES = (
    RunClass(
        "Functional tests",
        "Tests of a framework in deterministic mode, dense and MoE, which nobody tuned for speed.",
        lambda run: bool(run.functional),
    ),
    RunClass("MoE", "Models with experts.", lambda run: run.experts > 0),
    RunClass(
        "Dense, below 1 B",
        f"Dense models with fewer than {SMALL_MODEL / GIGA:g} billion parameters, whose kernels wait for the host.",
        lambda run: run.parameters < SMALL_MODEL,
    ),
    RunClass(
        "Dense, FSDP and ZeRO-3",
        "Dense models whose weights are sharded over data-parallel ranks.",
        lambda run: run.zero_stage in SPLIT_WEIGHTS,
    ),
    RunClass(
        "Dense, Hopper, Ampere",
        "Other dense models on NVIDIA Hopper and Ampere under the preset of a framework.",
        lambda run: run.family in HOPPER_AND_AMPERE and run.preset not in NO_FRAMEWORK,
    ),
    RunClass(
        "Dense, other",
        "Other dense models: processors of other generations, and settings stated one by one.",
        lambda _: True,
    ),
)
"""Every measured step is in the first class whose condition it meets."""


def class_of(run: Run) -> RunClass:
    """Return the class of a measured step."""
    return next(one for one in CLASSES if one.holds(run))
