"""The power that processors and nodes draw; no time depends on it."""

from itertools import pairwise

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare
from calculon.hardware.dated import DAY, SOURCE, check_dated


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """The power of a processor by its data sheet and, where somebody measured it, by what it does."""

    tdp: float = declare("thermal design power of a processor", unit="W", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    idle: float | None = declare(
        "measured power of a processor without work", unit="W", at_least=0, default=None
    )
    load: float | None = declare(
        "measured power of a processor while layers are computed", unit="W", above=0, default=None
    )
    spin: float | None = declare(
        "measured power of a processor whose rank waits for others, polling, idle power included",
        unit="W",
        above=0,
        default=None,
    )
    overhead: float | None = declare(
        "measured power of the rest of a node: hosts, memory, network cards, fans",
        unit="W",
        at_least=0,
        default=None,
    )

    overhead_share: float | None = declare(
        "power of the rest of a node over that of its processors, if that was not measured; if absent too, 0.4, of "
        "air-cooled nodes of 8",
        at_least=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date, and that work takes more power than waiting, and waiting more than nothing."""
        check_dated(self)
        if (self.idle is None) != (self.load is None):
            one, other = ("idle", "load") if self.idle is None else ("load", "idle")
            hint = f"the power between idle and load needs both; without {other} too the tdp counts"
            raise SpecError(
                "ext.power", [Problem(one, f"a number, since {other} is stated", "nothing", hint)]
            )
        rising = [("idle", self.idle), ("spin", self.spin), ("load", self.load)]
        known = [(name, watts) for name, watts in rising if watts is not None]
        problems = [
            Problem(name, f"at least {lower}={least:g} W", f"{watts:g} W")
            for (lower, least), (name, watts) in pairwise(known)
            if watts < least
        ]
        if problems:
            raise SpecError("ext.power", problems)

    @property
    def measured(self) -> bool:
        """Whether idle and load were measured; else there is the data sheet alone."""
        return self.load is not None
