"""What the processors of a system cost: rented by the hour, or bought; no time depends on it."""

from calculon.base.frozen import dataclass
from calculon.declarations.fields import declare
from calculon.hardware.dated import DAY, SOURCE, check_dated

OPEX_SHARE = 0.08
"""Upkeep of a bought node per year as a share of its price: spare parts, staff, support. Source: an assumption."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """The price of a rented processor."""

    usd: float = declare("price of an hour of a processor", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The price of a processor that its owner may take back."""

    usd: float = declare("price of an hour of a processor", unit="USD/h", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    mtbf_hours: float | None = declare(
        "mean hours until a processor is taken back; without it whoever runs on spot processors has to say",
        unit="h",
        above=0,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What bought processors cost: capital over the hours that they are used, and upkeep."""

    node_usd: float = declare("price of a node", unit="USD", above=0)
    years: float = declare("years until a node is worth nothing", above=0)
    utilisation: float = declare(
        "share of these years in which somebody uses it", above=0, at_most=1
    )
    source: str = declare(SOURCE)
    date: str = declare(DAY)
    opex_share: float = declare(
        "upkeep per year (parts, staff, support) as a share of the price; the default is an assumption",
        at_least=0,
        default=OPEX_SHARE,
    )
    network_usd: float = declare(
        "price of switches, cables and storage, for each node", unit="USD", at_least=0, default=0.0
    )
    usd_per_kw: float = declare(
        "price of the building with its cooling, for a kW of the nodes and a year",
        unit="USD/(kW year)",
        at_least=0,
        default=0.0,
    )
    processors: int | None = declare(
        "processors of a node that is bought; if absent those that share its innermost network or its host",
        at_least=1,
        default=None,
    )

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The price of storage, where checkpoints are kept."""

    usd: float = declare("price of a TB (1e12 bytes) for a month", unit="USD/month", above=0)
    source: str = declare(SOURCE)
    date: str = declare(DAY)

    def __post_init__(self) -> None:
        """Check source and date."""
        check_dated(self)


RENTS = ("on_demand", "reserved", "spot")
"""Kinds of rent, as fields of :class:`Price`."""

PRICE_KINDS = (*RENTS, "own")
"""Ways to pay for processors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What processors and storage cost, each in the ways that are known; no default is anybody's price."""

    on_demand: Rent | None = declare("rent without a contract", default=None)
    reserved: Rent | None = declare(
        "rent by a contract, of a year unless its source says another", default=None
    )
    spot: Spot | None = declare("rent of what may be taken back", default=None)
    own: Own | None = declare("bought", default=None)
    storage: Storage | None = declare("storage of checkpoints", default=None)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Ways to pay for processors that are stated, in the order of :data:`PRICE_KINDS`."""
        return tuple(kind for kind in PRICE_KINDS if getattr(self, kind) is not None)
