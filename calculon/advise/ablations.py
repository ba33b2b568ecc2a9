"""Ablations: the time and memory of an execution that runs without each of its options, all others unchanged."""

from math import isnan
from typing import Any

from calculon.advise.neighborhood import Neighborhood
from calculon.advise.neighbors import set_backs
from calculon.base.frozen import dataclass
from calculon.declarations.statistics import FITS
from calculon.plan.columns import encoded
from calculon.plan.rules.all_rules import REASONS

OF_PRESET, OF_FIELD = "preset", "field"
"""What an option is set back to: the preset's value, or, if it has that value, the default of the field."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """An execution without one of its options.

    Attributes:
        field: The option.
        value, without: What it is, and what it is set back to.
        of: :data:`OF_PRESET` or :data:`OF_FIELD`.
        gain: The time with it over the time without, less 1: below 0 if it helps; None if nothing runs without it.
        memory: Bytes of tier 1 that it adds; below 0 if it frees some. Not-a-number if rules forbid to leave it out.
        reason: Why nothing runs without it; empty if the execution does.
        fits: Probability that the execution fits in tier-1 memory without it; None if it is unknown.
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
        """Return it as plain data."""
        return {
            "field": self.field,
            "value": self.value,
            "without": self.without,
            "of": self.of,
            "gain": self.gain,
            "memory": self.memory if self.memory == self.memory else None,
            "reason": self.reason,
            FITS: self.fits,
        }


def ablations(near: Neighborhood) -> tuple[Ablation, ...]:
    """Return the ablation of each option that is not as its default, the one that saves most time first.

    Each is set back by itself, with the fields that follow. Options without which nothing runs come last.
    """
    back = [*set_backs(near.execution)]
    table = near.evaluate_rows([{}, *({name: value} for name, value, _ in back)])
    time, memory = float(table.time[0]), float(table.memory[0, 0])
    found = []
    for row, (name, value, of_preset) in enumerate(back, start=1):
        if getattr(table.plan, name)[row] != encoded(name, value):
            continue  # which the others leave no other value
        reason = REASONS[table.codes[row]]
        if reason.startswith(("framework", "invalid")) and not of_preset:
            continue  # which the framework always has
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
