"""Divisors: the candidates of every degree of parallelism."""

from collections.abc import Iterable
from math import isqrt


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


def zigzag_degrees(length: int, degrees: Iterable[int]) -> list[int]:
    """Return the degrees of which each rank may have two equal parts of a sequence, from the front and from the end.

    >>> zigzag_degrees(24, (1, 2, 3, 4, 5))
    [1, 2, 3, 4]
    """
    return [degree for degree in degrees if length % (2 * degree) == 0]
