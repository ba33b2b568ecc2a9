"""Parts of every view, in page order."""

from collections.abc import Mapping

from calculon.explore.exports.export_view import EXPORT_PART, LAUNCH_PART
from calculon.explore.machine import machine_view
from calculon.explore.machine.machine_view import CHANGED_MACHINE
from calculon.explore.pipeline import pipeline_view
from calculon.explore.plan import plan_view
from calculon.explore.search import search_view
from calculon.explore.serving import serving_view
from calculon.explore.view_names import VIEWS
from calculon.explore.view_part import ViewPartKind

PARTS: Mapping[str, tuple[ViewPartKind, ...]] = dict(
    zip(
        VIEWS,
        (
            (CHANGED_MACHINE, *plan_view.PARTS, LAUNCH_PART, EXPORT_PART),
            (CHANGED_MACHINE, *search_view.PARTS, EXPORT_PART),
            (*machine_view.PARTS, EXPORT_PART),
            (CHANGED_MACHINE, *pipeline_view.PARTS, EXPORT_PART),
            (CHANGED_MACHINE, *serving_view.PARTS, EXPORT_PART),
        ),
        strict=True,
    )
)
"""Parts of each view."""

KINDS: Mapping[str, ViewPartKind] = {kind.name: kind for parts in PARTS.values() for kind in parts}
"""Every part by name."""
