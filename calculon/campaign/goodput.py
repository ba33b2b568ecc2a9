"""Goodput with failures and checkpointing: wall time per second of useful work, and the optimal checkpoint interval.

Failures come at random (exponential, mean time `mtbf`) and at any time: during useful work, while a checkpoint is
saved, and while the job restarts (the restart then begins again). All times have the same unit; arguments broadcast.

Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974) 530;
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22 (2006) 303.
"""

import numpy as np

from calculon.base.frozen import dataclass
from calculon.base.units import Array
from calculon.campaign.exponentials import (
    Values,
    cached_for_numbers,
    curvature,
    growth,
    ignore_float_errors,
    ratio,
)

_STEPS = 6
"""Number of Newton steps: four reach the last digit from the chosen start, two are a margin."""


def wall_per_useful(interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the exact expected wall time per useful time: the inverse of goodput.

    Daly 2006, equation 20: ``(M/τ) e^(R/M) (e^((τ+δ)/M) − 1)``; ``1 + δ/τ`` without failures.

    Args:
        interval: Useful work between two saves (τ); infinite if the run never saves.
        save: Time that a save blocks training (δ).
        restart: Time from a failure until training continues (R): detection, restart and loading.
        mtbf: Mean time between failures of the job (M); infinite without failures.

    Returns:
        At least 1; infinite if the run never ends within the range of a float.

    >>> float(wall_per_useful(817.0, 30.0, 300.0, np.inf)) == 1 + 30 / 817
    True
    """
    with ignore_float_errors():
        held_up = 1.0 + ratio(save, interval)
        found = growth(ratio(np.add(interval, save), mtbf)) * np.exp(ratio(restart, mtbf))
        return found * held_up


def first_order(interval: Values, save: Values, restart: Values, mtbf: Values) -> Array:
    """Return the first-order approximation of the wall time per useful time, a lower bound (Young 1974).

    ``1 + δ/τ + (τ/2 + R)/M``; the error is of the order of ((τ + δ + R)/M)² and of δ/M.
    """
    lost = np.divide(interval, 2.0) + restart
    return 1.0 + ratio(save, interval) + ratio(lost, mtbf)


def young(save: Values, mtbf: Values) -> Array:
    """Return Young's checkpoint interval, ``√(2 δ M)``: too long by about a third of √(2 δ/M)."""
    return _root(save, mtbf)


def daly(save: Values, mtbf: Values) -> Array:
    """Return Daly's checkpoint interval: ``√(2δM) (1 + √(δ/2M)/3 + δ/18M) − δ`` if δ < 2 M, else M (2006, equation 37).

    It is the third-order expansion of :func:`best_interval` in √(2 δ/M).
    """
    with ignore_float_errors():
        share = ratio(save, mtbf)
        short = _root(save, mtbf) * (1.0 + np.sqrt(share / 2.0) / 3.0 + share / 18.0) - save
        return np.where(share < 2.0, short, mtbf)[()]


def _root(save: Values, mtbf: Values) -> Array:
    with ignore_float_errors():
        found = np.sqrt(np.multiply(2.0, save) * mtbf)
    return np.where(np.isinf(mtbf), np.inf, found)[()]


@cached_for_numbers
def best_interval(save: Values, mtbf: Values) -> Array:
    """Return the exact optimal checkpoint interval: the useful time between saves with the least wall time.

    At the minimum of :func:`wall_per_useful`, ``e^(−(τ+δ)/M) = 1 − τ/M``, so that ``τ = M (1 + W₀(−e^(−1−δ/M)))`` with
    Lambert's W (Daly 2006, equation 25). With y = (τ + δ)/M this is ``e^(−y) − 1 + y = δ/M``, which Newton's method
    solves starting from Daly's series. The interval does not depend on the restart time.

    Returns:
        0 if a save takes no time; infinite if nothing fails, even then.
    """
    with ignore_float_errors():
        share = np.asarray(ratio(save, mtbf), float)
        w = np.sqrt(2.0 * share)
        # Daly's series is the start for small δ/M; for large δ/M
        # the solution tends to δ/M + 1, which bounds it from above
        y = np.minimum(w + w * w / 6.0 + w * w * w / 36.0, share + 1.0)
        for _ in range(_STEPS):
            excess = y * y * curvature(-y) - share
            y = y - ratio(excess, -np.expm1(-y))
        found = np.where(share > 0, -np.expm1(-y) * mtbf, _root(save, mtbf))
    return np.where(np.isinf(mtbf), np.inf, found)[()]


def best_steps(step_time: Values, save: Values, mtbf: Values, shortest: Values = 0.0) -> Array:
    """Return the optimal number of whole steps between two saves, at least 1.

    It is one of the two integers around :func:`best_interval`, because the wall time has a single minimum.

    Args:
        step_time: Time of one step, above 0.
        save, mtbf: As for :func:`best_interval`.
        shortest: Minimum time between two saves: the time to write one in the background, which has to end before the
            next save starts.

    Returns:
        Infinite if nothing fails.

    >>> float(best_steps(10.0, 30.0, 3600.0)), float(best_steps(10.0, 30.0, 3600.0, shortest=901.0))
    (45.0, 91.0)
    """
    with ignore_float_errors():
        wanted = np.divide(best_interval(save, mtbf), step_time)
        fewest = np.maximum(np.ceil(np.divide(shortest, step_time)), 1.0)
        below = np.maximum(np.floor(wanted), fewest)
        above = np.maximum(np.ceil(wanted), fewest)
    # the restart time is a common factor of both costs, so 0 gives the same choice
    costs = [wall_per_useful(steps * step_time, save, 0.0, mtbf) for steps in (below, above)]
    return np.where(costs[0] <= costs[1], below, above)[()]


Pair = tuple[Values, Values]
"""A value for in-memory copies, and the same for checkpoints on storage."""


def two_levels(
    intervals: Pair, saves: Pair, restarts: Pair, mtbf: Values, beyond_memory: Values
) -> Array:
    """Return the exact wall time per useful time with two levels of checkpoints: in memory, and rarer ones on storage.

    A failure sends the job back to the last in-memory copy or, for a share of the failures, to the last checkpoint on
    storage. Failures during a restart are included: the same share of them sends a job that restarts from memory to
    storage. The in-memory copies are the states of a Markov chain, and the expected time through all of them, from one
    checkpoint to the next, has a closed form. It equals :func:`wall_per_useful` if no failure, or every failure, needs
    the checkpoint on storage. To first order it is ``1 + δ₁/τ₁ + δ₂/τ₂ + (1−q)(τ₁/2 + R₁)/M + q(τ₂/2 + R₂)/M``.

    Args:
        intervals: Useful work between two copies (τ); the interval of storage counts as at least the interval of
            memory.
        saves, restarts: As for :func:`wall_per_useful`.
        mtbf: Mean time between failures of all kinds.
        beyond_memory: Share of the failures that in-memory copies do not survive (q).
    """
    inner, outer = intervals[0], np.maximum(intervals[0], intervals[1])
    with ignore_float_errors():
        copies = np.where(np.isinf(inner), 1.0, np.divide(outer, inner))
        work = _stage(np.add(inner, saves[0]), restarts, mtbf, beyond_memory)
        storing = _stage(np.asarray(saves[1], float), restarts, mtbf, beyond_memory)
        log = np.log1p(work[1])
        lost = work[1] > 0
        # mean number of passes through each stage: ((1 + x)^copies − 1)/x for x losses per stage, which tends to
        # `copies` as x → 0
        repeated = growth(np.where(lost, copies * log, 0.0)) * np.where(lost, log / work[1], 1.0)
        found = repeated * work[0] * (1.0 + storing[1]) / inner + storing[0] / outer
        # without saves and without failures the ratio is ∞/∞, and there is no overhead
        found = np.where(np.isinf(inner) & np.isinf(mtbf), 1.0, found)
    return np.where(np.isnan(found), np.inf, found)[()]


def _stage(length: Array, restarts: Pair, mtbf: Values, beyond: Values) -> tuple[Array, Array]:
    """Return the time of a stage including its restarts, and the mean number of returns to the first stage.

    With ``x = length/M`` the stage fails ``e^x − 1`` times. A restart from memory succeeds with probability
    ``1/(1 + q (e^(R₁/M) − 1))``; otherwise the job restarts from storage.
    """
    fails = np.expm1(ratio(length, mtbf))
    memory, storage = (np.multiply(restart, growth(ratio(restart, mtbf))) for restart in restarts)
    well = 1.0 / (1.0 + beyond * np.expm1(ratio(restarts[0], mtbf)))
    kept = 1.0 - np.asarray(beyond, float)
    lost = fails * (kept * (1.0 - well) + beyond)
    time = length * growth(ratio(length, mtbf)) + fails * kept * memory * well + lost * storage
    return time, lost


def best_two_levels(saves: Pair, mtbf: Values, beyond_memory: Values) -> tuple[Array, Array]:
    """Return the optimal useful times between in-memory copies and between checkpoints, each optimized alone.

    To first order, :func:`two_levels` is a sum of two independent terms, each with its own share of the failures:
    ``√(2 δ₁ M/(1−q))`` and ``√(2 δ₂ M/q)``. Here each of them is :func:`best_interval`. A joint optimum is better by
    less than 0.03 % with an MTBF of 3 h and saves up to 30 s and 300 s, and by 0.7 % with an MTBF of 1,000 s.
    """
    inner = best_interval(saves[0], ratio(mtbf, 1.0 - np.asarray(beyond_memory, float)))
    return inner, np.maximum(inner, best_interval(saves[1], ratio(mtbf, beyond_memory)))


# Time overhead of failures and checkpoints, by cause.


@dataclass(frozen=True, slots=True)
class Overhead:
    """Overhead per unit of work by cause; the sum is :func:`~calculon.campaign.goodput.wall_per_useful` minus 1.

    Attributes:
        saving: Training blocked by saves.
        lost: Work, and saves, that failures destroy.
        restart: Restarts, including restarts that fail.
    """

    saving: Array
    lost: Array
    restart: Array

    @property
    def total(self) -> Array:
        """Overhead of all causes."""
        return self.saving + self.lost + self.restart


def overhead(interval: Values, save: Values, restart: Values, mtbf: Values) -> Overhead:
    """Split Daly's exact expected wall time (2006, equation 20) by cause.

    With x = (τ + δ)/M and r = R/M there are e^x - 1 failures during work per interval τ. A restart, repeated until R
    seconds pass without a failure, takes M (e^r - 1); M (e^x - 1) - (τ + δ) of work is lost. Arguments as in
    :func:`~calculon.campaign.goodput.wall_per_useful`.
    """
    with ignore_float_errors():
        held_up = 1.0 + ratio(save, interval)
        x, r = ratio(np.add(interval, save), mtbf), ratio(restart, mtbf)
        lost = held_up * x * curvature(x)
        again = held_up * growth(x) * r * growth(r)
    return Overhead(np.asarray(ratio(save, interval)), np.asarray(lost), np.asarray(again))


def two_level_overhead(
    intervals: Pair, saves: Pair, restarts: Pair, mtbf: Values, beyond_memory: Values
) -> Overhead:
    """Split the exact wall time of two-level checkpointing by cause; arguments as in :func:`two_levels`.

    A restart that fails and is repeated counts once; the rest of its time counts as lost work.
    """
    total = two_levels(intervals, saves, restarts, mtbf, beyond_memory) - 1.0
    saving = ratio(saves[0], intervals[0]) + ratio(saves[1], intervals[1])
    mean = (1.0 - np.asarray(beyond_memory)) * restarts[0] + np.multiply(beyond_memory, restarts[1])
    # one mean restart per failure; capped by the total overhead,
    # because the split is not exact when restarts fail often
    again = np.minimum(ratio(1.0 + total, mtbf) * mean, total - saving)
    return Overhead(np.asarray(saving), np.asarray(total - saving - again), np.asarray(again))
