"""Failures and checkpoints: wall time per second of useful work, and the interval between saves that makes it least.

Failures come at random (exponential, mean time `mtbf`) at any time: at work, while a checkpoint is saved, and while
the job restarts, which then restarts once more. All times are in the same unit; arguments broadcast.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974) 530;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303.
"""

import numpy as np

from calculon.campaign.exponentials import Values, curvature, growth, quiet, ratio
from calculon.units import Array

_STEPS = 6
"""Newton steps: four reach the last digit from the start that is taken, and two are to spare."""


def wall_per_useful(interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected wall time per useful time, exactly: the inverse of goodput.

    Daly 2006, equation 20: ``(M/τ) e^(R/M) (e^((τ+δ)/M) − 1)``; ``1 + δ/τ`` without failures.

    Parameters
    ----------
    interval
        Useful work between two saves (τ); infinite if nothing is ever saved.
    save
        Time for which a save holds up the work (δ).
    restart
        From a failure until work goes on (R): detection, restart and loading.
    mtbf
        Mean time between failures of the job (M); infinite without failures.

    Returns
    -------
    Array
        At least 1; infinite where the run never ends, as far as a float can tell.

    >>> float(wall_per_useful(817.0, 30.0, 300.0, np.inf)) == 1 + 30 / 817
    True
    """
    with quiet():
        held_up = 1.0 + ratio(save, interval)
        found = growth(ratio(np.add(interval, save), mtbf)) * np.exp(ratio(restart, mtbf))
        return found * held_up


def first_order(interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the wall time per useful time to first order, which is too little (Young 1974): a limit of the exact law.

    ``1 + δ/τ + (τ/2 + R)/M``; the error is of the order of ((τ + δ + R)/M)² and of δ/M.
    """
    lost = np.divide(interval, 2.0) + restart
    return 1.0 + ratio(save, interval) + ratio(lost, mtbf)


def young(save: Values, mtbf: Values) -> Array:
    """Return Young's interval between saves, ``√(2 δ M)``: too long by about a third of √(2 δ/M)."""
    return _root(save, mtbf)


def daly(save: Values, mtbf: Values) -> Array:
    """Return Daly's interval: ``√(2δM) (1 + √(δ/2M)/3 + δ/18M) − δ`` where δ < 2 M, else M (2006, equation 37).

    It is the third order in √(2 δ/M) of :func:`best_interval`.
    """
    with quiet():
        share = ratio(save, mtbf)
        short = _root(save, mtbf) * (1.0 + np.sqrt(share / 2.0) / 3.0 + share / 18.0) - save
        return np.where(share < 2.0, short, mtbf)[()]


def _root(save: Values, mtbf: Values) -> Array:
    with quiet():
        found = np.sqrt(np.multiply(2.0, save) * mtbf)
    return np.where(np.isinf(mtbf), np.inf, found)[()]


def best_interval(save: Values, mtbf: Values) -> Array:
    """Return the useful time between saves for which :func:`wall_per_useful` is least, exactly.

    Where its derivative is zero, ``e^(−(τ+δ)/M) = 1 − τ/M``, so that ``τ = M (1 + W₀(−e^(−1−δ/M)))`` with Lambert's W
    (Daly 2006, equation 25). With y = (τ + δ)/M this is ``e^(−y) − 1 + y = δ/M``, which Newton's method solves from
    Daly's series. It does not depend on the time of a restart.

    Returns
    -------
    Array
        0 where a save takes no time; infinite where nothing fails, even then.
    """
    with quiet():
        share = np.asarray(ratio(save, mtbf), float)
        w = np.sqrt(2.0 * share)
        y = np.minimum(w + w * w / 6.0 + w * w * w / 36.0, share + 1.0)
        for _ in range(_STEPS):
            excess = y * y * curvature(-y) - share
            y = y - ratio(excess, -np.expm1(-y))
        found = np.where(share > 0, -np.expm1(-y) * mtbf, _root(save, mtbf))
    return np.where(np.isinf(mtbf), np.inf, found)[()]
