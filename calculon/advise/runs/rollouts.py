"""Generation of training data (rollouts) in a step of reinforcement learning."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from calculon.base.errors import Problem, SpecError
from calculon.campaign.phases import Rollout
from calculon.campaign.run_segments import RunSegment
from calculon.estimate.estimate import Estimate
from calculon.serving.records.deployment import Deployment
from calculon.serving.records.engine_presets import facts_of
from calculon.serving.records.read_records import read_deployment
from calculon.serving.serve import Served, serve


def generating_deployment(segment: RunSegment, one: Estimate) -> Served:
    """Return the deployment that generates the answers of a step, all of which are there at its begin.

    The processors of the run first generate and then train (colocated, as in verl and OpenRLHF: Sheng et al.,
    *HybridFlow*, arXiv 2409.19256, section 5).

    Args:
        segment: A part of a run with a rollout.
        one: A step of it.

    Raises:
        SpecError: For all problems of the deployment, for another number of processors, and for responses longer than
            the training sequences.
        Infeasible: If a response does not fit.
    """
    asked = segment.rollout
    assert asked is not None
    place = f"phases[{segment.phase}].rollout"
    procs, length = one.execution.num_procs, asked.prompt + asked.output
    if length > segment.seq_size:
        wanted = f"at most seq_size={segment.seq_size:,}, of which a sequence is trained"
        raise SpecError("campaign", Problem(f"{place}.output", wanted, f"{length:,} with prompt"))
    options: dict[str, Any] = {
        "prompt": asked.prompt,
        "output": asked.output,
        "output_cv": asked.output_cv,
        "requests": asked.answers(segment.tokens_per_step),
    }
    facts = facts_of(one.model, one.system)
    try:
        return serve(one.model, _deployment(asked, procs, facts), one.system, **options)
    except SpecError as error:
        problems = [replace(each, field=f"{place}.{each.field}") for each in error.problems]
        raise SpecError("campaign", problems) from None


def _deployment(rollout: Rollout, procs: int, facts: SimpleNamespace) -> Deployment | int:
    """Return the deployment of a rollout on the processors of the run."""
    if rollout.deployment is None:
        return procs
    raw = rollout.deployment.raw
    if isinstance(raw, dict):
        raw = {"num_procs": procs} | raw
    result = read_deployment(raw, facts=facts)
    if result.num_procs != procs:
        wanted = f"{procs:,}, the processors of the run"
        raise SpecError("deployment", Problem("num_procs", wanted, f"{result.num_procs:,}"))
    return result
