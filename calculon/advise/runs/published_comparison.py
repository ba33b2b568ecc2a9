"""Published figures of runs similar to a predicted run: the same model, or a job of similar size."""

import math
from typing import Any

from calculon.campaign.job_failures import HOUR, job_mtbf
from calculon.campaign.prices import maker_of, processor_of
from calculon.campaign.published import (
    PublishedFailures,
    PublishedTraining,
    failures_near,
    published_failures,
    published_trainings,
    same_name,
)
from calculon.campaign.whole_run import WholeRun

NEAR = 2.0
"""Maximum ratio of the sizes of two similar jobs."""

_SAME = 1e-3
"""Relative difference of parameter counts up to which two models are the same."""
_ALIKE = 1e-4
"""Relative difference of failure rates up to which one was derived from the other."""


def published_comparison(run: WholeRun, model: str) -> list[dict[str, Any]]:
    """Return rows of published figures, each with the corresponding figure of this run or its failure model.

    Args:
        run: Run of one execution.
        model: Name of its model.

    Returns:
        Rows with ``run``, ``num_procs``, ``processor`` (of the published run), ``own_processor`` (of this run),
        ``figure``, ``per`` (tokens for processor-hours, hours for failures), ``published``, ``published_is``
        (``about``, ``more than``), ``ours``, ``configuration`` (for processor-hours: the extent to which the source
        states batch and degrees; otherwise empty), ``source``, ``evidence``, ``assumed_from`` (whether the failure
        rate of this run was taken from the row). Processor-hours on processors of another vendor are omitted, because
        they are not comparable.
    """
    trainings = [one for one in published_trainings() if same_name(one.run, model)]
    rows = [_hours(run, one) for one in trainings if _comparable(one.system, run)]
    num_procs, parameters = float(run.job.num_procs), float(run.job.parameters)
    own = [one for one in published_failures() if _is_of(one, model, parameters)]
    # Other models' failures say something only for jobs of a similar size; two such rows are
    # enough.
    near = [
        one
        for one in failures_near(num_procs)
        if one not in own and 1 / NEAR <= num_procs / (one.num_procs or math.inf) <= NEAR
    ]
    for one in (*own, *near[:2]):
        rows += _failures(run, one)
    return rows


def _is_of(one: PublishedFailures, model: str, parameters: float) -> bool:
    if same_name(one.run, model):
        return True
    return one.parameters is not None and abs(one.parameters / parameters - 1) < _SAME


def _comparable(system: str, run: WholeRun) -> bool:
    """Return True if processor-hours on a system are comparable with this run: TPUs are not comparable with GPUs."""
    makers = {maker_of(system), maker_of(run.job.system.name)}
    return len(makers - {""}) < 2


def _hours(whole_run: WholeRun, one: PublishedTraining) -> dict[str, Any]:
    """Return processor-hours, of the whole run or of its steps alone, and ours for the same number of tokens.

    Sources count working processors, so that ours exclude spares.
    """
    time = whole_run.wall if one.whole else whole_run.useful
    ours = float(whole_run.job.num_procs) * float(time) / HOUR
    return {
        "run": one.run,
        "num_procs": one.num_procs,
        "processor": processor_of(one.system),
        "own_processor": processor_of(whole_run.job.system.name),
        "figure": "processor_hours" if one.whole else "step_hours",
        "per": one.tokens,
        "published": one.processor_hours,
        "published_is": "",
        "ours": ours * one.tokens / float(whole_run.tokens),
        "configuration": one.configuration,
        "source": one.source,
        "evidence": "",
        "assumed_from": False,
    }


def _failures(whole_run: WholeRun, one: PublishedFailures) -> list[dict[str, Any]]:
    """Return failures in a period, or the hours between them, and goodput."""
    base = {"run": one.run, "num_procs": one.num_procs, "source": one.source}
    base |= {"processor": one.processor, "own_processor": processor_of(whole_run.job.system.name)}
    base |= {"configuration": "", "evidence": one.evidence}
    assumed = whole_run.campaign.reliability.mtbf_processor / HOUR
    rows = []
    if one.num_procs and one.mtbf_hours:
        mtbf = float(job_mtbf(one.num_procs, assumed)) / HOUR
        same = abs(mtbf / one.mtbf_hours - 1) < _ALIKE
        window = one.hours
        figure = "mtbf_hours" if window is None else "failures"
        rows.append(
            {
                **base,
                "figure": figure,
                "per": window,
                "published": one.mtbf_hours if window is None else one.failures,
                "published_is": "",
                "ours": mtbf if window is None else window / mtbf,
                "assumed_from": same,
            }
        )
    if one.goodput:
        rows.append(
            {
                **base,
                "figure": "goodput",
                "per": None,
                "published": one.goodput,
                "published_is": one.goodput_is,
                "ours": float(whole_run.goodput),
                "assumed_from": False,
            }
        )
    return rows
