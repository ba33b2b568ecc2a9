"""Work and traffic that run at the same time."""

import numpy as np

from calculon.base.units import Array, Fraction, Seconds


def not_hidden(traffic: Seconds, work: Seconds, usage: Fraction) -> Seconds:
    r"""Return what traffic adds to the work that runs beside it.

    .. math:: \min(t, \max(t - w, u \, t))

    for traffic `t`, work `w` and the share `u` of the engines that traffic takes from it: the work is slowed to
    :math:`1 - u` of its rate while there is traffic, and traffic that is left then runs alone.
    """
    return np.minimum(traffic, np.maximum(traffic - work, usage * traffic))


def slow_down(usage: Fraction, stated: Array) -> Fraction:
    r"""Return the share `u` of :func:`not_hidden`: of multiprocessors, or a larger one that is `stated` in percent.

    What collectives take beside multiprocessors is bandwidth of memory and caches, and power: in training steps on
    A100, H100, MI210 and MI250 work beside them takes 18.9 % longer, and steps without any overlap are 10.2 % longer
    than with it, on average (Lee et al., arXiv 2507.03114). Hidden traffic of `t` beside work of `w` then has
    :math:`u t = 0.189 w` and :math:`w + t = 1.102 (w + u t)`, so :math:`u = 0.61`; if 30 % of the work's time is
    traffic that nothing hides, 0.55.
    """
    return np.maximum(usage, stated / 100)
