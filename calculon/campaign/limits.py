"""Limits of a run (deadline, budget, energy) and the amounts by which it misses or meets them."""

from collections.abc import Mapping
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import amount
from calculon.campaign.record import Campaign
from calculon.declarations.fields import spec_fields

LIMITED = {"deadline": "days", "budget_usd": "usd", "budget_mwh": "mwh"}
"""Campaign fields that are limits, each with the figure that it bounds."""

LABELS = {one.name: one.declaration.label for one in spec_fields(Campaign)}
"""Labels of the campaign fields that are limits."""

_UNKNOWN = {
    "budget_usd": ("a price", "add --price 2.5 (US dollars for an hour of a processor)"),
    "budget_mwh": ("the power of a processor", "state fleet.tdp, or ext.power of the system"),
}
"""Figures needed to check a limit, with a hint on how to supply them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of a run, compared with the predicted figure.

    Attributes:
        field: Campaign field that states the limit.
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
        """Amount over the limit; negative if under."""
        return self.value - self.most

    @property
    def met(self) -> bool:
        """True if the run keeps the limit."""
        return self.over <= 0

    @property
    def in_words(self) -> str:
        """The limit, and the amount by which the run meets or misses it.

        >>> Limit("deadline", "days", 60.0, 95.33, "d").in_words
        'its deadline of 60 d by 35.3 d'
        """
        most, over = (amount(one, self.unit) for one in (self.most, abs(self.over)))
        return f"its {LABELS[self.field]} of {most} by {over}"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
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
    """Return the limits that a campaign states, each compared with its figure.

    Raises:
        SpecError: If the figure of a limit is unknown, such as a budget without a price.
    """
    declared = {one.name: one.declaration for one in spec_fields(Campaign)}
    found = []
    # limits in files have the unit of the field, figures the unit of pages; both sides are compared in the latter
    for name, figure in LIMITED.items():
        most = getattr(campaign, name)
        if most is None:
            continue
        value = figures[figure]
        # a limit that cannot be checked is an error: silently meeting it would mislead
        if value is None:
            wanted, hint = _UNKNOWN[name]
            raise SpecError(campaign.name, Problem(name, f"{wanted} to check it", "none", hint))
        unit = declared[name].unit
        found.append(Limit(name, figure, most / declared[name].scale, value, unit))
    return tuple(found)
