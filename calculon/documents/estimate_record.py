"""File records of estimates: the statistics of an edition, and the layers of a block."""

import math
from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar

from calculon.base.errors import Problem
from calculon.base.frozen import dataclass
from calculon.base.records import columns
from calculon.declarations.encode import encode
from calculon.declarations.fields import declare
from calculon.declarations.named_values import EDITION_NAMES, PUBLISHED
from calculon.declarations.result_numbers import with_numbers
from calculon.declarations.statistics import ALL_PARTS_OF_TIME
from calculon.editions import EDITIONS
from calculon.estimate.layer_list import LayerStats

STATISTICS_OF = {
    name: tuple(column.name for column in columns(edition.stats))
    for name, edition in EDITIONS.items()
}
"""Names of the statistics of each edition."""


@dataclass(frozen=True, kw_only=True)
class InEdition:
    """Mixin for the edition of a result; files without one have the published edition."""

    unknown_keys: ClassVar[str] = "ignored"

    edition: str = declare(
        "edition of the cost model",
        choices=EDITION_NAMES,
        default=PUBLISHED,
        nullable=True,
        null=PUBLISHED,
    )


@dataclass(frozen=True, kw_only=True)
@with_numbers(columns(LayerStats), default=0.0)
class LayerRecord:
    """Layer of a block; columns missing from a file are 0."""

    unknown_keys: ClassVar[str] = "ignored"

    name: str = declare("its name")
    kind: str = declare("kind of its block, if there are several", default="")
    blocks: int = declare("blocks of this kind", default=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the layer in the format of an estimate's layer list."""
        found = encode(self)
        kind, blocks = found.pop("kind"), found.pop("blocks")
        of_kind = {"kind": kind, "blocks": blocks} if kind and blocks else {}
        return {"name": found.pop("name"), **of_kind, **found}


@dataclass(frozen=True, kw_only=True)
class EstimateRecord:
    """Estimate in a file; subclasses declare the statistics of an edition."""

    unknown_keys: ClassVar[str] = "ignored"

    total_time: float = declare("time of an iteration", above=0)
    layers: tuple[LayerRecord, ...] | None = declare(
        "layers of a block", default=None, nullable=True
    )

    def stats(self, edition: str) -> dict[str, float | None]:
        """Return the statistics by name."""
        return {name: getattr(self, name) for name in STATISTICS_OF[edition]}

    def problems(self, path: str) -> Iterator[Problem]:
        """Yield a problem if the parts of the time do not add up to it."""
        # The total was added up in another order, so it differs by rounding.
        parts = sum(getattr(self, name, None) or 0.0 for name in ALL_PARTS_OF_TIME)
        if not math.isclose(self.total_time, parts, rel_tol=1e-6):
            wanted, found = f"the sum of its parts, {parts:.6g}", f"{self.total_time:.6g}"
            yield Problem(f"{path}.total_time".lstrip("."), wanted, found)


@cache
def estimate_record(edition: str) -> type[EstimateRecord]:
    """Return the record type for estimates of an edition."""
    further = (one for one in columns(EDITIONS[edition].stats) if one.name != "total_time")

    @dataclass(frozen=True, kw_only=True)
    @with_numbers(further)
    class OfEdition(EstimateRecord):
        """Estimate of one edition."""

    return OfEdition
