"""How often a job fails: rates of independent sources add."""

import numpy as np

from calculon.base.units import Array
from calculon.campaign.exponentials import Values, quiet, ratio
from calculon.campaign.published import published_failures

HOUR = 3600.0

SMALL_JOB = 2000
"""Processors below which the rate of large jobs says too little; see :func:`small_job_warning`."""

_SAME = 1e-3
"""Relative difference of rates up to which one is not called higher."""

_LARGE, _SMALL = "RSC-1", "RSC-1 on 1,024"  # rows of published failures


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

    Args:
        num_procs: Processors that all have to work.
        per_processor: Hours of one processor between failures that stop the job.
        others: Hours between stops of the whole job that do not depend on its size: storage, power, maintenance,
            preemption.

    >>> float(job_mtbf(100, 200.0)), float(job_mtbf(100, 200.0, 2.0))
    (7200.0, 3600.0)
    """
    return combined(ratio(per_processor, num_procs), *others) * HOUR


def rate_among_published(mtbf_processor: float) -> str:
    """Say how many published rates of failures are worse than one of so many hours of a processor between failures.

    >>> rate_among_published(1.0)
    ''
    """
    hours = [one.mtbf_processor for one in published_failures() if one.mtbf_processor]
    worse = [one for one in hours if one < mtbf_processor * (1 - _SAME)]
    if 2 * len(worse) < len(hours):
        return ""
    return (
        f"The rate of failures is a default, and a favourable one: of {len(hours)} that are published {len(worse)} are "
        f"higher, up to {mtbf_processor / min(worse):.2g} times (--mtbf)."
    )


def small_job_warning(num_procs: int) -> str:
    """Return what to say of the failures of a small job; nothing of one from :data:`SMALL_JOB` processors on.

    Rates by processor come from large jobs, and small ones fail for other reasons as well: arXiv:2410.21680 projects
    the failures of large jobs by the rate of its nodes, and measured more of them at 1,024 processors.
    """
    if num_procs >= SMALL_JOB:
        return ""
    rows = {one.run: one for one in published_failures()}
    small, large = rows[_SMALL], rows[_LARGE]
    assert small.num_procs
    assert small.mtbf_hours
    assert large.mtbf_processor
    return (
        f"Jobs below {SMALL_JOB:,} processors fail more often than the rate of large ones says: on {_LARGE} one of "
        f"{small.num_procs:,} ran {small.mtbf_hours:.1f} h between failures, where the rate of its nodes says "
        f"{large.mtbf_processor / small.num_procs:.1f} h."
    )
