"""Significant digits of numbers on a page: as many as the prediction interval of the iteration time supports.

Every figure that follows from the iteration time is as uncertain as the time itself and is rounded in the same way.
Parts of a sum have one more decimal, so that they still add up. Counts (FLOP, bytes, parameters) are exact and not
rounded here.
"""

from collections.abc import Iterable

from calculon.base.frozen import dataclass
from calculon.base.units import duration, known, known_decimals, scaled, significant
from calculon.base.units import gib as short_gib
from calculon.render.texts import capacity, figure, gib, percent, seconds

WITHOUT_INTERVAL = 0.05
"""Spread of a result without a prediction interval: three digits, since times rarely deserve four."""

MIN_SPREAD = 1e-3
"""Spread of an interval narrower than the measurement noise: four digits."""


@dataclass(frozen=True, slots=True)
class Digits:
    """Rounding of the numbers of a result.

    Attributes:
        spread: Half the width of the prediction interval of the iteration time, divided by the time. 0 formats numbers
            as edition sc23 does: times with four digits, shares with decimals.
    """

    spread: float = 0.0

    @classmethod
    def within(cls, value: float, low: float | None, high: float | None) -> "Digits":
        """Return the rounding that an interval supports for a value; three digits without an interval.

        >>> Digits.within(10.0, 8.0, 12.0), Digits.within(10.0, None, 12.0)
        (Digits(spread=0.2), Digits(spread=0.05))
        """
        if low is None or high is None:
            return cls(WITHOUT_INTERVAL)
        return cls((high - low) / 2 / value)

    @property
    def closer(self) -> "Digits":
        """Rounding with one more digit, for numbers that are compared with each other."""
        return Digits(self.spread / 10)

    def _error(self, value: float, like: float | None) -> float:
        return self.spread * (value if like is None else like)

    def duration(self, time: float, like: float | None = None) -> str:
        """Format a time; `like` is another time whose error it shares (an end of its interval).

        >>> Digits(0.11).duration(5.993), Digits().duration(5.993)
        ('6.0 s', '5.993 s')
        """
        return duration(time, self._error(time, like))

    def rate(self, value: float, like: float | None = None) -> str:
        """Format a rate; `like` as in :meth:`duration`.

        >>> Digits(0.11).rate(699_832.0), Digits(0.11).rate(40_239_814.2), Digits().rate(699_832.0)
        ('700,000', '40 M', '699,832')
        """
        if not self.spread:
            return figure(value)
        error = self._error(value, like)
        return known(value, error) if value < 1e6 else scaled(value, error=error)

    def small(self, rate: float) -> str:
        """Format a rate of one processor, with four digits if its error is unknown."""
        return known(rate, self.spread * rate) if self.spread else significant(rate)

    def quantity(self, rate: float, unit: str) -> str:
        """Format a rate with a suitable prefix.

        >>> Digits(0.11).quantity(5.628e14, "FLOP/s"), Digits().quantity(5.628e14, "FLOP/s")
        ('560 TFLOP/s', '562.8 TFLOP/s')
        """
        return scaled(rate, unit, digits=1, error=self.spread * rate)

    def efficiency(self, share: float, like: float | None = None) -> str:
        """Format a share of the peak (MFU), which is as uncertain as the time; `like` as in :meth:`duration`.

        >>> Digits(0.11).efficiency(0.5691), Digits(0.02).efficiency(0.5691), Digits().efficiency(0.5691)
        ('57 %', '56.9 %', '56.91 %')
        """
        if not self.spread:
            return f"{share * 100:.2f} %"
        return f"{known(share * 100, self._error(share, like) * 100, most=3)} %"

    def share(self, share: float) -> str:
        """Format a share of the time or of the memory.

        >>> Digits(0.11).share(0.4934), Digits(0.11).share(0.0002), Digits().share(0.4934)
        ('49 %', '<1 %', '49.3 %')
        """
        if not self.spread:
            return percent(share)
        return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"

    def seconds(self, values: Iterable[float], largest: float) -> list[str]:
        """Format parts of a time in the unit that suits the largest, with one more decimal than the largest.

        >>> Digits(0.11).seconds([4.036, 0.0789, 0.0002, 0], 5.993)
        ['4.04 s', '0.08 s', '<0.01 s', '0.00 s']
        """
        if not self.spread or not largest:
            return seconds(values, largest)
        factor, unit = (1e6, "us") if largest < 1e-3 else (1e3, "ms") if largest < 1 else (1.0, "s")
        whole = largest * factor
        decimals = min(3, max(0, known_decimals(whole, self.spread * whole) + 1))
        least = 10.0**-decimals
        return [
            f"<{least:.{decimals}f} {unit}"
            if 0 < value * factor < least / 2
            else f"{value * factor:,.{decimals}f} {unit}"
            for value in values
        ]

    def capacity(self, size: float) -> str:
        """Format the capacity of a memory, without a trailing ``.0``."""
        return self.gib(size).replace(".0 ", " ") if self.spread else capacity(size)

    def gib(self, size: float) -> str:
        """Format a size of memory with one decimal; the published edition has two.

        >>> from calculon.base.units import GIB
        >>> Digits(0.11).gib(61.81 * GIB), Digits(0.11).gib(0.02 * GIB), Digits().gib(61.81 * GIB)
        ('61.8 GiB', '20.5 MiB', '61.81 GiB')
        """
        return short_gib(size) if self.spread else gib(size)

    def left(self, size: float) -> str:
        """Format the free memory, or the missing memory.

        >>> from calculon.base.units import GIB
        >>> Digits(0.11).left(2 * GIB), Digits(0.11).left(-2 * GIB)
        ('2.0 GiB free', '2.0 GiB too much')
        """
        return f"{self.gib(size)} free" if size >= 0 else f"{self.gib(-size)} too much"
