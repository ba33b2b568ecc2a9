"""The figures of a whole run from the steps that it takes: one code path for one execution and for a hundred million.

Every argument and result is a column: an array whose last axis is *execution*, or a number.
"""

from collections.abc import Sequence

import numpy as np

from calculon.campaign.checkpoint import Saving, saving
from calculon.campaign.figures import CampaignFigures, DaysByUse
from calculon.campaign.goodput import best_interval
from calculon.campaign.job_mtbf import job_mtbf
from calculon.campaign.record import DAY, HOUR, Campaign, Reliability
from calculon.campaign.spent import spent
from calculon.frozen import dataclass
from calculon.hardware.system import System
from calculon.units import TERA, Array, Bytes, Count, Flops, FlopsPerSecond, Fraction, Seconds

_TENTH = 1.2815515655446004
"""Standard deviations below which a tenth of a normal distribution is."""

NODE = 8
"""Processors that fail together, where a system does not say which share a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Steps with the same batch and length of sequences.

    Attributes
    ----------
    steps, step_time : array
        How many there are, and seconds of one.
    tokens : array
        Tokens of all of them.
    working : array
        Share of a step in which the engines work; else they wait for others.
    utilisation : array
        Executed arithmetic over the peak, of a step.
    """

    steps: Count
    step_time: Seconds
    tokens: Count
    working: Fraction
    utilisation: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What runs on what.

    Attributes
    ----------
    system : System
        The machine.
    num_procs, replicas : array
        Processors, and replicas of the model.
    parameters : array
        Parameters of the model.
    checkpoint_size : array
        Bytes of a checkpoint.
    peak : array
        FLOP/s of a processor in the type of products.
    """

    system: System
    num_procs: Count
    replicas: Count
    parameters: Count
    checkpoint_size: Bytes
    peak: FlopsPerSecond

    @property
    def node(self) -> int:
        """Processors of a node, which fail together and share a host."""
        host = self.system.ext.host
        return min(NODE, self.system.networks[0].size) if host is None else host.processors

    @property
    def nodes(self) -> Count:
        """Nodes of the job."""
        return np.ceil(np.asarray(self.num_procs) / self.node)

    @property
    def arithmetic(self) -> Flops:
        """FLOP for a token, 6 for each parameter. Source: Kaplan et al., arXiv:2001.08361, section 2.1."""
        return np.asarray(6.0 * self.parameters)


def whole_run(
    campaign: Campaign,
    job: Job,
    stretches: Sequence[Stretch],
    *,
    pauses: int = 0,
    rounded: bool = True,
) -> CampaignFigures:
    """Return the figures of a whole run.

    Parameters
    ----------
    stretches : sequence of Stretch
        The steps, in their order.
    pauses : int
        Changes of the execution, each of which is a restart from a checkpoint.
    rounded : bool
        Whether intervals between checkpoints are whole steps. A run whose intervals are not is never longer: the
        least time of a step then gives the least time of a run.
    """
    steps, useful, tokens = _totals(stretches)
    saves = saving(campaign.checkpoints, job.system, job.checkpoint_size, job.num_procs, job.nodes)
    mtbf = _mtbf(campaign.reliability, job)
    step = useful / steps
    interval = _interval(campaign, saves, mtbf, step, rounded=rounded)
    recovery = campaign.reliability.detect + campaign.reliability.restart + saves.load
    evaluation = np.zeros_like(useful)
    if campaign.evaluate_every:
        evaluation = steps // campaign.evaluate_every * float(campaign.evaluate_time)
    spikes = campaign.spikes * tokens / TERA
    repeated = spikes * campaign.rollback_steps * step
    work = useful + evaluation + repeated
    share = spent(interval, saves.pause, recovery, mtbf)
    restarts = (pauses + spikes) * recovery
    wall = work * (1.0 + share.total) + restarts
    failures = np.where(np.isinf(mtbf), 0.0, wall / mtbf) + np.zeros_like(wall)
    low, middle, high = _spread(wall, failures, interval, recovery)
    spares = np.zeros_like(wall)
    processors = job.num_procs + spares * job.node
    hours = processors * wall / HOUR
    none = np.full_like(wall, np.nan)
    shape = np.zeros_like(wall)

    def days(seconds: Seconds) -> Array:
        return np.asarray(seconds / DAY + shape)

    return CampaignFigures(
        days=days(wall),
        days_p10=days(low),
        days_p50=days(middle),
        days_p90=days(high),
        processor_hours=hours,
        goodput=useful / wall,
        failures=failures,
        mtbf_hours=mtbf / HOUR + shape,
        checkpoint_interval=interval + shape,
        checkpoint_time=saves.pause + shape,
        checkpoint_size=saves.size + shape,
        spare_nodes=spares,
        mfu_effective=job.arithmetic * tokens / (job.peak * hours * HOUR),
        usd=none,
        tokens_per_usd=none,
        mwh=none,
        t_co2=none,
        by_use=DaysByUse(
            useful=days(useful),
            evaluation=days(evaluation),
            saving=days(work * share.saving),
            lost=days(work * share.lost),
            restart=days(work * share.restart + restarts),
            waiting=days(0.0 * work),
            repeated=days(repeated),
            slowed=days(0.0 * work),
        ),
    )


def _spread(
    wall: Seconds, failures: Count, interval: Seconds, recovery: Seconds
) -> tuple[Seconds, Seconds, Seconds]:
    """Return the times that failures leave in one run of ten, of two, and in nine of ten."""
    deviation = np.sqrt(failures * (interval**2 / 12 + (recovery + interval / 2) ** 2))
    return wall - _TENTH * deviation, wall, wall + _TENTH * deviation


def _totals(stretches: Sequence[Stretch]) -> tuple[Count, Seconds, Count]:
    """Return the steps of a run, their time and their tokens."""
    steps = sum((np.asarray(one.steps) for one in stretches), start=np.zeros(()))
    useful = sum((np.asarray(one.steps * one.step_time) for one in stretches), start=np.zeros(()))
    tokens = sum((np.asarray(one.tokens) for one in stretches), start=np.zeros(()))
    return steps, useful, tokens


def _mtbf(reliability: Reliability, job: Job) -> Seconds:
    """Return the mean time between interruptions of a job."""
    common = reliability.mtbf_common
    others = () if common is None else (common / HOUR,)
    return job_mtbf(job.num_procs, reliability.mtbf_processor / HOUR, *others)


def _interval(
    campaign: Campaign, saves: Saving, mtbf: Seconds, step: Seconds, *, rounded: bool
) -> Seconds:
    """Return the time of steps between checkpoints: as stated, or the best that the storage can take."""
    c = campaign.checkpoints
    if c.interval_steps is not None:
        return np.asarray(c.interval_steps * step)
    best = best_interval(saves.pause, mtbf) if c.interval is None else float(c.interval)
    least = np.maximum(best, saves.least_interval)
    if not rounded:
        return least
    whole = np.maximum(1.0, np.round(least / step))
    return np.where(whole * step < saves.least_interval, whole + 1.0, whole) * step
