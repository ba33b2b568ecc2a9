"""The limits of a run, and by how much it misses them."""

from collections.abc import Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import amount
from calculon.campaign.record import Campaign
from calculon.declarations.fields import spec_fields

LIMITED = {"deadline": "days", "budget_usd": "usd", "budget_mwh": "mwh"}
"""Fields of a campaign that are limits, and the figure that each bounds."""

LABELS = {one.name: one.declaration.label for one in spec_fields(Campaign)}
"""Labels of the limits among the fields of a campaign."""

_UNKNOWN = {
    "budget_usd": ("a price", "add --price 2.5 (US dollars for an hour of a processor)"),
    "budget_mwh": ("the power of a processor", "state fleet.tdp, or ext.power of the system"),
}
"""What a limit needs to be checked, and how to give it."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a run.

    Attributes:
        field: The field of the campaign that states it.
        figure: Name of the figure that it bounds.
        most: The limit, in the unit of the figure.
        value: The figure.
        unit: Unit of both.
    """

    field: str
    figure: str
    most: float
    value: float
    unit: str

    @property
    def over(self) -> float:
        """By how much the run is beyond it; below 0 what is left."""
        return self.value - self.most

    @property
    def met(self) -> bool:
        """Whether the run keeps it."""
        return self.over <= 0

    @property
    def in_words(self) -> str:
        """The limit and by how much the run keeps or misses it.

        >>> Limit("deadline", "days", 60.0, 95.33, "d").in_words
        'its deadline of 60 d by 35.3 d'
        """
        most, over = (amount(one, self.unit) for one in (self.most, abs(self.over)))
        return f"its {LABELS[self.field]} of {most} by {over}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "field": self.field,
            "figure": self.figure,
            "limit": self.most,
            "value": self.value,
            "over": self.over,
            "unit": self.unit,
            "met": self.met,
            "in_words": self.in_words,
        }


def limits(campaign: Campaign, figures: Mapping[str, float | None]) -> tuple[Limit, ...]:
    """Return the limits that a campaign states, each with the figure that it bounds.

    Raises:
        SpecError: For a limit of a figure that is not known, such as a budget without a price.
    """
    declared = {one.name: one.declaration for one in spec_fields(Campaign)}
    found = []
    for name, figure in LIMITED.items():
        most = getattr(campaign, name)
        if most is None:
            continue
        value = figures[figure]
        if value is None:
            wanted, hint = _UNKNOWN[name]
            raise SpecError(campaign.name, Problem(name, f"{wanted} to check it", "none", hint))
        unit = declared[name].unit
        found.append(Limit(name, figure, most / declared[name].scale, value, unit))
    return tuple(found)
