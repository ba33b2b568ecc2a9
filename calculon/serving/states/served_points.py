"""What is found of deployments under a load: the batch of each, its figures, and the limits that it keeps."""

import math

from calculon.base.frozen import dataclass
from calculon.base.units import Array, Count, Seconds
from calculon.declarations.serving_figures import ServingFigures
from calculon.serving.passes.row_times import PassTimes

CUTS = (
    "max_batch",
    "memory",
    "token_budget",
    "users",
    "rate",
    "requests",
    "tpot",
    "ttft",
    "prefill",
)
"""What bounds the sequences of a replica."""


_MANY = 1.1
"""Ratio from which a figure is said to be so many times its limit."""


def _apart(one: float, other: float) -> tuple[str, str]:
    """Write two numbers with as many digits, three at least, as tell them apart.

    >>> _apart(7.6, 7.57), _apart(7.5701, 7.57)
    (('7.6', '7.57'), ('7.5701', '7.57'))
    """
    for digits in range(3, 17):
        said = f"{one:.{digits}g}", f"{other:.{digits}g}"
        if said[0] != said[1]:
            break
    return said


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the workload, and what there is.

    Attributes:
        name, unit: The figure that is limited, and its unit.
        most, found: The limit and the figure.
    """

    name: str
    unit: str
    most: float
    found: float

    @property
    def met(self) -> bool:
        """Whether the figure keeps the limit."""
        return self.found <= self.most

    @property
    def in_words(self) -> str:
        """Say the figure and the limit, and by how much it is missed."""
        name = self.name.upper() if len(self.unit) == 1 else self.name
        unit = f" {self.unit}".rstrip()
        if not math.isfinite(self.found):
            return f"{name}: without end, of {self.most:.3g}{unit}"
        if self.met:
            return f"{name}: {self.found:.3g} of {self.most:.3g}{unit}"
        found, most = _apart(self.found, self.most)
        ratio = self.found / self.most
        more = f"{ratio:.3g} times as much" if ratio >= _MANY else f"{100 * (ratio - 1):.2g} % more"
        return f"{name}: {found} of {most}{unit}, {more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitColumn:
    """A limit of the workload, and what there is in each deployment; attributes as of :class:`Limit`."""

    name: str
    unit: str
    most: Array
    found: Array

    @property
    def met(self) -> Array:
        """Which deployments keep the limit."""
        return self.found <= self.most

    def of(self, place: int) -> Limit:
        """Return the limit of one deployment."""
        return Limit(
            name=self.name,
            unit=self.unit,
            most=float(self.most[place]),
            found=float(self.found[place]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A point at which a deployment works.

    Attributes:
        figures: Arrays of one entry.
        batch: Sequences that a replica decodes at a time; for a rate what it takes to keep up.
        cut: What bounds the sequences of a replica: ``memory``, ``max_batch``, ``token_budget``, ``users``, ``rate``,
            ``requests``, ``tpot``, ``ttft`` or ``prefill``.
        decode, prefill: The pass that decodes the batch, and that of one whole prompt.
        limits: Those that the workload states.
        run_time: Seconds of a finite run.
        price, power: Source of the price, and of the power with what is assumed of it; empty without one.
    """

    figures: ServingFigures
    batch: int
    cut: str
    decode: PassTimes
    prefill: PassTimes
    limits: tuple[Limit, ...]
    run_time: float | None
    price: str
    power: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """The points at which deployments work; columns of shape ``(deployments,)``.

    Attributes:
        figures: Meaningless where not a single sequence has room.
        batch: As of :class:`Point`.
        cut: What bounds them, as places in :data:`CUTS`.
        limits: Those that the workload states.
        run_time: Seconds of a finite run.
        room: Where a sequence has room in memory, and in a pass.
        price, power: Source of the price, and of the power with what is assumed of it; empty without one.
    """

    figures: ServingFigures
    batch: Count
    cut: Array
    limits: tuple[LimitColumn, ...]
    run_time: Seconds | None
    room: Array
    price: str
    power: str

    @property
    def feasible(self) -> Array:
        """Which deployments have room, and keep all limits."""
        kept = self.room
        for one in self.limits:
            kept = kept & one.met
        return kept
