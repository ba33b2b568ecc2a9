"""The view of search."""

from calculon.apps.explore.part import PartKind

PARTS: tuple[PartKind, ...] = ()
