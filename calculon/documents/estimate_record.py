"""Estimates in files as declared records: the statistics of an edition, and the layers of a block."""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.records import Column, columns
from calculon.declarations.fields import Declaration, declare, spec_fields
from calculon.declarations.named_values import EDITION_NAMES, PUBLISHED
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.editions import EDITIONS
from calculon.estimate.layer_list import LayerStats

R = TypeVar("R")

NUMBER = Declaration("a statistic", unbounded=True)
"""Any number that a statistic may have; infinite ones too."""

STATISTICS_OF = {
    name: tuple(column.name for column in columns(edition.stats))
    for name, edition in EDITIONS.items()
}
"""Names of the statistics of each edition."""


@dataclass(frozen=True, kw_only=True)
class InEdition:
    """The edition of a result; files without one have the published edition."""

    unknown_keys: ClassVar[str] = "ignored"

    edition: str = declare(
        "edition of the cost model",
        choices=EDITION_NAMES,
        default=PUBLISHED,
        nullable=True,
        null=PUBLISHED,
    )


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """A layer of a block; columns that a file leaves out are 0."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("its name")
    kind: str = declare("kind of its block, if there are several", default="")
    blocks: int = declare("blocks of this kind", default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the layer as an estimate lists it."""
        kind = {"kind": self.kind, "blocks": self.blocks} if self.kind and self.blocks else {}
        columns_of = {one.name: getattr(self, one.name) for one in columns(LayerStats)}
        return {"name": self.name, **kind, **columns_of}


def _declared(column: Column, **declaration: Any) -> tuple[str, type, Any]:
    """Return the field of a statistic in a file."""
    if column.name == "total_time":
        return column.name, float, declare(column.help, above=0)
    stated = declare(column.help, unbounded=True, nullable=column.nullable, **declaration)
    return column.name, float, stated


@dataclass(frozen=True, kw_only=True)
class EstimateRecord:
    """An estimate in a file; its subclasses declare the statistics of an edition."""

    unknown_keys: ClassVar[str] = "ignored"

    layers: tuple[LayerRecord, ...] | None

    @property
    def stats(self) -> dict[str, float | None]:
        """The statistics by name."""
        kind: Any = type(self)
        names = [one.name for one in spec_fields(kind) if one.name != "layers"]
        return {name: getattr(self, name) for name in names}

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield a problem if the parts of the time do not add up to it."""
        stats = self.stats
        total, parts = stats["total_time"], sum(stats.get(one) or 0.0 for one in ALL_PARTS_OF_TIME)
        if not math.isclose(total or 0.0, parts, rel_tol=1e-6):
            wanted = f"the sum of its parts, {parts:.6g}"
            yield Problem(f"{path}.total_time".lstrip("."), wanted, f"{total:.6g}")


@cache
def estimate_record(edition: str) -> type[EstimateRecord]:
    """Return the record of estimates of an edition."""
    layer = _subclass(LayerRecord, [_declared(one, default=0.0) for one in columns(LayerStats)])
    several: Any = tuple[layer, ...]  # type: ignore[valid-type]
    listed = declare("the layers of a block", default=None, nullable=True)
    stats = map(_declared, columns(EDITIONS[edition].stats))
    return _subclass(EstimateRecord, [*stats, ("layers", several, listed)])


def _subclass(base: type[R], fields: Sequence[tuple[str, type, Any]]) -> type[R]:
    """Return a record class with further fields: name, type and declaration of each."""
    types = {name: kind for name, kind, _ in fields}
    declared = {name: one for name, _, one in fields}
    made = type(base.__name__, (base,), {"__annotations__": types, **declared})
    return cast("type[R]", dataclass(frozen=True, kw_only=True)(made))
