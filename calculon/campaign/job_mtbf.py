"""How often a job fails: rates of independent sources add."""

import numpy as np

from calculon.campaign.exponentials import Values, quiet, ratio
from calculon.units import Array

HOUR = 3600.0


def combined(*mtbfs: Values) -> Array:
    """Return the mean time between failures of several independent sources together, in their unit.

    Rates add, as a superposition of Poisson processes is one: ``1/M = Σ 1/M_i``. None at all fail never.

    >>> float(combined(2.0, 2.0, np.inf)), float(combined())
    (1.0, inf)
    """
    rates: Values = 0.0
    with quiet():
        for mtbf in mtbfs:
            rates = rates + np.divide(1.0, mtbf)
        return np.divide(1.0, rates)


def job_mtbf(num_procs: Values, per_processor: Values, *others: Values) -> Array:
    """Return the mean time between failures of a job in seconds.

    Parameters
    ----------
    num_procs
        Processors that all have to work.
    per_processor
        Hours of one processor between failures that stop the job.
    others
        Hours between stops of the whole job that do not depend on its size: storage, power, maintenance, preemption.

    >>> float(job_mtbf(100, 200.0)), float(job_mtbf(100, 200.0, 2.0))
    (7200.0, 3600.0)
    """
    return combined(ratio(per_processor, num_procs), *others) * HOUR
