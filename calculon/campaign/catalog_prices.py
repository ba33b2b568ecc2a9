"""Prices of the same processor across the catalog: of its own system, and of the clouds that rent it."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.files import read_document
from calculon.declarations.overlay import BASE


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Prices of one kind for an hour of the same processor.

    Attributes:
        low, high: The least and the most, in US dollars for an hour.
        systems: Systems of the catalog that state one.
    """

    low: float
    high: float
    systems: int

    @property
    def in_words(self) -> str:
        """The range on a line.

        >>> PriceRange(2.95, 12.29, 5).in_words
        '2.95 to 12.29 USD/h in 5 systems of the catalog'
        """
        return f"{self.low:,.2f} to {self.high:,.2f} USD/h in {self.systems} systems of the catalog"


def price_range(system: str, kind: str) -> PriceRange | None:
    """Return the range of the prices of a kind for the processor of a system.

    Args:
        system: Name of a system.
        kind: One of :data:`~calculon.hardware.extension.PRICE_KINDS`.

    Returns:
        None where fewer than two systems with this processor state one.
    """
    own = processor_of(system)
    alike = [name for name in _documents() if processor_of(name) == own]
    found = [usd for name in alike for usd in _stated(_documents()[name], kind)]
    return PriceRange(min(found), max(found), len(found)) if len(found) > 1 else None


def processor_of(system: str) -> str:
    """Return the system whose processor an instance of a cloud rents out; of others their own name.

    >>> processor_of("azure_nd_h100_v5"), processor_of("h100_80g_pcie")
    ('h100_80g_sxm', 'h100_80g_pcie')
    """
    document = _documents().get(system, {})
    base = document.get(BASE)
    rents = (document.get("about") or {}).get("cloud")
    return processor_of(base) if rents and isinstance(base, str) else system


def maker_of(system: str) -> str:
    """Return who makes the processor of a system; empty if the catalog does not say.

    >>> maker_of("azure_nd_h100_v5"), maker_of("tpu_v4"), maker_of("a_file_of_mine")
    ('NVIDIA', 'Google', '')
    """
    about = _documents().get(processor_of(system), {}).get("about") or {}
    return str(about.get("family", "")).partition(" ")[0]


def _stated(document: Mapping[str, Any], kind: str) -> Iterator[float]:
    """Yield the price that a file itself states, not that of its base."""
    price = ((document.get("ext") or {}).get("price") or {}).get(kind)
    if price is not None and "usd" in price:
        yield float(price["usd"])


@cache
def _documents() -> dict[str, Mapping[str, Any]]:
    """Return the systems of the catalog as their files have them, by name."""
    found = {name: read_document(str(path)) for name, path in catalog.names("system").items()}
    return {name: raw for name, raw in found.items() if isinstance(raw, Mapping)}
