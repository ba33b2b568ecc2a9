"""The money of a run: processors rented or bought, storage of checkpoints, experiments.

What is paid is the time that processors are reserved, spares and waiting included. All functions broadcast numbers and
arrays whose last axis is *execution*. A price comes with its kind, source and date (:class:`Quote`).
"""

from math import inf

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.frozen import dataclass
from calculon.base.units import TERA, Array, aged
from calculon.campaign.exponentials import Values
from calculon.hardware.extension import PRICE_KINDS, Own, Price, Spot

HOURS_PER_YEAR = 8766.0
"""Hours of a mean year, of 365.25 days."""

DAYS_PER_MONTH = HOURS_PER_YEAR / 24 / 12

GIVEN, STORAGE = "given", "storage"
"""Kinds of prices beside those of processors: what the user states, and of a TB of storage for a month."""

NO_PRICE = (
    "no price is known of {system}: give US dollars for an hour of a processor (--price 2.5), or ext.price of the "
    "system file"
)
"""Message where there is no cost line."""


_TAKEN_BACK = (
    "the mean hours until a spot processor is taken back",
    "nothing",
    "state them beside the price, or take another price",
)

_ELECTRICITY = (
    "the price of electricity and the power of a processor, since processors are owned",
    "one of them is not known",
    "give USD/kWh (0 where the upkeep has it), and the TDP where the system has no ext.power",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The price of an hour of a processor, or of a TB of storage for a month, and where it is from.

    Attributes:
        usd: US dollars.
        kind: One of :data:`~calculon.hardware.extension.PRICE_KINDS`, ``given`` or ``storage``.
        source, date: Who says so, and when; empty of one that the user gives.
        mtbf_hours: Mean hours until a spot processor is taken back.
    """

    usd: Values
    kind: str
    source: str = ""
    date: str = ""
    mtbf_hours: float | None = None

    @property
    def words(self) -> str:
        """Kind, source and date on a line."""
        kind = self.kind.replace("_", " ")
        return ", ".join(one for one in (kind, self.source, aged(self.date)) if one)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPrice:
    """US dollars for an hour of use of a processor that one owns, by what they are for.

    Attributes:
        capital: Nodes and network, over the hours that they are used.
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
        """What is paid whether the processor works or not."""
        return self.capital + self.upkeep + self.facility

    @property
    def total(self) -> Values:
        """All of it."""
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
    """Return what an hour of use of a processor costs its owner.

    Capital is spread over the hours of use in the life of a node: ``(node + network) / (processors · years · 8766 ·
    utilisation)``; upkeep and facility are paid each year, over the hours of use of a year.

    Args:
        own: ``ext.price.own`` of a system; its `processors` count if it states them.
        processors: Processors of a node.
        power_kw: Mean power of a processor with its share of the node, in kW.
        usd_per_kwh, pue: Price of electricity, and energy of the data centre over that of its machines.
        provisioned_kw: Power for which the building is made, of a processor with its share of the node; `power_kw` if
            absent.
    """
    share = own.processors or processors
    used = HOURS_PER_YEAR * own.utilisation
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
    """Return the price of an hour of a processor that counts; None where none is known.

    Args:
        price: ``ext.price`` of the system.
        kind: The price that is asked for; if absent the first that is stated, in the order of ``PRICE_KINDS``.
        given: US dollars that the user states, which count instead.
        owned: Result of :func:`own_price`, for ``own``; None where electricity has no price.

    Raises:
        SpecError: Where the price that is asked for is not stated; is that of owned processors, without electricity; or
            that of spot processors of which nobody says how long one has them.
    """
    if given is not None:
        return Quote(usd=given, kind=GIVEN)
    stated = () if price is None else price.kinds
    if kind is not None and kind not in stated:
        found = ", ".join(stated) or "no price"
        hint = "give US dollars for an hour of a processor (--price 2.5)"
        raise SpecError("ext.price", Problem(kind, "a price of this kind", found, hint))
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
    """Return the price of a TB of storage for a month, as the user or ``ext.price.storage`` states it; None without."""
    if given is not None:
        return Quote(usd=given, kind=GIVEN)
    stated = None if price is None else price.storage
    if stated is None:
        return None
    return Quote(usd=stated.usd, kind=STORAGE, source=stated.source, date=stated.date)


def rent(processor_hours: Values, usd: Values) -> Array:
    """Return the US dollars for processor-hours at a price for one."""
    return np.multiply(processor_hours, usd)


def storage(size: Values, kept: Values, days: Values, usd_per_tb_month: Values) -> Array:
    """Return the US dollars for keeping so many checkpoints of so many bytes for the days of a run."""
    months = np.divide(days, DAYS_PER_MONTH)
    return np.multiply(size, kept) / TERA * months * usd_per_tb_month


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """US dollars of a run by what they are for.

    Attributes:
        processors: The time that processors are reserved: steps, failures, spares.
        storage: Checkpoints that are kept.
        experiments: Ablations and failed starts beside the run.
        quote: The price of a processor-hour.
        storage_quote: That of storage; None where checkpoints cost nothing.
    """

    processors: Array
    storage: Array
    experiments: Array
    quote: Quote
    storage_quote: Quote | None = None

    @property
    def run(self) -> Array:
        """The run itself, without experiments."""
        return self.processors + self.storage

    @property
    def total(self) -> Array:
        """All of it."""
        return self.run + self.experiments


def money(
    processor_hours: Values,
    price: Quote,
    *,
    stored: Values = 0.0,
    experiments: Values = 0.0,
    storage_quote: Quote | None = None,
) -> Money:
    """Return the money of a run.

    Args:
        processor_hours: Hours that are paid: processors, with spares, times the time from the first step to the last.
        price: Price of one of them.
        stored: Result of :func:`storage`.
        experiments: Compute of experiments as a share of that of the run.
        storage_quote: Price of storage that `stored` is made with, which goes with the result.
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
    """Return the hours of a year from which on a contract, or a purchase, is cheaper than rent on demand.

    It solves ``on_demand · h = per_year + per_hour · h``. More than :data:`HOURS_PER_YEAR`, and infinity, mean never.

    Args:
        on_demand: US dollars for an hour of a processor without a contract.
        per_year: What a processor costs in a year whether it works or not: :func:`contract_year`, :func:`own_year`.
        per_hour: What an hour of use costs beside: electricity of a processor that one owns.

    >>> float(break_even_hours(4.0, contract_year(2.0)) / HOURS_PER_YEAR)
    0.5
    """
    saved = np.subtract(on_demand, per_hour)
    with np.errstate(divide="ignore", invalid="ignore"):
        hours = np.divide(per_year, saved)
    return np.where(saved > 0, hours, inf)[()]


def contract_year(reserved: Values) -> Values:
    """Return what a reserved processor costs in a year: every hour is paid."""
    return reserved * HOURS_PER_YEAR


def own_year(own: Own, price: OwnPrice) -> Values:
    """Return what a processor of one's own costs in a year without electricity."""
    return price.fixed * own.utilisation * HOURS_PER_YEAR
