"""How often a job fails: rates of independent sources add."""

import numpy as np

from calculon.campaign.exponentials import Values, quiet, ratio
from calculon.frozen import dataclass
from calculon.units import Array

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """How long a processor works between failures that stop its job, as somebody published it."""

    name: str
    hours: float
    source: str
    date: str


LLAMA_3 = PublishedRate(
    "Llama 3 405B, 16,384 H100",
    16384 * 54 * 24 / 419,
    "419 unexpected interruptions in 54 days, arXiv:2407.21783 section 3.3.4",
    "2024-07",
)
RSC_1 = PublishedRate(
    "RSC-1, 16,000 A100",
    8 * 24 * 1000 / 6.5,
    "6.50 failures in 1,000 days of a node of 8, arXiv:2410.21680",
    "2024-10",
)
RSC_2 = PublishedRate(
    "RSC-2, 8,000 A100",
    8 * 24 * 1000 / 2.34,
    "2.34 failures in 1,000 days of a node of 8, arXiv:2410.21680 (recalled)",
    "2024-10",
)
BLOOM = PublishedRate(
    "BLOOM 176B, 384 A100",
    384 * 7 * 24 / 1.5,
    "one or two failures of a processor a week, chronicles of BigScience (recalled)",
    "2022-07",
)
PUBLISHED = (LLAMA_3, RSC_1, RSC_2, BLOOM)

SMALL_JOB = 2000
"""Processors below which the rate of large jobs says too little; see :func:`small_job_warning`."""

_RSC_1_AT_1024 = 7.9


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


def small_job_warning(num_procs: int) -> str:
    """Return what to say of the failures of a small job; nothing of one from :data:`SMALL_JOB` processors on.

    Rates by processor come from large jobs, and small ones fail for other reasons as well. Source: arXiv:2410.21680
    (RSC-1), which projects large jobs by the rate of its nodes, and measured 7.9 h at 1,024 (the measured hours are
    recalled).
    """
    if num_procs >= SMALL_JOB:
        return ""
    expected = job_mtbf(1024, RSC_1.hours) / HOUR
    return (
        f"Jobs below {SMALL_JOB:,} processors fail more often than the rate of large ones says: "
        f"on RSC-1 one of 1,024 ran {_RSC_1_AT_1024:.1f} h between failures, where the rate of its nodes says "
        f"{expected:.1f} h."
    )
