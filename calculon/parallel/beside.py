"""Work and traffic that run at the same time."""

import numpy as np

from calculon.units import Fraction, Seconds


def not_hidden(traffic: Seconds, work: Seconds, usage: Fraction) -> Seconds:
    r"""Return what traffic adds to the work that runs beside it.

    .. math:: \min(t, \max(t - w, u \, t))

    for traffic `t`, work `w` and the share `u` of the engines that traffic takes from it: the work is slowed to
    :math:`1 - u` of its rate while there is traffic, and traffic that is left then runs alone.
    """
    return np.minimum(traffic, np.maximum(traffic - work, usage * traffic))
