"""Steps and jobs of whole runs from columns of executions, for one execution or a hundred million."""

from collections.abc import Callable
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.units import Count, FlopsPerSecond, Fraction, Seconds
from calculon.campaign.checkpoint import bytes_per_param
from calculon.campaign.record import Campaign
from calculon.campaign.scaling_laws import COUNTS, tokens_of_loss
from calculon.campaign.whole_run import Job, TimedSegment, WholeRun
from calculon.hardware.system import System

Lookup = Callable[[str], Any]
"""Function that returns a column by name: a statistic of edition ``corrected``, or a field of executions."""

_WORK = ("fw_time", "bw_time", "recompute_time", "optim_step_time")
"""Statistics of the time in which engines are busy; in the rest of a step they wait for other ranks."""


def steps_of(tokens: float, tokens_per_step: Count) -> Count:
    """Return the number of steps in which a run processes a number of tokens."""
    return np.ceil(tokens / np.asarray(tokens_per_step, float))


def working(lookup: Lookup) -> Fraction:
    """Return the share of a step in which the engines are busy."""
    time: Seconds = np.asarray(lookup("total_time"))
    return np.asarray(sum(lookup(name) for name in _WORK) / time)


def peak(lookup: Lookup) -> FlopsPerSecond:
    """Return the peak FLOP/s of a processor in the type of matrix products."""
    # MFU is defined by this peak, so the ratio recovers it without reading the system again
    return np.asarray(lookup("model_flops_per_second_per_proc") / lookup("mfu"))


def timed_segment(
    steps: Count, tokens_per_step: Count, lookup: Lookup, before: float = 0.0
) -> TimedSegment:
    """Return steps of executions as a segment; `before` adds seconds of other engine work to each step."""
    time, works = np.asarray(lookup("total_time")), working(lookup)
    return TimedSegment(
        steps=steps,
        step_time=time + before,
        tokens=steps * tokens_per_step,
        working=(works * time + before) / (time + before) if before else works,
    )


def job(
    campaign: Campaign,
    system: System,
    datatype: str,
    lookup: Lookup,
    active: float | None = None,
    *,
    peaks: bool = True,
) -> Job:
    """Return the job: model size and processors of a run on a system.

    Args:
        datatype: Type of the weights.
        active: Active parameters per token of a mixture of experts; all parameters by default.
        peaks: Whether to read the peak of processors, which only the effective MFU needs.
    """
    parameters = np.asarray(lookup("parameters"))
    stated = campaign.checkpoints.bytes_per_param
    each = bytes_per_param(datatype, lookup) if stated is None else stated
    return Job(
        system=system,
        num_procs=np.asarray(lookup("num_procs")),
        replicas=np.asarray(lookup("data_par")),
        parameters=parameters,
        active=parameters if active is None else np.asarray(active),
        checkpoint_size=each * parameters,
        peak=peak(lookup) if peaks else np.nan,
    )


def whole_runs(
    campaign: Campaign,
    system: System,
    datatype: str,
    tokens: float,
    tokens_per_step: Count,
    lookup: Lookup,
    active: float | None = None,
) -> WholeRun:
    """Return runs of one segment each, for all executions of a search or for a single one.

    Args:
        tokens: Tokens of the run.
        tokens_per_step: Tokens per step of each execution.
        active: As for :func:`job`.
    """
    steps = steps_of(tokens, tokens_per_step)
    segment = timed_segment(steps, tokens_per_step, lookup)
    return WholeRun(campaign, job(campaign, system, datatype, lookup, active), (segment,))


# Length of a run in tokens.


def tokens_of_run(requested: Campaign, parameters: float, tokens_per_step: int) -> float:
    """Return the tokens of a run; 0 if its phases state their own.

    Raises:
        SpecError: If neither the run nor a phase states a length.
        Infeasible: For a loss that a model of this size never reaches.
    """
    if requested.tokens is not None:
        return requested.tokens.of(parameters)
    if requested.loss is not None:
        return tokens_of_loss(requested.loss, parameters)[COUNTS.name]
    if requested.steps is not None:
        return float(requested.steps * tokens_per_step)
    if not requested.phases:
        wanted = "the length of the run: tokens, steps or loss"
        hint = "add --tokens 15T, or tokens: 15T to the campaign"
        raise SpecError(requested.name, Problem("tokens", wanted, "nothing", hint))
    return 0.0
