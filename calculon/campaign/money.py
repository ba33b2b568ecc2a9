"""Cost of a run: rented or owned processors, checkpoint storage, experiments.

The cost covers all time for which processors are reserved, including spares and waiting. All functions broadcast
numbers and arrays whose last axis is *execution*. A price comes with its kind, source and date (:class:`Quote`).
"""

from math import inf

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import TERA, Array, aged
from calculon.campaign.exponentials import Values
from calculon.hardware.extension import PRICE_KINDS, Own, Price, Spot

HOURS_PER_YEAR = 8766.0
"""Hours of a mean year of 365.25 days."""

DAYS_PER_MONTH = HOURS_PER_YEAR / 24 / 12

GIVEN, STORAGE = "given", "storage"
"""Further kinds of prices: a price that the user states, and a TB of storage for a month."""

NO_PRICE = "{system} states no price: give US dollars per processor-hour (--price 2.5), or ext.price in the system file"
"""Message shown instead of the cost."""


_TAKEN_BACK = (
    "the mean hours until a spot processor is taken back",
    "nothing",
    "state them next to the price, or choose another kind of price",
)

_ELECTRICITY = (
    "the price of electricity and the power of a processor, because the processors are owned",
    "one of them is unknown",
    "give USD/kWh (0 if the upkeep includes it), and the TDP if the system has no ext.power",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Price of a processor-hour, or of a TB of storage for a month, with its source.

    Attributes:
        usd: US dollars.
        kind: One of :data:`~calculon.hardware.extension.PRICE_KINDS`, ``given`` or ``storage``.
        source, date: Source of the price and its date; empty for a price that the user gives.
        mtbf_hours: Mean hours until a spot processor is taken back.
    """

    usd: Values
    kind: str
    source: str = ""
    date: str = ""
    mtbf_hours: float | None = None

    @property
    def words(self) -> str:
        """Kind, source and date on one line."""
        kind = self.kind.replace("_", " ")
        return ", ".join(one for one in (kind, self.source, aged(self.date)) if one)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrice:
    """US dollars per hour of use of an owned processor, by purpose.

    Attributes:
        capital: Nodes and network, spread over the hours of use.
        upkeep: Parts, staff, support.
        facility: The building and its cooling.
        electricity: Energy of the hour.
    """

    capital: Values
    upkeep: Values
    facility: Values
    electricity: Values

    @property
    def fixed(self) -> Values:
        """Cost that is paid whether the processor works or not."""
        return self.capital + self.upkeep + self.facility

    @property
    def total(self) -> Values:
        """Cost of all purposes."""
        return self.fixed + self.electricity


def own_price(
    own: Own,
    processors: Values,
    *,
    power_kw: Values = 0.0,
    usd_per_kwh: Values = 0.0,
    pue: Values = 1.0,
    provisioned_kw: Values | None = None,
) -> OwnPrice:
    """Return the cost of an hour of use of a processor to its owner.

    Capital is spread over the hours of use in the lifetime of a node:
    ``(node + network) / (processors · years · 8766 · utilization)``; upkeep and facility are paid yearly and spread
    over the hours of use of a year.

    Args:
        own: ``ext.price.own`` of a system; its `processors` take precedence if stated.
        processors: Processors of a node.
        power_kw: Mean power of a processor including its share of the node, in kW.
        usd_per_kwh, pue: Price of electricity, and energy of the data center over the energy of its machines.
        provisioned_kw: Power per processor for which the building is designed, including the share of the node;
            `power_kw` if absent.
    """
    share = own.processors or processors
    # owners pay for all hours of a year, and spread the cost over the hours of use
    used = HOURS_PER_YEAR * own.utilization
    node = own.node_usd + own.network_usd
    provisioned = power_kw if provisioned_kw is None else provisioned_kw
    return OwnPrice(
        capital=node / (share * own.years * used),
        upkeep=own.opex_share * node / (share * used),
        facility=own.usd_per_kw * provisioned / used,
        electricity=power_kw * usd_per_kwh * pue,
    )


def quote(
    price: Price | None,
    kind: str | None = None,
    *,
    given: float | None = None,
    owned: OwnPrice | None = None,
) -> Quote | None:
    """Return the price of a processor-hour that applies; None if no price is known.

    Args:
        price: ``ext.price`` of the system.
        kind: The requested kind of price; if absent the first kind that is stated, in the order of ``PRICE_KINDS``.
        given: US dollars that the user states, which take precedence.
        owned: Result of :func:`own_price`, for the kind ``own``; None if electricity has no price.

    Raises:
        SpecError: If the requested price is not stated; if it is the price of owned processors but electricity has no
            price; or if it is a spot price without the mean hours until a processor is taken back.
    """
    if given is not None:
        return Quote(usd=given, kind=GIVEN)
    stated = () if price is None else price.kinds
    if kind is not None and kind not in stated:
        found = ", ".join(stated) or "no price"
        hint = "give US dollars per processor-hour (--price 2.5)"
        raise SpecError("ext.price", Problem(kind, "a price of this kind", found, hint))
    # without a kind, a price of owned processors is skipped if it cannot be computed, rather than refused
    usable = [one for one in stated if one != PRICE_KINDS[-1] or owned is not None]
    if price is None or (kind is None and not usable):
        return None
    chosen = kind or usable[0]
    found = getattr(price, chosen)
    if isinstance(found, Spot) and found.mtbf_hours is None:
        raise SpecError("ext.price", Problem("spot.mtbf_hours", *_TAKEN_BACK))
    if isinstance(found, Own):
        if owned is None:
            raise SpecError("campaign", Problem("fleet.usd_per_kwh", *_ELECTRICITY))
        usd = owned.total
    else:
        usd = found.usd
    return Quote(
        usd=usd,
        kind=chosen,
        source=found.source,
        date=found.date,
        mtbf_hours=getattr(found, "mtbf_hours", None),
    )


def storage_quote(price: Price | None, *, given: float | None = None) -> Quote | None:
    """Return the price of a TB of storage for a month, as the user or ``ext.price.storage`` states it, or None."""
    if given is not None:
        return Quote(usd=given, kind=GIVEN)
    stated = None if price is None else price.storage
    if stated is None:
        return None
    return Quote(usd=stated.usd, kind=STORAGE, source=stated.source, date=stated.date)


def rent(processor_hours: Values, usd: Values) -> Array:
    """Return the US dollars for processor-hours at a price per hour."""
    return np.multiply(processor_hours, usd)


def storage(size: Values, kept: Values, days: Values, usd_per_tb_month: Values) -> Array:
    """Return the US dollars for storing a number of checkpoints for the days of a run."""
    months = np.divide(days, DAYS_PER_MONTH)
    return np.multiply(size, kept) / TERA * months * usd_per_tb_month


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """US dollars of a run, by purpose.

    Attributes:
        processors: Reserved processor time: steps, failures, spares.
        storage: Checkpoints that are kept.
        experiments: Ablations and failed starts, in addition to the run.
        quote: Price of a processor-hour.
        storage_quote: Price of storage; None if checkpoints cost nothing.
    """

    processors: Array
    storage: Array
    experiments: Array
    quote: Quote
    storage_quote: Quote | None = None

    @property
    def run(self) -> Array:
        """Cost of the run itself, without experiments."""
        return self.processors + self.storage

    @property
    def total(self) -> Array:
        """Cost of the run and of experiments."""
        return self.run + self.experiments


def money(
    processor_hours: Values,
    price: Quote,
    *,
    stored: Values = 0.0,
    experiments: Values = 0.0,
    storage_quote: Quote | None = None,
) -> Money:
    """Return the cost of a run.

    Args:
        processor_hours: Paid hours: processors, including spares, times the time from the first step to the last.
        price: Price of a processor-hour.
        stored: Result of :func:`storage`.
        experiments: Compute of experiments as a share of the compute of the run.
        storage_quote: Price of storage used for `stored`, which is passed on to the result.
    """
    paid = rent(processor_hours, price.usd)
    return Money(
        processors=paid,
        storage=np.broadcast_to(stored, np.shape(paid)),
        experiments=paid * experiments if np.any(experiments) else np.zeros_like(paid),
        quote=price,
        storage_quote=storage_quote,
    )


def break_even_hours(on_demand: Values, per_year: Values, per_hour: Values = 0.0) -> Array:
    """Return the hours per year from which a contract, or a purchase, is cheaper than on-demand rent.

    It solves ``on_demand · h = per_year + per_hour · h``. More than :data:`HOURS_PER_YEAR`, and infinity, mean never.

    Args:
        on_demand: US dollars per processor-hour without a contract.
        per_year: Yearly cost of a processor whether it works or not: :func:`contract_year`, :func:`own_year`.
        per_hour: Additional cost of an hour of use: the electricity of an owned processor.

    >>> float(break_even_hours(4.0, contract_year(2.0)) / HOURS_PER_YEAR)
    0.5
    """
    saved = np.subtract(on_demand, per_hour)
    with np.errstate(divide="ignore", invalid="ignore"):
        # without a saving per hour a purchase never breaks even; the mask below makes that infinity
        hours = np.divide(per_year, saved)
    return np.where(saved > 0, hours, inf)[()]


def contract_year(reserved: Values) -> Values:
    """Return the yearly cost of a reserved processor: every hour is paid."""
    return reserved * HOURS_PER_YEAR


def own_year(own: Own, price: OwnPrice) -> Values:
    """Return the yearly cost of an owned processor, without electricity."""
    return price.fixed * own.utilization * HOURS_PER_YEAR
