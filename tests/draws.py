"""How many cases tests try: few by default, ``N`` times as many under ``scripts/test --large N``."""

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

FACTOR = int(os.environ.get("CALCULON_LARGE", "1"))
"""How many times as many cases are drawn as in the full suite."""

SEED = int(os.environ.get("CALCULON_SEED", "1"))
"""Seed of the draws; ``scripts/test --large`` chooses and prints a new one."""


def draws(count: int) -> int:
    """Return how many cases to draw where the full suite draws ``count``."""
    return count * FACTOR


def some(cases: Iterable[T], count: int) -> list[T]:
    """Return ``count`` of the cases of a slow test, drawn once; all of them under ``--large``."""
    cases = list(cases)
    if FACTOR > 1 or count >= len(cases):
        return cases
    chosen = sorted(random.Random(0).sample(range(len(cases)), count))
    return [cases[number] for number in chosen]
