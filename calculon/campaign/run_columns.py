"""From the columns of executions, one or a hundred million, to the steps and the job of a whole run."""

from collections.abc import Callable
from typing import Any

import numpy as np

from calculon.base.errors import Problem, SpecError
from calculon.base.units import Count, FlopsPerSecond, Fraction, Seconds
from calculon.campaign.checkpoint import bytes_per_param
from calculon.campaign.record import Campaign
from calculon.campaign.scaling_laws import COUNTS, tokens_of_loss
from calculon.campaign.whole_run import Job, Stretch, WholeRun
from calculon.hardware.system import System

Lookup = Callable[[str], Any]
"""Returns a column by name: a statistic of edition ``corrected``, or a field of executions."""

_WORK = ("fw_time", "bw_time", "recompute_time", "optim_step_time")
"""Statistics of the time in which engines work; in the rest of a step they wait for others."""


def steps_of(tokens: float, tokens_per_step: Count) -> Count:
    """Return the steps in which a run sees so many tokens."""
    return np.ceil(tokens / np.asarray(tokens_per_step, float))


def working(lookup: Lookup) -> Fraction:
    """Return the share of a step in which the engines work."""
    time: Seconds = np.asarray(lookup("total_time"))
    return np.asarray(sum(lookup(name) for name in _WORK) / time)


def peak(lookup: Lookup) -> FlopsPerSecond:
    """Return the FLOP/s of a processor in the type of products."""
    return np.asarray(lookup("model_flops_per_second_per_proc") / lookup("mfu"))


def stretch(steps: Count, tokens_per_step: Count, lookup: Lookup, before: float = 0.0) -> Stretch:
    """Return so many steps of executions, before each of which engines work for some seconds on something else."""
    time, works = np.asarray(lookup("total_time")), working(lookup)
    return Stretch(
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
    """Return what runs on what.

    Args:
        datatype: Type of the weights.
        active: Parameters that a token passes, of a mixture of experts; by default all.
        peaks: Whether the peak of processors is read, which only the effective MFU needs.
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
    """Return runs of one stretch each: all of a search, or one execution.

    Args:
        tokens: Tokens of the run.
        tokens_per_step: Tokens of a step of each execution.
        active: As of :func:`job`.
    """
    steps = steps_of(tokens, tokens_per_step)
    whole = stretch(steps, tokens_per_step, lookup)
    return WholeRun(campaign, job(campaign, system, datatype, lookup, active), (whole,))


# The length of a run, in tokens.


def tokens_of_run(asked: Campaign, parameters: float, tokens_per_step: int) -> float:
    """Return the tokens of a run; 0 where its phases state theirs.

    Raises:
        SpecError: Where nothing says how long it is.
        Infeasible: For a loss that so many parameters never reach.
    """
    if asked.tokens is not None:
        return asked.tokens.of(parameters)
    if asked.loss is not None:
        return tokens_of_loss(asked.loss, parameters)[COUNTS.name]
    if asked.steps is not None:
        return float(asked.steps * tokens_per_step)
    if not asked.phases:
        wanted = "the length of the run: tokens, steps or loss"
        hint = "add --tokens 15T, or tokens: 15T to the campaign"
        raise SpecError(asked.name, Problem("tokens", wanted, "nothing", hint))
    return 0.0
