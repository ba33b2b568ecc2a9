"""Failures and checkpoints: wall time per second of useful work, and the interval between saves that makes it least.

Failures come at random (exponential, mean time `mtbf`) at any time: at work, while a checkpoint is saved, and while
the job restarts, which then restarts once more. All times are in the same unit; arguments broadcast.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974) 530;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303.
"""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.campaign.exponentials import Values, curvature, growth, quiet, ratio, remembered

_STEPS = 6
"""Newton steps: four reach the last digit from the start that is taken, and two are to spare."""


def wall_per_useful(interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the expected wall time per useful time, exactly: the inverse of goodput.

    Daly 2006, equation 20: ``(M/τ) e^(R/M) (e^((τ+δ)/M) − 1)``; ``1 + δ/τ`` without failures.

    Args:
        interval: Useful work between two saves (τ); infinite if nothing is ever saved.
        save: Time for which a save holds up the work (δ).
        restart: From a failure until work goes on (R): detection, restart and loading.
        mtbf: Mean time between failures of the job (M); infinite without failures.

    Returns:
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


@remembered
def best_interval(save: Values, mtbf: Values) -> Array:
    """Return the useful time between saves for which :func:`wall_per_useful` is least, exactly.

    Where its derivative is zero, ``e^(−(τ+δ)/M) = 1 − τ/M``, so that ``τ = M (1 + W₀(−e^(−1−δ/M)))`` with Lambert's W
    (Daly 2006, equation 25). With y = (τ + δ)/M this is ``e^(−y) − 1 + y = δ/M``, which Newton's method solves from
    Daly's series. It does not depend on the time of a restart.

    Returns:
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


def best_steps(step_time: Values, save: Values, mtbf: Values, shortest: Values = 0.0) -> Array:
    """Return the best whole number of steps between two saves, at least 1.

    It is one of the two around :func:`best_interval`, since the wall time has only one minimum.

    Args:
        step_time: Time of one step, above 0.
        save, mtbf: As for :func:`best_interval`.
        shortest: Time that has to pass between two saves: that of writing one in the background, which the next waits
            for.

    Returns:
        Infinite where nothing fails.

    >>> float(best_steps(10.0, 30.0, 3600.0)), float(best_steps(10.0, 30.0, 3600.0, shortest=901.0))
    (45.0, 91.0)
    """
    with quiet():
        wanted = np.divide(best_interval(save, mtbf), step_time)
        fewest = np.maximum(np.ceil(np.divide(shortest, step_time)), 1.0)
        below = np.maximum(np.floor(wanted), fewest)
        above = np.maximum(np.ceil(wanted), fewest)
    costs = [wall_per_useful(steps * step_time, save, 0.0, mtbf) for steps in (below, above)]
    return np.where(costs[0] <= costs[1], below, above)[()]


Pair = tuple[Values, Values]
"""A figure of checkpoints in memory, and of those on storage."""


def two_levels(
    intervals: Pair, saves: Pair, restarts: Pair, mtbf: Values, beyond_memory: Values
) -> Array:
    """Return the wall time per useful time with frequent copies in memory and rarer ones on storage, exactly.

    A failure sends the job back to the last copy in memory, or, a share of them, to the last one on storage. Failures
    during a restart are counted as well: from memory, such a share of them sends the job to storage. The copies in
    memory are states of a chain, and the expected time through all of them, from one copy on storage to the next, is
    closed. It is :func:`wall_per_useful` where no failure goes beyond memory, and where all do. To first order it is
    ``1 + δ₁/τ₁ + δ₂/τ₂ + (1−q)(τ₁/2 + R₁)/M + q(τ₂/2 + R₂)/M``.

    Args:
        intervals: Useful work between two copies (τ); that of storage counts as at least that of memory.
        saves, restarts: As for :func:`wall_per_useful`.
        mtbf: Mean time between failures of all kinds.
        beyond_memory: Share of the failures that copies in memory do not survive (q).
    """
    inner, outer = intervals[0], np.maximum(intervals[0], intervals[1])
    with quiet():
        copies = np.where(np.isinf(inner), 1.0, np.divide(outer, inner))
        work = _stage(np.add(inner, saves[0]), restarts, mtbf, beyond_memory)
        storing = _stage(np.asarray(saves[1], float), restarts, mtbf, beyond_memory)
        log = np.log1p(work[1])
        lost = work[1] > 0
        repeated = growth(np.where(lost, copies * log, 0.0)) * np.where(lost, log / work[1], 1.0)
        found = repeated * work[0] * (1.0 + storing[1]) / inner + storing[0] / outer
        found = np.where(np.isinf(inner) & np.isinf(mtbf), 1.0, found)
    return np.where(np.isnan(found), np.inf, found)[()]


def _stage(length: Array, restarts: Pair, mtbf: Values, beyond: Values) -> tuple[Array, Array]:
    """Return the time of a stage and its restarts until it is done, and how often all is lost to the first stage.

    With ``x = length/M`` it fails ``e^x − 1`` times. A restart from memory ends well with probability
    ``1/(1 + q (e^(R₁/M) − 1))``, and else in one from storage.
    """
    fails = np.expm1(ratio(length, mtbf))
    memory, storage = (np.multiply(restart, growth(ratio(restart, mtbf))) for restart in restarts)
    well = 1.0 / (1.0 + beyond * np.expm1(ratio(restarts[0], mtbf)))
    kept = 1.0 - np.asarray(beyond, float)
    lost = fails * (kept * (1.0 - well) + beyond)
    time = length * growth(ratio(length, mtbf)) + fails * kept * memory * well + lost * storage
    return time, lost


def best_two_levels(saves: Pair, mtbf: Values, beyond_memory: Values) -> tuple[Array, Array]:
    """Return the useful times between copies in memory and between those on storage that are best, each for itself.

    The first order of :func:`two_levels` is a sum of two independent ones, each with the failures that it answers:
    ``√(2 δ₁ M/(1−q))`` and ``√(2 δ₂ M/q)``; here each is :func:`best_interval`. Both together could be better by less
    than 0.03 % with 3 h between failures and saves up to 30 s and 300 s, and by 0.7 % with 1,000 s between failures.
    """
    inner = best_interval(saves[0], ratio(mtbf, 1.0 - np.asarray(beyond_memory, float)))
    return inner, np.maximum(inner, best_interval(saves[1], ratio(mtbf, beyond_memory)))


# What failures and checkpoints add to the work of a run, by what the time goes to.


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
