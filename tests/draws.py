"""How many random cases tests draw: few by default, ``N`` times as many under ``scripts/test --large N``."""

import os

FACTOR = int(os.environ.get("CALCULON_LARGE", "1"))
"""How many times as many cases are drawn as in the full suite."""

SEED = int(os.environ.get("CALCULON_SEED", "1"))
"""Seed of the draws; ``scripts/test --large`` chooses and prints a new one."""


def draws(count: int) -> int:
    """Return how many cases to draw where the full suite draws ``count``."""
    return count * FACTOR
