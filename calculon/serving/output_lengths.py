"""How long outputs are where they differ: the longest of several."""

import math

import numpy as np

from calculon.units import Count

WIDEST_SHAPE, NARROWEST_SHAPE = 0.1, 1e4
"""Shapes of Weibull distributions between which one is looked for: variations of 430 to 0.00013."""

_REACH, _POINTS = 60.0, 4001
"""Values of -log(1 - F) up to which, and logarithms from below which, lengths are summed up, at so many points."""


def weibull_shape(variation: float) -> float:
    """Return the shape of the Weibull distribution with a coefficient of variation above 0: 1 of exponential times.

    By bisection of ``c² = Γ(1 + 2/k) / Γ(1 + 1/k)² - 1``, which falls with the shape. Source: Weibull, *A statistical
    distribution function of wide applicability*, Journal of Applied Mechanics 18, 1951.

    >>> round(weibull_shape(1.0), 9)
    1.0
    """
    low, high = math.log(WIDEST_SHAPE), math.log(NARROWEST_SHAPE)
    for _ in range(60):
        middle = (low + high) / 2
        inverse = math.exp(-middle)
        square = math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse)
        low, high = (middle, high) if math.expm1(square) > variation**2 else (low, middle)
    return math.exp(low)


def longest_output(batch: Count, output: float, variation: float) -> Count:
    r"""Return the mean length of the longest of so many outputs: the steps of a batch that starts and ends together.

    .. math:: E[\max] = \int_0^\infty 1 - F(x)^B \, dx

    of Weibull lengths with this mean and variation, which are exponential at 1: ``o (1 + 1/2 + ... + 1/B)``. Served
    outputs are about exponential (Xiang et al., *ServeGen*, arXiv 2505.09999, section 3.2).

    Parameters
    ----------
    batch : array
        Outputs, 1 at least.
    output, variation : float
        Their mean, and their standard deviation over it.
    """
    if not variation:
        return np.full(np.shape(batch), float(output))
    shape = weibull_shape(variation)
    # by the logarithm y of -log(1 - F), evenly spaced: x = e^(y/k) over the mean Γ(1 + 1/k), and dx = x/k dy
    level, step = np.linspace(-_REACH, math.log(_REACH), _POINTS, retstep=True)
    length = np.exp(level / shape - math.lgamma(1 + 1 / shape))
    below = np.log(-np.expm1(-np.exp(level)))
    left = -np.expm1(np.asarray(batch, float)[..., None] * below) * length * (step / shape)
    ends = (left[..., 0] + left[..., -1]) / 2
    return np.asarray(output * (length[0] + left.sum(axis=-1) - ends))
