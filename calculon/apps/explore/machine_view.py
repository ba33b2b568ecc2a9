"""The view of machine."""

from calculon.apps.explore.part import PartKind

PARTS: tuple[PartKind, ...] = ()
