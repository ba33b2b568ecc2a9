"""Parts of every view, in page order."""

from collections.abc import Mapping

from calculon.explore.exports.take_view import LAUNCH, TAKE
from calculon.explore.machine import machine_view
from calculon.explore.machine.machine_view import CHANGED_MACHINE
from calculon.explore.part import PartKind
from calculon.explore.pipeline import pipeline_view
from calculon.explore.plan import plan_view
from calculon.explore.search import search_view
from calculon.explore.serving import serving_view
from calculon.explore.view_names import VIEWS

PARTS: Mapping[str, tuple[PartKind, ...]] = dict(
    zip(
        VIEWS,
        (
            (CHANGED_MACHINE, *plan_view.PARTS, LAUNCH, TAKE),
            (CHANGED_MACHINE, *search_view.PARTS, TAKE),
            (*machine_view.PARTS, TAKE),
            (CHANGED_MACHINE, *pipeline_view.PARTS, TAKE),
            (CHANGED_MACHINE, *serving_view.PARTS, TAKE),
        ),
        strict=True,
    )
)
"""Parts of each view."""

KINDS: Mapping[str, PartKind] = {kind.name: kind for parts in PARTS.values() for kind in parts}
"""Every part by name."""
