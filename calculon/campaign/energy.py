"""Energy, carbon and water of a run.

A processor draws full power during the share of a step in which it computes layers. In the rest of the step, and while
the run waits, its ranks poll for messages, which takes more power than idling. Nodes and the data center add their
share. All functions broadcast numbers and arrays whose last axis is *execution*.
"""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import KILO, MEGA, Array
from calculon.campaign.exponentials import Values
from calculon.hardware.extension import Power

STEPPING_SHARE = 0.85
"""Power of a processor in a step over its TDP, if it was not measured. An assumption."""

WAITING_SHARE = 0.4
"""Power of a waiting processor over its TDP, if it was not measured. An assumption."""

SPINNING_SHARE = 0.55
"""Power of a processor whose ranks poll in collectives over its TDP, if only idle and load were measured.

NCCL's kernels occupy multiprocessors while they wait. An assumption.
"""

OVERHEAD_SHARE = 0.40
"""Power of the rest of a node over the power of its processors, if the system states none: air-cooled nodes of 8.

Sources: a node of 8 H100 draws at most 8.4 kW in training (Latif et al. 2024, arXiv:2412.08602), and 76 % of its rated
10.2 kW under intensive work (arXiv:2506.14551): 7.75 kW, 38 % more than 5.6 kW, the TDP of its 8 processors.
"""

ASSUMED = {
    "stepping": f"{STEPPING_SHARE:g} of the TDP in steps",
    "waiting": f"{WAITING_SHARE:g} of the TDP while waiting",
    "spinning": f"{SPINNING_SHARE:g} of the TDP while ranks poll",
    "overhead": f"rest of a node draws {OVERHEAD_SHARE:.0%} of its processors' power, as in air-cooled nodes of 8 H100",
}
"""Assumptions that replace figures nobody measured, in words."""

NO_POWER = "{system} states no power: give the TDP of a processor in W (--tdp 700), or ext.power in the system file"
"""Message shown instead of the energy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDraw:
    """Power draw of a fleet, with the sources of its figures.

    Attributes:
        tdp: Thermal design power of a processor in W.
        stepping, waiting, idle: Mean power of a processor in W: during steps, while the run waits, and without a job.
        node: Power of the rest of a node in W; None if it is a share of the power of the processors.
        share: Power of the rest of a node over the power of its processors, used if `node` is None.
        assumed: Keys of :data:`ASSUMED` for figures that were not measured.
        source, date: Source of the figures; empty for a TDP that the user states.
    """

    tdp: Values
    stepping: Values
    waiting: Values
    idle: Values
    node: Values | None
    share: Values = OVERHEAD_SHARE
    assumed: tuple[str, ...]
    source: str = ""
    date: str = ""

    @property
    def estimate(self) -> bool:
        """True if the power in steps was not measured, so that the energy is an estimate from the data sheet."""
        return "stepping" in self.assumed

    @property
    def words(self) -> str:
        """Data sheet or measurement, and the assumptions, on one line."""
        what = "TDP" if self.estimate else "measured"
        parts = [f"{what}, {self.source}" if self.source else what, self.date]
        known = ", ".join(one for one in parts if one)
        guessed = "; ".join(ASSUMED[one] for one in self.assumed)
        return f"{known}; assumptions: {guessed}" if guessed else known

    def per_processor(self, processors: Values, nodes: Values) -> Values:
        """Return the power of a processor in steps, including its share of the node, in W."""
        if self.node is None:
            return self.stepping * (1.0 + self.share)
        return self.stepping + self.node * nodes / processors


def power_draw(
    power: Power | None, utilization: Values = 1.0, *, tdp: float | None = None
) -> PowerDraw | None:
    """Return the power draw of processors that run a plan; None if the system states no power.

    If idle and load power were measured, a processor draws ``load`` in the share `utilization` of a step and ``spin``
    in the rest. Otherwise its power is a fixed share of the TDP for every plan.

    Args:
        power: ``ext.power`` of the system.
        utilization: Share of a step in which processors compute layers or the optimizer step, so that an engine or the
            memory is busy (statistic ``system_efficiency``); in the rest they wait for each other.
        tdp: TDP in W that the user states; it overrides all power figures of the system.
    """
    if tdp is not None:
        return _of_tdp(tdp)
    if power is None:
        return None
    if power.load is None or power.idle is None:
        return _of_tdp(power.tdp, power)
    assumed = []
    spin = power.spin
    if spin is None:
        # the assumed share may lie outside the measured range of power-capped or very efficient processors
        spin = np.clip(SPINNING_SHARE * power.tdp, power.idle, power.load)
        assumed.append("spinning")
    assumed += _assumed_of_node(power)
    return PowerDraw(
        tdp=power.tdp,
        stepping=spin + (power.load - spin) * np.asarray(utilization),
        waiting=spin,
        idle=power.idle,
        node=power.overhead,
        share=_share(power),
        assumed=tuple(assumed),
        source=power.source,
        date=power.date,
    )


def _of_tdp(tdp: Values, power: Power | None = None) -> PowerDraw:
    """Return the power draw as fixed shares of the TDP; `power` may state the rest of a node."""
    node = None if power is None else power.overhead
    return PowerDraw(
        tdp=tdp,
        stepping=STEPPING_SHARE * tdp,
        waiting=WAITING_SHARE * tdp,
        idle=WAITING_SHARE * tdp,
        node=node,
        share=_share(power),
        assumed=("stepping", "waiting", *_assumed_of_node(power)),
        source="" if power is None else power.source,
        date="" if power is None else power.date,
    )


def _share(power: Power | None) -> float:
    """Return the power of the rest of a node over the power of its processors."""
    stated = None if power is None else power.overhead_share
    return OVERHEAD_SHARE if stated is None else stated


def _assumed_of_node(power: Power | None) -> list[str]:
    """Return the key of the assumption about the rest of a node, if the system states no figure for it."""
    known = power is not None and (power.overhead, power.overhead_share) != (None, None)
    return [] if known else ["overhead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of a run in kWh, by consumer.

    Attributes:
        stepping: Processors during steps.
        waiting: Processors while the run waits: saves, restarts, nodes in repair.
        spares: Processors of spare nodes.
        nodes: The rest of the nodes: hosts, network cards, fans.
        facility: The data center: cooling, losses. 0 if no PUE is given.
        card: TDP times hours, the convention of model cards: no nodes, no data center. Not part of the total.
        power_draw: The power figures with their source.
    """

    stepping: Array
    waiting: Array
    spares: Array
    nodes: Array
    facility: Array
    card: Array
    power_draw: PowerDraw

    @property
    def machines(self) -> Array:
        """Energy of the machines, without the data center."""
        return self.stepping + self.waiting + self.spares + self.nodes

    @property
    def total(self) -> Array:
        """Energy of machines and data center."""
        return self.machines + self.facility


