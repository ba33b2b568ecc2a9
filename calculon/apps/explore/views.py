"""The parts of every view, in the order of the page."""

from collections.abc import Mapping

from calculon.apps.explore import machine_view, pipeline_view, plan_view, search_view
from calculon.apps.explore.page_state import VIEWS
from calculon.apps.explore.part import PartKind

_OWN = (plan_view.PARTS, search_view.PARTS, machine_view.PARTS, pipeline_view.PARTS)

PARTS: Mapping[str, tuple[PartKind, ...]] = {
    view: (machine_view.CHANGED, *own) for view, own in zip(VIEWS, _OWN, strict=True)
}
"""The parts of each view."""

KINDS: Mapping[str, PartKind] = {kind.name: kind for parts in PARTS.values() for kind in parts}
"""Every part by its name."""
