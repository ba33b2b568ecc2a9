"""Silent corruption: results that are wrong without a failure, found later, and the work that has to be done again."""

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, growth, quiet, ratio


def rework(found_after: Values, interval: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected time per useful time where corrupted work is done again from the last clean checkpoint.

    A corruption at a random time is found some time later, and the job goes back to the last checkpoint before it. With
    L until it is found, R for the restart, τ between checkpoints and M between corruptions this is

    ``(M + L + R) (e^(τ/M) − 1)/τ``,

    since a segment is corrupted ``e^(τ/M) − 1`` times before it is clean, each time at the cost of the part before, of
    L and of R. To first order it is ``1 + (τ/2 + L + R)/M``. It is exact for any distribution of L with this mean, as
    further corruption before the discovery is undone with the first. Beside failures
    (:func:`~calculon.campaign.goodput.wall_per_useful`) it is a factor, as long as both are rare: with 3 h between
    failures and an hour until corruption is found, right within 0.1 % for one in 280 h, 0.7 % too much for one in 28 h.

    Args:
        found_after: Mean time of work from a corruption to its discovery (L): half of the time between two checks, if
            checks find it and tell which checkpoints are clean; all of it, if the only clean one is that of the check
            before.
        interval: Work between two checkpoints (τ).
        restart: From the discovery until work goes on (R).
        mtbf: Mean time between corruptions of the whole job (M); infinite if there are none.

    >>> float(rework(3600.0, 600.0, 300.0, np.inf))
    1.0
    """
    rare = ratio(interval, mtbf)
    with quiet():
        found = (1.0 + ratio(np.add(found_after, restart), mtbf)) * growth(rare)
    return np.where(np.isnan(found), np.inf, found)[()]


def checkpoints_to_keep(longest: Values, interval: Values) -> Array:
    """Return how many checkpoints to keep, so that one is older than the longest time until corruption is found.

    Args:
        longest: Longest wall time until it is found; 0 if there is nothing to find.
        interval: Wall time between two checkpoints.

    Returns:
        ``⌈longest/interval⌉ + 1``: just before a save, the newest of n is an interval old, and the oldest n intervals;
        just after it, only n − 1.

    >>> float(checkpoints_to_keep(0.0, 600.0)), float(checkpoints_to_keep(3600.0, 600.0))
    (1.0, 7.0)
    """
    return np.ceil(ratio(longest, interval)) + 1.0