def energy(
    power: PowerDraw,
    processors: Values,
    nodes: Values,
    *,
    busy_hours: Values,
    waiting_hours: Values = 0.0,
    spare_nodes: Values = 0.0,
    pue: Values = 1.0,
) -> Energy:
    """Return the energy of a run.

    ``[n · (stepping · t_busy + waiting · t_waiting) + spares + nodes] · PUE``

    Args:
        power: Result of :func:`power_draw`.
        processors, nodes: Processors and nodes of the job, without spares.
        busy_hours: Hours of steps, including steps that are repeated.
        waiting_hours: Hours of the rest of the run, while the job holds its processors.
        spare_nodes: Spare nodes, idle during the whole run.
        pue: Energy of the data center over the energy of its machines.
    """
    busy, waiting = np.asarray(busy_hours, dtype=float), np.asarray(waiting_hours, dtype=float)
    hours = busy + waiting
    stepping = np.multiply(processors, power.stepping) * busy / KILO
    idling = np.multiply(processors, power.waiting) * waiting / KILO
    spare_processors = np.multiply(spare_nodes, np.divide(processors, nodes))
    spares = spare_processors * power.idle * hours / KILO
    # the rest of a node scales with its processors if only a share is known; a stated power is drawn all the time
    if power.node is None:
        rest = power.share * (stepping + idling + spares)
    else:
        rest = np.add(nodes, spare_nodes) * power.node * hours / KILO
    # PUE multiplies the energy of all machines, spares and hosts included
    machines = stepping + idling + spares + rest
    return Energy(
        stepping=stepping,
        waiting=idling,
        spares=spares,
        nodes=rest,
        facility=machines * np.subtract(pue, 1.0),
        card=card_energy(np.add(processors, spare_processors) * hours, power.tdp),
        power_draw=power,
    )


def card_energy(processor_hours: Values, tdp: Values, pue: Values = 1.0) -> Array:
    """Return the energy in kWh as model cards state it: processor-hours times TDP in W, times PUE if they include it.

    Source: Touvron et al., arXiv:2302.13971, section 6 (with PUE), and arXiv:2307.09288, section 2.2.1 (without).
    """
    return np.multiply(processor_hours, tdp) * pue / KILO


def carbon(kwh: Values, g_per_kwh: Values) -> Array:
    """Return the tonnes of CO2 for an energy.

    The carbon intensity of the grid gives location-based emissions, the one of contracts market-based emissions.

    >>> float(carbon(1000.0, 500.0))
    0.5
    """
    return np.multiply(kwh, g_per_kwh) / MEGA


def water(kwh: Values, wue: Values) -> Array:
    """Return the litres of cooling water for an energy of the machines, by the water usage effectiveness (WUE)."""
    return np.multiply(kwh, wue)
