"""Divisors: the candidates of every degree of parallelism."""

from math import isqrt


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
