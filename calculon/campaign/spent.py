"""What failures and checkpoints add to the work of a run, by what the time goes to."""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.campaign.exponentials import Values, curvature, growth, quiet, ratio
from calculon.campaign.goodput import Pair, two_levels


@dataclass(frozen=True, slots=True)
class Spent:
    """Times for each unit of work, which add up to :func:`~calculon.campaign.goodput.wall_per_useful` less 1.

    Attributes:
        saving: Work that waits for saves.
        lost: Work, and saves, that failures destroy.
        restart: Restarts, those that fail again, too.
    """

    saving: Array
    lost: Array
    restart: Array

    @property
    def total(self) -> Array:
        """All of it."""
        return self.saving + self.lost + self.restart


def spent(interval: Values, save: Values, restart: Values, mtbf: Values) -> Spent:
    """Split the exact law of Daly (2006, equation 20) into what its time goes to.

    With x = (τ + δ)/M and r = R/M there are e^x - 1 failures at work for each interval τ. A restart that nothing may
    interrupt takes M (e^r - 1) until it succeeds; M (e^x - 1) - (τ + δ) of work is lost. Arguments as in
    :func:`~calculon.campaign.goodput.wall_per_useful`.
    """
    with quiet():
        held_up = 1.0 + ratio(save, interval)
        x, r = ratio(np.add(interval, save), mtbf), ratio(restart, mtbf)
        lost = held_up * x * curvature(x)
        again = held_up * growth(x) * r * growth(r)
    return Spent(np.asarray(ratio(save, interval)), np.asarray(lost), np.asarray(again))


def spent_with_copies(
    intervals: Pair, saves: Pair, restarts: Pair, mtbf: Values, beyond_memory: Values
) -> Spent:
    """Split the exact law of two levels of checkpoints likewise; arguments as in :func:`two_levels`.

    Restarts that fail again count once; the rest of their time is with the work that is lost.
    """
    total = two_levels(intervals, saves, restarts, mtbf, beyond_memory) - 1.0
    saving = ratio(saves[0], intervals[0]) + ratio(saves[1], intervals[1])
    mean = (1.0 - np.asarray(beyond_memory)) * restarts[0] + np.multiply(beyond_memory, restarts[1])
    again = np.minimum(ratio(1.0 + total, mtbf) * mean, total - saving)
    return Spent(np.asarray(saving), np.asarray(total - saving - again), np.asarray(again))
