"""The view of pipeline."""

from calculon.apps.explore.part import PartKind

PARTS: tuple[PartKind, ...] = ()
