"""Ablations: time and memory of an execution without each of its options, all others unchanged."""

from math import isnan
from typing import Any

from calculon.advise.neighborhood import Neighborhood
from calculon.advise.neighbors import set_backs
from calculon.base.frozen import dataclass
from calculon.declarations.statistics import FITS
from calculon.plan.columns import encoded
from calculon.plan.rules.all_rules import REASONS

OF_PRESET, OF_FIELD = "preset", "field"
"""Value that an option is set back to: the preset's, or the default of the field if it has the preset's value."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """Execution without one of its options.

    Attributes:
        field: Option that is left out.
        value, without: Value of the option, and the value that it is set back to.
        of: :data:`OF_PRESET` or :data:`OF_FIELD`.
        gain: Time with the option over the time without it, minus 1: negative if the option helps; None if nothing runs
            without it.
        memory: Bytes of tier 1 that the option adds; negative if it frees memory. NaN if rules forbid leaving it out.
        reason: Reason why nothing runs without the option; empty if the execution runs.
        fits: Probability that the execution without the option fits in tier-1 memory; None if unknown.
    """

    field: str
    value: Any
    without: Any
    of: str
    gain: float | None
    memory: float
    reason: str = ""
    fits: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the ablation as plain data."""
        return {
            "field": self.field,
            "value": self.value,
            "without": self.without,
            "of": self.of,
            "gain": self.gain,
            "memory": self.memory if self.memory == self.memory else None,  # NaN is no JSON
            "reason": self.reason,
            FITS: self.fits,
        }


def ablations(near: Neighborhood) -> tuple[Ablation, ...]:
    """Return the ablation of each option that differs from its default, the largest time saving first.

    Each option is set back alone, together with the fields that follow from it. Options without which nothing runs come
    last.
    """
    back = [*set_backs(near.execution)]
    # Row 0 is the execution itself, so that both times come from the same evaluation.
    table = near.evaluate_rows([{}, *({name: value} for name, value, _ in back)])
    time, memory = float(table.time[0]), float(table.memory[0, 0])
    found = []
    for row, (name, value, of_preset) in enumerate(back, start=1):
        if getattr(table.plan, name)[row] != encoded(name, value):
            continue  # the other fields force the option
        reason = REASONS[table.codes[row]]
        # A default that the framework refuses is no real alternative; the preset's value always is.
        if reason.startswith(("framework", "invalid")) and not of_preset:
            continue  # the framework always has the option on
        found.append(
            Ablation(
                field=name,
                value=getattr(near.execution, name),
                without=value,
                of=OF_PRESET if of_preset else OF_FIELD,
                gain=None if reason else time / float(table.time[row]) - 1,
                memory=memory - float(table.memory[0, row]),
                reason=reason,
                fits=None if isnan(table.fits[row]) else float(table.fits[row]),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.gain is None, one.gain or 0.0, one.memory)))
