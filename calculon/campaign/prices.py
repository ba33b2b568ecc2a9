"""Prices of processors across the catalog, and carbon intensity of electricity by grid."""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, ClassVar

from calculon.base.errors import Problem, SpecError, nearest
from calculon.base.frozen import dataclass
from calculon.declarations import catalog
from calculon.declarations.fields import LARGEST_NUMBER, Declaration, shown
from calculon.declarations.files import read_document
from calculon.declarations.overlay import BASE

# Prices of the same processor across the catalog: in its own system file, and in the files of clouds that rent it out.


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Range of the prices of one kind for an hour of the same processor.

    Attributes:
        low, high: Lowest and highest price, in US dollars per hour.
        systems: Number of systems in the catalog that state a price.
    """

    low: float
    high: float
    systems: int

    @property
    def in_words(self) -> str:
        """The range on one line.

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
        None if fewer than two systems with this processor state a price.
    """
    processor = processor_of(system)
    same_processor = [name for name in _documents() if processor_of(name) == processor]
    prices = [usd for name in same_processor for usd in _stated(_documents()[name], kind)]
    return PriceRange(min(prices), max(prices), len(prices)) if len(prices) > 1 else None


def processor_of(system: str) -> str:
    """Return the system whose processor a cloud instance rents out; for any other system its own name.

    >>> processor_of("azure_nd_h100_v5"), processor_of("h100_80g_pcie")
    ('h100_80g_sxm', 'h100_80g_pcie')
    """
    document = _documents().get(system, {})
    base = document.get(BASE)
    rents = (document.get("about") or {}).get("cloud")
    return processor_of(base) if rents and isinstance(base, str) else system


def maker_of(system: str) -> str:
    """Return the manufacturer of the processor of a system; empty if the catalog does not state it.

    >>> maker_of("azure_nd_h100_v5"), maker_of("tpu_v4"), maker_of("a_file_of_mine")
    ('NVIDIA', 'Google', '')
    """
    about = _documents().get(processor_of(system), {}).get("about") or {}
    return str(about.get("family", "")).partition(" ")[0]


def _stated(document: Mapping[str, Any], kind: str) -> Iterator[float]:
    """Yield the price that a file states itself, not the price of its base."""
    # raw documents: a price inherited through an overlay would count the same source twice
    price = ((document.get("ext") or {}).get("price") or {}).get(kind)
    if price is not None and "usd" in price:
        yield float(price["usd"])


@cache
def _documents() -> dict[str, Mapping[str, Any]]:
    """Return the raw documents of the systems in the catalog, by name."""
    found = {name: read_document(str(path)) for name, path in catalog.names("system").items()}
    return {name: raw for name, raw in found.items() if isinstance(raw, Mapping)}


# Carbon intensity of electricity by name of the grid, from ``systems/grids.csv`` of the catalog.

FILE = "grids.csv"

_GRAMS = Declaration(help="carbon intensity of the electricity", unit="g/kWh", at_least=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The electricity grid of a country or a state.

    Attributes:
        name: Name of the grid; empty for a number that the user gives.
        g_co2_per_kwh: Grams of CO2 per kWh, location-based.
        source, date: Source of the figure, and its year.
    """

    name: str
    g_co2_per_kwh: float
    source: str = ""
    date: str = ""

    @property
    def words(self) -> str:
        """Name, source and year on one line."""
        return ", ".join(one for one in (self.name, self.source, self.date) if one)


class Carbon(float):
    """Grams of CO2 per kWh; in files a number, or the name of a grid.

    Attributes:
        grid: The grid that the number belongs to.
    """

    __slots__ = ("grid",)
    WANTED: ClassVar = "a number of g/kWh, or the name of a grid"

    grid: Grid

    @classmethod
    def of(cls, grid: Grid) -> "Carbon":
        """Return the carbon intensity of a grid."""
        result = cls(grid.g_co2_per_kwh)
        result.grid = grid
        return result

    @classmethod
    def decode(cls, raw: object, path: str, problems: list[Problem], scale: float) -> "Carbon":
        """Decode ``57`` or ``france``."""
        if isinstance(raw, (str, float, int)) and not isinstance(raw, bool):
            try:
                return cls.of(carbon_of(raw, path))
            except SpecError as error:
                problems += error.problems
        else:
            problems.append(Problem(path, cls.WANTED, shown(raw)))
        return cls.of(Grid(name="", g_co2_per_kwh=0.0))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a carbon intensity."""
        return {"type": ["number", "string"], "minimum": 0, "maximum": LARGEST_NUMBER}

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the recipe for pickle and copy, which keeps the grid."""
        return Carbon.of, (self.grid,)


@cache
def grids() -> dict[str, Grid]:
    """Return the known grids by name, in alphabetical order."""
    return {grid.name: grid for grid in _by_word().values()}


def carbon_of(text: str | float, place: str = "carbon") -> Grid:
    """Return the grid for a name, such as ``france`` or ``us-va``, or for a number in g/kWh.

    Args:
        text: Text that the user wrote.
        place: Field to name in messages.

    Raises:
        SpecError: For an unknown name, and for a number below 0.
    """
    word = str(text).strip().lower()
    try:
        number = float(word)
    except ValueError:
        known = _by_word()
        spelled = " ".join(word.replace("_", " ").split())
        if spelled in known:
            return known[spelled]
        wanted = "a number of g/kWh, or a grid of systems/grids.csv such as france"
        hint = (
            nearest(spelled, list(known))
            or f"known grids: {', '.join(grids())}, and their codes such as us-va"
        )
        raise SpecError("grid", Problem(place, wanted, shown(text), hint)) from None
    if problem := _GRAMS.problem(float, number, place):
        raise SpecError("grid", problem)
    return Grid(name="", g_co2_per_kwh=number)


@cache
def _by_word() -> dict[str, Grid]:
    """Return the grids by all of their names and aliases."""
    known: dict[str, Grid] = {}
    folder = catalog.root() / catalog.KINDS["system"]
    with (folder / FILE).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            grams = float(row["g_co2_per_kwh"])
            grid = Grid(
                name=row["grid"], g_co2_per_kwh=grams, source=row["source"], date=row["year"]
            )
            known |= dict.fromkeys([row["grid"], *row["aliases"].split()], grid)
    return known
